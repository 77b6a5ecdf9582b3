#include "fs/oci_layout.hpp"

#include <algorithm>
#include <set>

#include "base/sha256.hpp"
#include "fs/bounded_json.hpp"
#include "fs/files.hpp"
#include "fs/printable.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

#if defined(__x86_64__)
constexpr std::string_view own_architecture = "amd64";
#elif defined(__aarch64__)
constexpr std::string_view own_architecture = "arm64";
#else
#error "what OCI calls this architecture is to be added here"
#endif

bool runs_here(const oci_platform& p) {
  return p.os == "linux" && p.architecture == own_architecture;
}

std::string joined(const std::set<std::string>& names) {
  constexpr std::size_t most = 20;
  std::string out;
  std::size_t count = 0;
  for (const auto& name : names) {
    if (count++ == most) return out + ", ...";
    out += (out.empty() ? "" : ", ") + name;
  }
  return out.empty() ? "nothing" : out;
}

std::string tags_of(const std::vector<oci_descriptor>& manifests) {
  std::set<std::string> tags;
  for (const auto& m : manifests) {
    if (!m.reference.empty()) tags.insert(printable(m.reference));
  }
  return joined(tags);
}

class layout {
 public:
  explicit layout(const std::filesystem::path& directory) : directory_(directory) {}

  result<oci_image> image(std::string_view tag) const {
    DSEC_TRY(const auto index, read_index());
    DSEC_TRY(const auto tagged, with_tag(index, tag));
    DSEC_TRY(const auto chosen, choose(tagged, 1));
    DSEC_TRY(const auto text, blob(chosen, "manifest"));
    const auto what = name_of("manifest", chosen.digest);
    DSEC_TRY(auto manifest, parse_oci_manifest(text, what));
    return with_config(chosen, manifest, what);
  }

 private:
  static std::string name_of(const char* kind, const std::string& digest) {
    return std::string(kind) + " sha256:" + digest;
  }

  [[nodiscard]] std::filesystem::path file_of(const std::string& digest) const {
    return directory_ / "blobs" / "sha256" / digest;
  }

  [[nodiscard]] result<std::vector<oci_descriptor>> read_index() const {
    const auto version = directory_ / "oci-layout";
    auto said = read_file(version, max_json_bytes);
    if (!said && said.error().code == errc::not_found) {
      return fail(errc::invalid_argument,
                  directory_.string() + " is not an OCI layout: it has no file oci-layout");
    }
    if (!said) return fail(std::move(said).error());
    DSEC_CHECK(check_oci_layout(*said, version.string()));
    const auto file = directory_ / "index.json";
    DSEC_TRY(const auto text, read_file(file, max_json_bytes));
    return parse_oci_index(text, file.string());
  }

  /// A small blob, whole and checked.
  [[nodiscard]] result<std::string> blob(const oci_descriptor& d, const char* kind) const {
    const auto what = name_of(kind, d.digest);
    if (d.size > max_json_bytes) {
      return fail(errc::too_large, what + " has " + std::to_string(d.size) + " bytes, " +
                                       std::to_string(max_json_bytes) + " are read");
    }
    auto text = read_file(file_of(d.digest), max_json_bytes);
    if (!text && text.error().code == errc::not_found)
      return fail(errc::corrupt, what + " is missing: no file " + file_of(d.digest).string());
    if (!text) return fail(std::move(text).error());
    if (text->size() != d.size) {
      return fail(errc::corrupt, what + " has " + std::to_string(text->size()) +
                                     " bytes, its descriptor says " + std::to_string(d.size));
    }
    if (const auto found = base::sha256_of(*text); found != d.digest)
      return fail(errc::corrupt, what + " is damaged: its digest is sha256:" + found);
    return std::move(*text);
  }

  [[nodiscard]] result<std::vector<oci_descriptor>> with_tag(
      const std::vector<oci_descriptor>& index, std::string_view tag) const {
    if (index.empty()) return fail(errc::not_found, directory_.string() + " holds no image");
    if (tag.empty()) {
      std::set<std::string_view> tags;
      for (const auto& d : index) tags.insert(d.reference);
      if (tags.size() == 1) return index;
      return fail(errc::invalid_argument, directory_.string() +
                                              " holds several images; name one: " + "oci:" +
                                              directory_.string() + ":TAG with " + tags_of(index));
    }
    std::vector<oci_descriptor> out;
    std::ranges::copy_if(index, std::back_inserter(out),
                         [&](const oci_descriptor& d) { return d.reference == tag; });
    if (out.empty()) {
      return fail(errc::not_found, "no image '" + printable(tag) + "' in " + directory_.string() +
                                       "; there are: " + tags_of(index));
    }
    return out;
  }

  /// One manifest for this machine. A single one is taken as it is: its configuration tells.
  [[nodiscard]] result<oci_descriptor> choose(const std::vector<oci_descriptor>& list,
                                              int depth) const {
    const auto fit = own_image(list);
    if (!fit) {
      return fail(errc::unsupported, directory_.string() + " has no image for " +
                                         own_platform().describe() +
                                         "; there are: " + platforms_of(list));
    }
    if (!fit->is_index()) return *fit;
    if (depth >= max_oci_nesting) {
      return fail(errc::invalid_argument, directory_.string() +
                                              ": indexes lie in each other more " + "than " +
                                              std::to_string(max_oci_nesting) + " deep");
    }
    DSEC_TRY(const auto text, blob(*fit, "index"));
    DSEC_TRY(const auto inner, parse_oci_index(text, name_of("index", fit->digest)));
    return choose(inner, depth + 1);
  }

  [[nodiscard]] result<oci_image> with_config(const oci_descriptor& chosen,
                                              const oci_manifest& manifest,
                                              const std::string& what) const {
    DSEC_TRY(const auto text, blob(manifest.config, "configuration"));
    DSEC_TRY(auto config, parse_oci_config(text, name_of("configuration", manifest.config.digest)));
    if (!runs_here(config.platform)) {
      return fail(errc::unsupported, what + " is for " + config.platform.describe() +
                                         "; this machine is " + own_platform().describe());
    }
    if (config.diff_ids.size() != manifest.layers.size()) {
      return fail(errc::corrupt, what + " has " + std::to_string(manifest.layers.size()) +
                                     " layers, its configuration " +
                                     std::to_string(config.diff_ids.size()));
    }
    oci_image out{chosen.digest, std::move(config.config), {}};
    for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
      const auto& l = manifest.layers[i];
      out.layers.push_back(
          {file_of(l.blob.digest), l.packed, l.blob.size, l.blob.digest, config.diff_ids[i]});
    }
    return out;
  }

  const std::filesystem::path& directory_;
};

}  // namespace

oci_platform own_platform() {
  return {"linux", std::string(own_architecture), {}};
}

std::optional<oci_descriptor> own_image(const std::vector<oci_descriptor>& manifests) {
  for (const auto& d : manifests) {
    if (d.platform ? runs_here(*d.platform) : manifests.size() == 1) return d;
  }
  return std::nullopt;
}

std::string platforms_of(const std::vector<oci_descriptor>& manifests) {
  std::set<std::string> names;
  for (const auto& m : manifests) {
    if (m.platform) names.insert(m.platform->describe());
  }
  return joined(names);
}

result<oci_image> read_oci_image(const std::filesystem::path& directory, std::string_view tag) {
  return layout(directory).image(tag);
}

}  // namespace dsec::fs
