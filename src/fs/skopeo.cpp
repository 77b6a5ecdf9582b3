#include "fs/skopeo.hpp"

#include <linux/capability.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <vector>

#include "base/sha256.hpp"
#include "base/subprocess.hpp"
#include "fs/files.hpp"
#include "fs/oci_layout.hpp"
#include "fs/printable.hpp"
#include "fs/tool_environment.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

struct saying {
  std::string_view words;
  errc code;
};
// In skopeo's own words, most telling first.
constexpr std::array sayings{
    saying{"no space left on device", errc::io},
    saying{"file too large", errc::too_large},
    saying{"unauthorized", errc::unauthenticated},
    saying{"authentication required", errc::unauthenticated},
    saying{"denied", errc::permission_denied},
    saying{"manifest unknown", errc::not_found},
    saying{"name unknown", errc::not_found},
    saying{"not found", errc::not_found},
    saying{"no such host", errc::unavailable},
    saying{"connection refused", errc::unavailable},
    saying{"timeout", errc::unavailable},
    saying{"server gave http response", errc::unavailable},
    saying{"certificate", errc::unavailable},
    saying{"invalid reference format", errc::invalid_argument},
};
constexpr std::string_view registry_prefix = "docker://";
constexpr std::uint64_t small_files = 4U << 20U;  // manifests, the index

bool says(std::string_view text, std::string_view words) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  return std::ranges::search(text, words, same).begin() != text.end();
}

/// The last line, without time and level.
std::string reason(const std::string& errors) {
  auto text = errors;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  constexpr std::string_view begin = "msg=";
  if (const auto at = text.find(begin); at != std::string::npos)
    text = text.substr(at + begin.size());
  return printable(text, 1000);
}

bool is_registry(const skopeo_copy& wanted) {
  return wanted.from.starts_with(registry_prefix);
}

std::string hint(errc code, const skopeo_copy& wanted) {
  switch (code) {
    case errc::unauthenticated:
      return "; log in with 'skopeo login', or set REGISTRY_AUTH_FILE";
    case errc::unavailable:
      return wanted.insecure_registry ? "" : "; --insecure-registry is for registries without TLS";
    case errc::too_large:
      return "; the limit is import.max_mb";
    case errc::corrupt:
      // Of gzip's there are skopeos that lose the beginning (1.9.3, with an early pgzip).
      return is_registry(wanted) ? "" : "; decompress the archive first if it is compressed";
    default:
      return "";
  }
}

/// Files of others, such as credentials, may be read. Nothing else that root could do is needed.
std::vector<int> dropped_capabilities() {
  std::vector<int> out;
  for (int c = 0; ::prctl(PR_CAPBSET_READ, c) >= 0; ++c) {
    if (c != CAP_DAC_READ_SEARCH) out.push_back(c);
  }
  return out;
}

base::subprocess_spec specification(const skopeo_copy& wanted, std::vector<std::string> words) {
  base::subprocess_spec spec;
  spec.argv = std::move(words);
  spec.env = tool_environment(wanted.scratch);
  spec.own_pid_namespace = true;  // nobody else can be signalled
  for (const char* name : {"REGISTRY_AUTH_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"})
    pass_on(spec.env, name);
  spec.timeout = skopeo_timeout;
  spec.drop_capabilities = dropped_capabilities();
  spec.max_file_bytes = wanted.max_bytes;
  return spec;
}

base::error explain(const skopeo_copy& wanted, const std::string& errors) {
  const auto* const found =
      std::ranges::find_if(sayings, [&](const saying& s) { return says(errors, s.words); });
  const auto code = found == sayings.end() ? errc::corrupt : found->code;
  return {code,
          "skopeo could not copy " + printable(wanted.from) + ": " + reason(errors) +
              hint(code, wanted),
          code == errc::io ? ENOSPC : 0};
}

/// Its stdout.
result<std::string> run(const skopeo_copy& wanted, std::vector<std::string> words) {
  const auto done = base::run_subprocess(specification(wanted, std::move(words)));
  if (!done && done.error().code == errc::not_found)
    return fail(errc::unsupported, "skopeo is not installed: install the package skopeo");
  if (!done) return fail(done.error());
  if (done->status != 0) return fail(explain(wanted, done->errors));
  return done->out;
}

