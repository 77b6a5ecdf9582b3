// The tar of one layer, read out of its blob: decompressed, with the digests of both and the limits
// kept as the bytes go by. Blocking; one thread. Whoever reads it believes nothing before finish()
// has agreed. Fails with corrupt (size, digest, compression), too_large (names the limit), io.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/sha256.hpp"
#include "base/unique_fd.hpp"
#include "fs/unpack/archive.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs::unpack {

/// A regular file of the size that was promised; no link, nothing that blocks.
base::result<base::unique_fd> open_blob(const layer& l);

class layer_stream {
 public:
  /// `bytes_left` counts down over all layers; it must outlive the stream.
  layer_stream(base::unique_fd blob, const layer& l, const limits& most, std::uint64_t& bytes_left);
  layer_stream(const layer_stream&) = delete;
  layer_stream& operator=(const layer_stream&) = delete;

  /// The next bytes of the tar, valid until the next call; empty at its end.
  base::result<std::string_view> next();
  /// Reads whatever is left of both and compares them with what was promised.
  base::result<void> finish();
  /// Reads what is left of the blob, whatever came of its tar, and compares its digest. A second
  /// call says nothing more.
  base::result<void> check_blob();
  /// Read so far.
  [[nodiscard]] std::uint64_t tar_bytes() const { return tar_bytes_; }

 private:
  static la_ssize_t give_blob(archive* a, void* self, const void** bytes);
  base::result<std::string_view> read_blob();
  base::result<void> begin();
  base::result<std::string_view> decompressed();
  base::result<void> count(std::size_t bytes);

  const layer& layer_;
  const limits& most_;
  std::uint64_t& bytes_left_;
  base::unique_fd blob_;
  std::vector<char> buffer_;
  reader decompressor_;
  bool ended_ = false;
  std::optional<base::error> read_error_;  // of the callback, for which libarchive has no place
  base::sha256 blob_digest_;
  base::sha256 tar_digest_;
  std::uint64_t blob_bytes_ = 0;
  std::uint64_t tar_bytes_ = 0;
  bool blob_checked_ = false;
};

}  // namespace dsec::fs::unpack
