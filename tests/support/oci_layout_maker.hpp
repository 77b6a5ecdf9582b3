// OCI image layouts for tests: blobs by their digests, and whatever JSON a test wants over them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "support/temp_dir.hpp"

namespace dsec::tests {

class oci_layout_maker {
 public:
  using json = nlohmann::json;

  explicit oci_layout_maker(std::filesystem::path directory) : directory_(std::move(directory)) {
    write(directory_ / "oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
    index({});
  }

  /// Its descriptor.
  json blob(const std::string& bytes, const std::string& media_type) {
    const auto digest = base::sha256_of(bytes);
    write(file(digest), bytes);
    return {{"mediaType", media_type}, {"digest", "sha256:" + digest}, {"size", bytes.size()}};
  }
  /// An image of uncompressed tars; the descriptor of its manifest.
  json image(const std::vector<std::string>& tars, json config = json::object(),
             const std::string& architecture = own()) {
    json layers = json::array();
    json diff_ids = json::array();
    for (const auto& tar : tars) {
      layers.push_back(blob(tar, "application/vnd.oci.image.layer.v1.tar"));
      diff_ids.push_back(layers.back()["digest"]);
    }
    const json document{{"os", "linux"},
                        {"architecture", architecture},
                        {"rootfs", {{"type", "layers"}, {"diff_ids", diff_ids}}},
                        {"config", std::move(config)}};
    return manifest(blob(document.dump(), "application/vnd.oci.image.config.v1+json"), layers);
  }
  json manifest(const json& config, const json& layers) {
    const json m{{"schemaVersion", 2}, {"config", config}, {"layers", layers}};
    return blob(m.dump(), "application/vnd.oci.image.manifest.v1+json");
  }
  json nested(const std::vector<json>& manifests) {
    const json i{{"schemaVersion", 2}, {"manifests", manifests}};
    return blob(i.dump(), "application/vnd.oci.image.index.v1+json");
  }
  void index(const std::vector<json>& manifests) {
    write(directory_ / "index.json", json{{"schemaVersion", 2}, {"manifests", manifests}}.dump());
  }

  static json tagged(json descriptor, const std::string& tag) {
    descriptor["annotations"] = {{"org.opencontainers.image.ref.name", tag}};
    return descriptor;
  }
  static json for_platform(json descriptor, const std::string& architecture,
                           const std::string& os = "linux") {
    descriptor["platform"] = {{"os", os}, {"architecture", architecture}};
    return descriptor;
  }
  static std::string own() {
#if defined(__x86_64__)
    return "amd64";
#else
    return "arm64";
#endif
  }

  [[nodiscard]] std::filesystem::path file(std::string digest) const {
    if (digest.starts_with("sha256:")) digest.erase(0, 7);
    return directory_ / "blobs/sha256" / digest;
  }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
};

}  // namespace dsec::tests
