#include "fs/unpack/layer_stream.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dsec::fs::unpack {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::size_t piece = 256U << 10U;

std::string name_of(const layer& l) {
  return "layer sha256:" + l.digest;
}

}  // namespace

result<base::unique_fd> open_blob(const layer& l) {
  base::unique_fd fd(
      ::open(l.blob.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT)
    return fail(errc::corrupt, name_of(l) + " is missing: no file " + l.blob.string());
  if (!fd && errno == ELOOP)
    return fail(errc::corrupt, name_of(l) + ": " + l.blob.string() + " is a symbolic link");
  if (!fd) return base::fail_errno("open " + l.blob.string());
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return base::fail_errno("stat " + l.blob.string());
  if (!S_ISREG(st.st_mode))
    return fail(errc::corrupt, name_of(l) + ": " + l.blob.string() + " is not a regular file");
  if (static_cast<std::uint64_t>(st.st_size) != l.size) {
    return fail(errc::corrupt, name_of(l) + " has " + std::to_string(st.st_size) +
                                   " bytes, its manifest says " + std::to_string(l.size));
  }
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return fd;
}

layer_stream::layer_stream(base::unique_fd blob, const layer& l, const limits& most,
                           std::uint64_t& bytes_left)
    : layer_(l), most_(most), bytes_left_(bytes_left), blob_(std::move(blob)), buffer_(piece) {}

result<std::string_view> layer_stream::read_blob() {
  ssize_t n = 0;
  do n = ::read(blob_.get(), buffer_.data(), buffer_.size());
  while (n < 0 && errno == EINTR);
  if (n < 0) return base::fail_errno("read " + layer_.blob.string());
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(n));
  blob_digest_.update(bytes);
  blob_bytes_ += bytes.size();
  return bytes;
}

la_ssize_t layer_stream::give_blob(archive* a, void* self, const void** bytes) {
  auto& stream = *static_cast<layer_stream*>(self);
  auto read = stream.read_blob();
  if (!read) {
    stream.read_error_ = std::move(read).error();
    ::archive_set_error(a, stream.read_error_->sys_errno, "cannot be read");
    return -1;
  }
  *bytes = read->data();
  return static_cast<la_ssize_t>(read->size());
}

/// "raw" hands out whatever the filter gives.
result<void> layer_stream::begin() {
  decompressor_.reset(::archive_read_new());
  auto* a = decompressor_.get();
  ::archive_read_support_format_raw(a);
  ::archive_read_support_format_empty(a);
  if (layer_.packed == compression::gzip) ::archive_read_support_filter_gzip(a);
  if (layer_.packed == compression::zstd) ::archive_read_support_filter_zstd(a);
  archive_entry* entry = nullptr;
  if (::archive_read_open(a, this, nullptr, give_blob, nullptr) != ARCHIVE_OK)
    return fail(read_error_ ? *read_error_ : error_of(a, name_of(layer_)));
  const auto status = ::archive_read_next_header(a, &entry);
  ended_ = status == ARCHIVE_EOF;  // not a single byte
  if (ended_ || status == ARCHIVE_OK) return {};
  return fail(read_error_ ? *read_error_ : error_of(a, name_of(layer_)));
}

result<std::string_view> layer_stream::decompressed() {
  if (!decompressor_) DSEC_CHECK(begin());
  if (ended_) return std::string_view{};
  const void* bytes = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  for (;;) {
    const auto status = ::archive_read_data_block(decompressor_.get(), &bytes, &size, &offset);
    ended_ = status == ARCHIVE_EOF;
    if (ended_) return std::string_view{};
    if (status != ARCHIVE_OK)
      return fail(read_error_ ? *read_error_ : error_of(decompressor_.get(), name_of(layer_)));
    if (size > 0) return std::string_view(static_cast<const char*>(bytes), size);
  }
}

result<void> layer_stream::count(std::size_t bytes) {
  tar_bytes_ += bytes;
  if (bytes > bytes_left_) {
    return fail(errc::too_large, name_of(layer_) + ": the image's tars hold more than " +
                                     std::to_string(most_.bytes) +
                                     " bytes, the limit (import.max_mb)");
  }
  bytes_left_ -= bytes;
  if (tar_bytes_ > most_.ratio_counts_from && tar_bytes_ / most_.ratio > layer_.size) {
    return fail(errc::too_large, name_of(layer_) + " grows to more than " +
                                     std::to_string(most_.ratio) +
                                     " times its size, the limit (import.max_ratio)");
  }
  return {};
}

result<std::string_view> layer_stream::next() {
  // Without compression there is nothing for libarchive to do.
  DSEC_TRY(const auto bytes, layer_.packed == compression::none ? read_blob() : decompressed());
  tar_digest_.update(bytes);
  DSEC_CHECK(count(bytes.size()));
  return bytes;
}

result<void> layer_stream::finish() {
  for (;;) {
    DSEC_TRY(const auto bytes, next());
    if (bytes.empty()) break;
  }
  DSEC_CHECK(check_blob());
  if (const auto found = tar_digest_.finish(); found != layer_.diff_id) {
    return fail(errc::corrupt, name_of(layer_) + " unpacks to sha256:" + found +
                                   ", the image's configuration says sha256:" + layer_.diff_id);
  }
  return {};
}

result<void> layer_stream::check_blob() {
  if (std::exchange(blob_checked_, true)) return {};
  // What follows the compressed data belongs to the blob's digest all the same.
  for (;;) {
    DSEC_TRY(const auto bytes, read_blob());
    if (bytes.empty()) break;
  }
  if (blob_bytes_ != layer_.size) {
    return fail(errc::corrupt, name_of(layer_) + " gave " + std::to_string(blob_bytes_) +
                                   " bytes, its manifest says " + std::to_string(layer_.size));
  }
  if (const auto found = blob_digest_.finish(); found != layer_.digest)
    return fail(errc::corrupt, name_of(layer_) + " is damaged: its digest is sha256:" + found);
  return {};
}

}  // namespace dsec::fs::unpack
