// What dsecd and its unpacking program say to each other: the plan travels as arguments, the report
// comes back on stdout. Pure; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dsec::fs::unpack {

enum class compression : std::uint8_t { none, gzip, zstd };

struct layer {
  std::filesystem::path blob;
  compression packed = compression::none;
  std::uint64_t size = 0;  // of the blob
  std::string digest;      // hex of the blob's SHA-256
  std::string diff_id;     // hex of its tar's
};

/// Over all layers of an image, but for the ratio.
struct limits {
  std::uint64_t bytes = 32ULL << 30U;  // of tars, and of the files in them
  std::uint64_t entries = 2'000'000;   // of tars
  std::uint32_t ratio = 200;           // tar to blob, of one layer
  /// A tar this small may be as well compressed as it likes.
  std::uint64_t ratio_counts_from = 16ULL << 20U;
};

struct plan {
  std::filesystem::path root;  // an empty directory
  limits most;
  std::vector<layer> layers;  // bottom first
};

struct report {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> findings;  // what was left out, a line each
};

/// Everything after the program's name.
std::vector<std::string> arguments_of(const plan& p);
base::result<plan> parse_arguments(const std::vector<std::string>& arguments);

std::string to_json(const base::result<report>& outcome);
/// What the program said, or its error. The text comes from a program that reads hostile bytes.
base::result<report> parse_report(std::string_view text);

}  // namespace dsec::fs::unpack
