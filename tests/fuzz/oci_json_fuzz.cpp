// The JSON of OCI images comes from anywhere. Whatever of it is accepted keeps the promises that
// the rest builds on: digests are digests, counts are bounded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fs/files.hpp"
#include "fs/oci_json.hpp"
#include "fs/oci_layout.hpp"
#include "fs/unpack/plan.hpp"

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsec::fs;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = parse_oci_index(text, "index")) {
    must(index->size() <= max_oci_manifests);
    for (const auto& d : *index) must(is_digest(d.digest));
    static_cast<void>(platforms_of(*index));
  }
  if (const auto manifest = parse_oci_manifest(text, "manifest")) {
    must(manifest->layers.size() <= max_oci_layers && is_digest(manifest->config.digest));
    for (const auto& l : manifest->layers) must(is_digest(l.blob.digest));
  }
  if (const auto config = parse_oci_config(text, "configuration")) {
    must(config->diff_ids.size() <= max_oci_layers);
    for (const auto& id : config->diff_ids) must(is_digest(id));
  }
  static_cast<void>(check_oci_layout(text, "oci-layout"));
  if (const auto report = unpack::parse_report(text)) must(report->findings.size() <= 64);
  return 0;
}
