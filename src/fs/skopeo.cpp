#include "fs/skopeo.hpp"

#include <linux/capability.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <vector>

#include "base/subprocess.hpp"
#include "fs/bounded_json.hpp"
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
constexpr std::string_view other_platform = "no image found in";

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

std::string hint(errc code, bool insecure) {
  switch (code) {
    case errc::unauthenticated:
      return "; log in with 'skopeo login', or set REGISTRY_AUTH_FILE";
    case errc::unavailable:
      return insecure ? "" : "; --insecure-registry is for registries without TLS";
    case errc::too_large:
      return "; the limit is import.max_mb";
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
  spec.max_file_bytes = wanted.max_file_bytes;
  return spec;
}

/// What the registry has instead, for the message.
std::string platforms(const skopeo_copy& wanted) {
  std::vector<std::string> words{"skopeo", "inspect", "--raw"};
  if (wanted.insecure_registry) words.emplace_back("--tls-verify=false");
  words.push_back(wanted.from);
  const auto done = base::run_subprocess(specification(wanted, std::move(words)));
  if (!done || done->status != 0) return "others";
  const auto index = parse_oci_index(done->out, "index");
  return index ? platforms_of(*index) : "others";
}

base::error explain(const skopeo_copy& wanted, const std::string& errors) {
  if (says(errors, other_platform)) {
    return {errc::unsupported,
            printable(wanted.from) + " has no image for " + own_platform().describe() +
                "; there are: " + platforms(wanted),
            0};
  }
  const auto* const found =
      std::ranges::find_if(sayings, [&](const saying& s) { return says(errors, s.words); });
  const auto code = found == sayings.end() ? errc::corrupt : found->code;
  return {code,
          "skopeo could not copy " + printable(wanted.from) + ": " + reason(errors) +
              hint(code, wanted.insecure_registry),
          code == errc::io ? ENOSPC : 0};
}

}  // namespace

result<void> copy_by_skopeo(const skopeo_copy& wanted, const progress& tell) {
  std::vector<std::string> words{"skopeo", "copy", "--quiet",
                                 // A saved image's layers need not be compressed to be read again.
                                 "--dest-oci-accept-uncompressed-layers"};
  if (wanted.insecure_registry) words.emplace_back("--src-tls-verify=false");
  words.push_back(wanted.from);
  words.push_back("oci:" + wanted.layout.string() + ":" + std::string(skopeo_tag));
  tell("fetch", wanted.from);
  const auto done = base::run_subprocess(specification(wanted, std::move(words)));
  if (!done && done.error().code == errc::not_found)
    return fail(errc::unsupported, "skopeo is not installed: install the package skopeo");
  if (!done) return fail(done.error());
  if (done->status != 0) return fail(explain(wanted, done->errors));
  return {};
}

}  // namespace dsec::fs
