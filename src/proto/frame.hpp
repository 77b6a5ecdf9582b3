// One Cap'n Proto message as a shared, immutable array of words: cheap to copy, safe on any thread.
// Knows nothing of actors. from_bytes() checks sizes and the segment table before it allocates;
// reading a frame happens through view(), which sets the reader limits and turns kj exceptions into
// error values.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.hpp"
#include "proto/limits.hpp"

namespace dsec::proto {

/// errc::too_large for a message of more than `most` bytes, whatever its encoding.
base::result<void> check_message_size(std::size_t bytes, std::size_t most = max_message_bytes);

class frame {
 public:
  frame() = default;

  /// Copies one message from outside. errc::protocol if it is not exactly one well-formed message,
  /// errc::too_large over `most`.
  static base::result<frame> from_bytes(std::span<const std::byte> bytes,
                                        std::size_t most = max_message_bytes);
  /// The same of a Reply, under another id.
  static base::result<frame> from_reply(std::span<const std::byte> bytes, std::uint64_t id);

  /// The same of a message in Cap'n Proto's packed encoding; the limit is that of what it unpacks
  /// to.
  static base::result<frame> from_packed(std::span<const std::byte> bytes);

  /// Flattens a message that this process built.
  static frame from_builder(capnp::MessageBuilder& builder);

  /// The same words; `companion` lives as long as anybody holds them.
  [[nodiscard]] frame with(std::shared_ptr<const void> companion) const;

  [[nodiscard]] bool empty() const { return words_ == nullptr; }
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] kj::ArrayPtr<const capnp::word> words() const;
  /// In the packed encoding.
  [[nodiscard]] std::string packed() const;

 private:
  static frame of(kj::Array<capnp::word> words);

  std::shared_ptr<const kj::Array<capnp::word>> words_;
};

/// Reader options with the limits of limits.hpp for a message of `words`.
capnp::ReaderOptions reader_options(std::size_t words);

/// Runs `body` and turns a kj::Exception (malformed pointers, limits) into errc::protocol.
base::result<void> guarded(const std::function<void()>& body);

/// A frame whose root is Root, and the reader over it. Not thread-safe (traversal counting); make
/// one per use.
template <class Root>
class view {
 public:
  explicit view(frame f)
      : frame_(std::move(f)), reader_(frame_.words(), reader_options(frame_.words().size())) {}

  /// Calls fn(Root::Reader) and returns what it returns as result<>. fn may return result<T>, T or
  /// void.
  template <class F>
  auto read(F&& fn) {
    using returned = std::invoke_result_t<F, typename Root::Reader>;
    return read_as<returned>(std::forward<F>(fn));
  }

 private:
  template <class R>
  struct wrap {
    using type = base::result<R>;
  };
  template <class T>
  struct wrap<base::result<T>> {
    using type = base::result<T>;
  };

  template <class R, class F>
  typename wrap<R>::type read_as(F&& fn) {
    typename wrap<R>::type out{tl::unexpect, base::error{base::errc::internal, "not read", 0}};
    auto ok = guarded([&] {
      if constexpr (std::is_void_v<R>) {
        fn(reader_.template getRoot<Root>());
        out = {};
      } else {
        out = fn(reader_.template getRoot<Root>());
      }
    });
    if (!ok) return base::fail(std::move(ok).error());
    return out;
  }

  frame frame_;
  capnp::FlatArrayMessageReader reader_;
};

}  // namespace dsec::proto
