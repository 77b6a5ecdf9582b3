// Which package sources this machine uses, as apt itself reports them, turned into lines for a new
// root of some suite. No mirror is named in our code. Pure; any thread. The text comes from this
// machine's own apt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsec::fs {

/// The format that parse_apt_targets reads: `apt-get indextargets --format <this> "Created-By:
/// Packages"`.
inline constexpr std::string_view apt_target_format =
    "$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT) $(TRUSTED)";

struct apt_target {
  std::string uri, release, codename, component;
  bool trusted = false;  // the operator switched signatures off for it
};

std::vector<apt_target> parse_apt_targets(std::string_view text);

/// sources.list lines for `suite`, its updates and its security suite. When this machine has no
/// source of that suite, the sources of its own (`host_codename`) with the suite put in its place.
std::vector<std::string> sources_for(const std::vector<apt_target>& targets, std::string_view suite,
                                     std::string_view host_codename);

/// What of `apt-config dump` a new root needs while it is built: proxies, retries, certificates,
/// date checks.
std::string network_options(std::string_view apt_config_dump);

/// Value of VERSION_CODENAME in os-release(5) text; empty without one.
std::string codename_of(std::string_view os_release);

}  // namespace dsec::fs
