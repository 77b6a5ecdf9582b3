#include "base/ids.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/text.hpp"

namespace dsec::base {
namespace {

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_valid_id(std::string_view id) {
  if (id.empty() || id.size() > max_id_length) return false;
  if (!lower_or_digit(id.front()) || !lower_or_digit(id.back())) return false;
  return std::all_of(id.begin(), id.end(), [](char c) { return lower_or_digit(c) || c == '-'; });
}

std::string random_token(std::size_t bits) {
  static constexpr std::string_view alphabet = "abcdefghijklmnopqrstuvwxyz234567";
  std::vector<unsigned char> bytes((bits + 4) / 5);
  // getrandom(2) below 256 bytes neither fails nor is cut short once the pool is ready.
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  std::string token;
  for (const auto b : bytes) token += alphabet[b & 31U];
  return token;
}

std::string new_sandbox_id(std::string_view edge) {
  return std::string(edge) + "-" + random_token(80);
}

result<std::string> edge_of(std::string_view sandbox_id) {
  const auto dash = sandbox_id.rfind('-');
  if (!is_valid_id(sandbox_id) || dash == std::string_view::npos) {
    return fail(errc::invalid_argument,
                "'" + shown(sandbox_id, 80) + "' is not a sandbox id (expected EDGE-RANDOM)");
  }
  return std::string(sandbox_id.substr(0, dash));
}

bool is_valid_command_id(std::string_view id) {
  if (id.empty() || id.size() > 64) return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace dsec::base
