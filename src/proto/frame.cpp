#include "proto/frame.hpp"

#include <capnp/serialize-packed.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace dsec::proto {
namespace {

using base::errc;
using base::fail;

// Little-endian 32-bit words of the segment table, see "Serialization over a stream" in the
// encoding spec.
std::uint32_t table_word(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

base::result<void> check_segment_table(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return fail(errc::protocol, "message is shorter than its segment table");
  const std::size_t segments = std::size_t{table_word(bytes, 0)} + 1;
  if (segments > max_segments) return fail(errc::protocol, "message has too many segments");
  const std::size_t table_bytes = (segments / 2 + 1) * 8;
  if (bytes.size() < table_bytes)
    return fail(errc::protocol, "message is shorter than its segment table");
  std::size_t words = 0;
  for (std::size_t i = 0; i < segments; ++i) words += table_word(bytes, i + 1);
  if (table_bytes + words * 8 != bytes.size()) {
    return fail(errc::protocol, "message size does not match its segment table");
  }
  return {};
}

std::vector<kj::ArrayPtr<const capnp::word>> segments_of(capnp::MessageReader& message) {
  std::vector<kj::ArrayPtr<const capnp::word>> all;
  for (unsigned i = 0;; ++i) {
    const auto segment = message.getSegment(i);
    if (segment == nullptr) return all;
    all.push_back(segment);
  }
}

/// The bytes, once they are known to be one message of at most `most`.
base::result<kj::Array<capnp::word>> copy(std::span<const std::byte> bytes, std::size_t most) {
  DSEC_CHECK(check_message_size(bytes.size(), most));
  if (bytes.size() % 8 != 0) return fail(errc::protocol, "message size is not a multiple of 8");
  DSEC_CHECK(check_segment_table(bytes));
  auto words = kj::heapArray<capnp::word>(bytes.size() / 8);
  std::memcpy(words.begin(), bytes.data(), bytes.size());
  return words;
}

/// Where the first 8 bytes of the root struct are, in words; 0: not in its usual place. See
/// "Structs" in the encoding spec.
std::size_t root_of(std::span<const std::byte> bytes) {
  const std::size_t segments = std::size_t{table_word(bytes, 0)} + 1;
  const std::size_t begin = segments / 2 + 1;
  const std::size_t end = begin + table_word(bytes, 1);
  if (begin == end) return 0;
  const auto low = table_word(bytes, 2 * begin);
  const auto data_words = table_word(bytes, 2 * begin + 1) & 0xffffU;
  const auto offset = static_cast<std::int32_t>(low) >> 2;  // signed
  if ((low & 3U) != 0 || data_words == 0 || offset < 0) return 0;
  const auto at = begin + 1 + static_cast<std::size_t>(offset);
  return at < end ? at : 0;
}

}  // namespace

base::result<void> check_message_size(std::size_t bytes, std::size_t most) {
  if (bytes <= most) return {};
  return fail(errc::too_large, "message of " + std::to_string(bytes) +
                                   " bytes is over the limit of " + std::to_string(most) +
                                   "; split it");
}

base::result<frame> frame::from_packed(std::span<const std::byte> bytes) {
  DSEC_CHECK(check_message_size(bytes.size()));
  const kj::ArrayPtr<const kj::byte> packed(reinterpret_cast<const kj::byte*>(bytes.data()),
                                            bytes.size());
  std::size_t words = 0;
  DSEC_CHECK(guarded([&] { words = capnp::computeUnpackedSizeInWords(packed); }));
  DSEC_CHECK(check_message_size(words * 8));
  std::vector<kj::ArrayPtr<const capnp::word>> segments;
  frame f;
  bool whole = false;
  DSEC_CHECK(guarded([&] {
    kj::ArrayInputStream in(packed);
    auto options = reader_options(words);
    options.traversalLimitInWords = words;  // bounds what the segment table may ask for, too
    capnp::PackedMessageReader reader(in, options);
    segments = segments_of(reader);
    whole = in.tryGetReadBuffer().size() == 0;
    f = of(capnp::messageToFlatArray({segments.data(), segments.size()}));
  }));
  if (segments.size() > max_segments) return fail(errc::protocol, "message has too many segments");
  if (!whole) return fail(errc::protocol, "message size does not match its segment table");
  return f;
}

base::result<frame> frame::from_bytes(std::span<const std::byte> bytes, std::size_t most) {
  DSEC_TRY(auto words, copy(bytes, most));
  return of(kj::mv(words));
}

base::result<frame> frame::from_reply(std::span<const std::byte> bytes, std::uint64_t id) {
  DSEC_TRY(auto words, copy(bytes, max_message_bytes));
  const auto at = root_of(bytes);
  if (at == 0) return fail(errc::protocol, "a reply whose id cannot be found");
  std::memcpy(words.asBytes().begin() + at * sizeof(capnp::word), &id, sizeof id);
  return of(kj::mv(words));
}

frame frame::from_builder(capnp::MessageBuilder& builder) {
  return of(capnp::messageToFlatArray(builder));
}

frame frame::of(kj::Array<capnp::word> words) {
  frame f;
  f.words_ = std::make_shared<const kj::Array<capnp::word>>(kj::mv(words));
  return f;
}

frame frame::with(std::shared_ptr<const void> companion) const {
  struct together {
    std::shared_ptr<const void> companion;  // goes after the words
    std::shared_ptr<const kj::Array<capnp::word>> words;
  };
  const auto* words = words_.get();
  frame f;
  f.words_ = {std::make_shared<together>(std::move(companion), words_), words};
  return f;
}

std::span<const std::byte> frame::bytes() const {
  if (!words_) return {};
  return std::as_bytes(std::span(words_->begin(), words_->size()));
}

kj::ArrayPtr<const capnp::word> frame::words() const {
  if (!words_) return nullptr;
  return words_->asPtr();
}

std::string frame::packed() const {
  kj::VectorOutputStream out;
  capnp::FlatArrayMessageReader reader(words(), reader_options(words().size()));
  const auto segments = segments_of(reader);
  capnp::writePackedMessage(out, {segments.data(), segments.size()});
  const auto bytes = out.getArray();
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

capnp::ReaderOptions reader_options(std::size_t words) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = traversal_limit_words(words);
  options.nestingLimit = nesting_limit;
  return options;
}

base::result<void> guarded(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const kj::Exception& e) {
    return fail(errc::protocol, std::string("malformed message: ") + e.getDescription().cStr());
  }
}

}  // namespace dsec::proto
