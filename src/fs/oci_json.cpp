#include "fs/oci_json.hpp"

#include <array>

#include "fs/bounded_json.hpp"
#include "fs/files.hpp"
#include "fs/json_place.hpp"
#include "fs/printable.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::result;
using nlohmann::json;
using unpack::compression;

constexpr std::string_view sha256_prefix = "sha256:";
constexpr std::uint64_t max_blob_bytes = 1ULL << 50U;

struct layer_type {
  std::string_view media_type;
  compression packed;
};
constexpr std::array layer_types{
    layer_type{"application/vnd.oci.image.layer.v1.tar", compression::none},
    layer_type{"application/vnd.oci.image.layer.v1.tar+gzip", compression::gzip},
    layer_type{"application/vnd.oci.image.layer.v1.tar+zstd", compression::zstd},
    layer_type{"application/vnd.oci.image.layer.nondistributable.v1.tar", compression::none},
    layer_type{"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", compression::gzip},
    layer_type{"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", compression::zstd},
    layer_type{"application/vnd.docker.image.rootfs.diff.tar", compression::none},
    layer_type{"application/vnd.docker.image.rootfs.diff.tar.gzip", compression::gzip},
    layer_type{"application/vnd.docker.image.rootfs.diff.tar.zstd", compression::zstd},
    layer_type{"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", compression::gzip},
};
constexpr std::array<std::string_view, 2> index_types{
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json"};

result<std::string> text_of(const json& object, const char* key, const json_place& at) {
  constexpr std::size_t max_text = 4096;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::string();
  if (!found->is_string()) return at.key(key).fail("must be a string");
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > max_text) return at.key(key).fail("is too long", errc::too_large);
  return text;
}

result<std::string> digest_of(const std::string& text, const json_place& at) {
  if (!text.starts_with(sha256_prefix)) {
    const bool other = text.find(':') != std::string::npos;
    return at.fail("is not a sha256 digest: '" + printable(text) + "'",
                   other ? errc::unsupported : errc::invalid_argument);
  }
  auto hex = text.substr(sha256_prefix.size());
  if (!is_digest(hex)) return at.fail("is not a sha256 digest: '" + printable(text) + "'");
  return hex;
}

result<oci_platform> platform_of(const json& object, const json_place& at) {
  if (!object.is_object()) return at.fail("must be an object");
  oci_platform p;
  DSEC_TRY(p.os, text_of(object, "os", at));
  DSEC_TRY(p.architecture, text_of(object, "architecture", at));
  DSEC_TRY(p.variant, text_of(object, "variant", at));
  return p;
}

result<oci_descriptor> descriptor_of(const json& object, const json_place& at) {
  if (!object.is_object()) return at.fail("must be an object");
  oci_descriptor d;
  DSEC_TRY(d.media_type, text_of(object, "mediaType", at));
  DSEC_TRY(const auto digest, text_of(object, "digest", at));
  DSEC_TRY(d.digest, digest_of(digest, at.key("digest")));
  const auto size = object.find("size");
  if (size == object.end() || !size->is_number_unsigned())
    return at.key("size").fail("must be a number of bytes");
  d.size = size->get<std::uint64_t>();
  if (d.size > max_blob_bytes) return at.key("size").fail("is too large", errc::too_large);
  if (const auto p = object.find("platform"); p != object.end() && !p->is_null()) {
    DSEC_TRY(d.platform, platform_of(*p, at.key("platform")));
  }
  if (const auto a = object.find("annotations"); a != object.end() && !a->is_null()) {
    if (!a->is_object()) return at.key("annotations").fail("must be an object");
    DSEC_TRY(d.reference, text_of(*a, "org.opencontainers.image.ref.name", at.key("annotations")));
  }
  return d;
}

/// A list that must be there.
result<const json*> list_of(const json& object, const char* key, std::size_t most,
                            const json_place& at) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return at.key(key).fail("must be a list");
  if (found->size() > most) {
    return at.key(key).fail("has more than " + std::to_string(most) + " entries", errc::too_large);
  }
  return &*found;
}

