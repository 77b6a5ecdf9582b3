#include "fs/manifest.hpp"

#include <optional>

#include "fs/bounded_json.hpp"
#include "fs/files.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::result;
using nlohmann::json;

constexpr int format_version = 1;

tl::unexpected<base::error> corrupt(std::string_view file, std::string_view why) {
  return base::fail(errc::corrupt, "image manifest " + std::string(file) + " is damaged: " +
                                       std::string(why) + "; import the image again");
}

std::optional<std::string> text(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<std::uint64_t> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

}  // namespace

std::string encode_manifest(const image& image) {
  const json document{{"version", format_version},
                      {"kind", to_string(image.kind)},
                      {"name", image.name},
                      {"tag", image.tag},
                      {"digest", image.digest},
                      {"size_bytes", image.size_bytes},
                      {"created_unix_ms", image.created_unix_ms},
                      {"source", image.source},
                      {"fingerprint", image.fingerprint},
                      {"image", json::parse(to_json(image.config))}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

result<image> decode_manifest(std::string_view bytes, const image_name& expected,
                              std::string_view file) {
  const auto document = parse_bounded_json(bytes, "manifest");
  if (!document) return corrupt(file, document.error().message);
  if (!document->is_object()) return corrupt(file, "not an object");
  if (const auto v = number(*document, "version"); v && *v > format_version) {
    return base::fail(errc::unsupported,
                      "image manifest " + std::string(file) + " was written by a newer dsecd");
  } else if (!v || *v != format_version) {
    return corrupt(file, "no version");
  }
  if (text(*document, "kind") != std::string(to_string(expected.kind)) ||
      text(*document, "name") != expected.name || text(*document, "tag") != expected.tag) {
    return corrupt(file, "it is the manifest of another image");
  }
  const auto digest = text(*document, "digest");
  if (!digest || !is_digest(*digest)) return corrupt(file, "no digest");
  const auto size = number(*document, "size_bytes");
  const auto created = number(*document, "created_unix_ms");
  const auto source = text(*document, "source");
  const auto fingerprint = text(*document, "fingerprint");
  if (!size || !created || !source || !fingerprint) return corrupt(file, "a member is missing");
  const auto config = parse_image_config(document->value("image", json()).dump(), "image");
  if (!config) return corrupt(file, config.error().message);
  return image{expected.kind, expected.name, expected.tag, *digest,     *size,
               *created,      *config,       *source,      *fingerprint};
}

}  // namespace dsec::fs
