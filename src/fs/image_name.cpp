#include "fs/image_name.hpp"

#include <algorithm>
#include <array>

#include "fs/printable.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;

struct kind_name {
  layer_kind kind;
  std::string_view name;
};
constexpr std::array kinds{kind_name{layer_kind::base, "base"},
                           kind_name{layer_kind::workspace, "workspace"},
                           kind_name{layer_kind::toolkit, "toolkit"}};

constexpr std::string_view default_tag = "latest";
constexpr std::string_view manifest_suffix = ".json";

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool punctuation(char c) {
  return c == '.' || c == '_' || c == '-';
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= max_image_name_bytes && lower_or_digit(name.front()) &&
         std::ranges::all_of(name, [](char c) { return lower_or_digit(c) || punctuation(c); });
}

bool valid_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= max_image_name_bytes && std::ranges::all_of(tag, [](char c) {
    return lower_or_digit(c) || (c >= 'A' && c <= 'Z') || punctuation(c);
  });
}

}  // namespace

std::string_view to_string(layer_kind k) {
  return std::ranges::find(kinds, k, &kind_name::kind)->name;
}

base::result<layer_kind> parse_layer_kind(std::string_view text) {
  if (const auto* found = std::ranges::find(kinds, text, &kind_name::name); found != kinds.end()) {
    return found->kind;
  }
  return fail(errc::invalid_argument,
              "unknown kind of image '" + printable(text) + "'; it is base, workspace or toolkit");
}

std::string image_name::describe() const {
  return std::string(to_string(kind)) + " image " + reference();
}

base::result<image_name> parse_image_name(layer_kind kind, std::string_view reference) {
  const auto colon = reference.find(':');
  const auto name = reference.substr(0, colon);
  const auto tag = colon == std::string_view::npos ? default_tag : reference.substr(colon + 1);
  if (!valid_name(name)) {
    return fail(errc::invalid_argument,
                "image name '" + printable(reference) +
                    "' is not valid: use a-z, 0-9, '.', '_', '-', a letter or digit "
                    "first, at most 100 characters");
  }
  if (!valid_tag(tag)) {
    return fail(errc::invalid_argument,
                "tag of image '" + printable(reference) +
                    "' is not valid: use letters, digits, '.', '_', '-', at most 100 "
                    "characters");
  }
  return image_name{kind, std::string(name), std::string(tag)};
}

base::result<image_name> parse_manifest_file_name(layer_kind kind, std::string_view file_name) {
  const auto at = file_name.find('@');
  if (at == std::string_view::npos || !file_name.ends_with(manifest_suffix)) {
    return fail(errc::corrupt, "'" + printable(file_name) + "' is not the name of a manifest");
  }
  const auto stem = file_name.substr(0, file_name.size() - manifest_suffix.size());
  image_name name{kind, std::string(stem.substr(0, at)),
                  std::string(stem.substr(std::min(at + 1, stem.size())))};
  if (!valid_name(name.name) || !valid_tag(name.tag)) {
    return fail(errc::corrupt, "'" + printable(file_name) + "' is not the name of a manifest");
  }
  return name;
}

}  // namespace dsec::fs