result<void> check_schema_version(const json& document, const json_place& at) {
  const auto version = document.find("schemaVersion");
  if (version == document.end() || !version->is_number_unsigned())
    return at.key("schemaVersion").fail("must be 2");
  if (version->get<std::uint64_t>() != 2)
    return at.key("schemaVersion").fail("is not 2", errc::unsupported);
  return {};
}

result<oci_layer> layer_of(const json& object, const json_place& at) {
  oci_layer l;
  DSEC_TRY(l.blob, descriptor_of(object, at));
  for (const auto& type : layer_types) {
    if (type.media_type == l.blob.media_type) {
      l.packed = type.packed;
      return l;
    }
  }
  return at.key("mediaType")
      .fail("'" + printable(l.blob.media_type) +
                "' is not a layer that can be unpacked: tar, tar+gzip or tar+zstd",
            errc::unsupported);
}

}  // namespace

std::string oci_platform::describe() const {
  return printable(os + "/" + architecture + (variant.empty() ? "" : "/" + variant));
}

bool oci_descriptor::is_index() const {
  return media_type == index_types[0] || media_type == index_types[1];
}

result<std::vector<oci_descriptor>> parse_oci_index(std::string_view text, std::string_view what) {
  DSEC_TRY(const auto document, parse_json_object(text, what));
  const json_place at(what);
  DSEC_CHECK(check_schema_version(document, at));
  DSEC_TRY(const auto* list, list_of(document, "manifests", max_oci_manifests, at));
  std::vector<oci_descriptor> out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    DSEC_TRY(auto d, descriptor_of((*list)[i], at.key("manifests").index(i)));
    out.push_back(std::move(d));
  }
  return out;
}

result<oci_manifest> parse_oci_manifest(std::string_view text, std::string_view what) {
  DSEC_TRY(const auto document, parse_json_object(text, what));
  const json_place at(what);
  DSEC_CHECK(check_schema_version(document, at));
  oci_manifest m;
  DSEC_TRY(m.config, descriptor_of(document.value("config", json()), at.key("config")));
  DSEC_TRY(const auto* list, list_of(document, "layers", max_oci_layers, at));
  for (std::size_t i = 0; i < list->size(); ++i) {
    DSEC_TRY(auto l, layer_of((*list)[i], at.key("layers").index(i)));
    m.layers.push_back(std::move(l));
  }
  return m;
}

result<oci_image_config> parse_oci_config(std::string_view text, std::string_view what) {
  DSEC_TRY(const auto document, parse_json_object(text, what));
  const json_place at(what);
  oci_image_config out;
  DSEC_TRY(out.platform, platform_of(document, at));
  const auto root = document.find("rootfs");
  if (root == document.end() || !root->is_object())
    return at.key("rootfs").fail("must be an object");
  const auto ids_at = at.key("rootfs");
  DSEC_TRY(const auto* ids, list_of(*root, "diff_ids", max_oci_layers, ids_at));
  for (std::size_t i = 0; i < ids->size(); ++i) {
    const auto id_at = ids_at.key("diff_ids").index(i);
    if (!(*ids)[i].is_string()) return id_at.fail("must be a string");
    DSEC_TRY(auto hex, digest_of((*ids)[i].get<std::string>(), id_at));
    out.diff_ids.push_back(std::move(hex));
  }
  // Without one the text would be taken for the inner object.
  if (document.contains("config")) {
    DSEC_TRY(out.config, parse_image_config(text, what));
  }
  return out;
}

result<void> check_oci_layout(std::string_view text, std::string_view what) {
  DSEC_TRY(const auto document, parse_json_object(text, what));
  DSEC_TRY(const auto version, text_of(document, "imageLayoutVersion", json_place(what)));
  if (version.starts_with("1.")) return {};
  return json_place(what)
      .key("imageLayoutVersion")
      .fail("'" + printable(version) + "' is not a version that is understood: 1.0.0",
            errc::unsupported);
}

}  // namespace dsec::fs