/// Without tag and digest.
std::string repository_of(std::string reference) {
  reference = reference.substr(0, reference.find('@'));
  const auto colon = reference.find(':', reference.rfind('/'));
  return reference.substr(0, colon);
}

result<std::string> inspect(const skopeo_copy& wanted, const std::string& reference) {
  std::vector<std::string> words{"skopeo", "inspect", "--raw"};
  if (wanted.insecure_registry) words.emplace_back("--tls-verify=false");
  words.push_back(reference);
  return run(wanted, std::move(words));
}

/// The size of the largest, once all of them together are no more than may be written.
result<std::uint64_t> check_sizes(const skopeo_copy& wanted, const oci_manifest& manifest) {
  std::uint64_t sum = manifest.config.size, largest = manifest.config.size;
  for (const auto& l : manifest.layers) {
    sum += l.blob.size;  // 512 of 2^50 at most
    largest = std::max(largest, l.blob.size);
  }
  if (sum <= wanted.max_bytes) return largest;
  return fail(errc::too_large, "the " + std::to_string(manifest.layers.size()) + " layers of " +
                                   printable(wanted.from) + " have " + std::to_string(sum) +
                                   " bytes" + hint(errc::too_large, wanted));
}

struct chosen_image {
  std::string reference;
  std::uint64_t largest_file = 0;  // that is written to copy it
};

/// The manifest that skopeo makes of an archive: it has read the layers, decompressing them where
/// need be, and says how large they will be. Nothing is written, but for an archive that is itself
/// compressed.
result<chosen_image> measure(const skopeo_copy& wanted) {
  DSEC_TRY(const auto text, inspect(wanted, wanted.from));
  DSEC_TRY(const auto manifest, parse_oci_manifest(text, "manifest of " + printable(wanted.from)));
  DSEC_CHECK(check_sizes(wanted, manifest));
  return chosen_image{wanted.from, wanted.max_bytes};
}

/// Reads manifests only. What is copied afterwards is named by its digest: the registry cannot give
/// another one than was looked at.
result<chosen_image> choose(const skopeo_copy& wanted) {
  const auto repository = repository_of(wanted.from);
  auto reference = wanted.from;
  for (int depth = 0; depth <= max_oci_nesting; ++depth) {
    DSEC_TRY(const auto text, inspect(wanted, reference));
    const auto digest = base::sha256_of(text);
    const auto what = "manifest sha256:" + digest + " of " + printable(wanted.from);
    if (const auto manifest = parse_oci_manifest(text, what)) {
      DSEC_TRY(const auto largest, check_sizes(wanted, *manifest));
      return chosen_image{repository + "@sha256:" + digest, largest};
    } else if (const auto index = parse_oci_index(text, what)) {
      const auto own = own_image(*index);
      if (!own) {
        return fail(errc::unsupported, printable(wanted.from) + " has no image for " +
                                           own_platform().describe() +
                                           "; there are: " + platforms_of(*index));
      }
      reference = repository + "@sha256:" + own->digest;
    } else {
      return fail(manifest.error());
    }
  }
  return fail(errc::invalid_argument, printable(wanted.from) +
                                          ": indexes lie in each other more than " +
                                          std::to_string(max_oci_nesting) + " deep");
}

}  // namespace

result<void> copy_by_skopeo(const skopeo_copy& wanted, const progress& tell) {
  tell("fetch", wanted.from);
  DSEC_TRY(const auto source, is_registry(wanted) ? choose(wanted) : measure(wanted));
  std::vector<std::string> words{"skopeo", "copy", "--quiet",
                                 // A saved image's layers need not be compressed to be read again.
                                 "--dest-oci-accept-uncompressed-layers"};
  if (wanted.insecure_registry) words.emplace_back("--src-tls-verify=false");
  words.push_back(source.reference);
  words.push_back("oci:" + wanted.layout.string() + ":" + std::string(skopeo_tag));
  auto bounded = wanted;
  bounded.max_bytes = std::min<std::uint64_t>(wanted.max_bytes, source.largest_file + small_files);
  DSEC_CHECK(run(bounded, std::move(words)));
  return {};
}

}  // namespace dsec::fs
