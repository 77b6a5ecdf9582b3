// Source: debian:SUITE+PACKAGE,… built with mmdebstrap from the mirrors that this machine's own apt
// uses. Needs root and takes a minute or so. What it leaves out: package lists and caches, manual
// pages, documentation (copyright files stay), translations, and everything that names the building
// machine (mirror, resolver, host name).

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/sha256.hpp"
#include "base/subprocess.hpp"
#include "fs/apt_sources.hpp"
#include "fs/files.hpp"
#include "fs/printable.hpp"
#include "fs/source.hpp"
#include "fs/tool_environment.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::chrono::minutes build_timeout{30};
constexpr std::chrono::seconds apt_timeout{60};
constexpr std::size_t max_packages = 1000;

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool valid_suite(std::string_view suite) {
  return !suite.empty() && suite.size() <= 40 && suite.front() >= 'a' && suite.front() <= 'z' &&
         std::ranges::all_of(suite, [](char c) { return lower_or_digit(c) || c == '-'; });
}

/// NAME or NAME=VERSION (Debian policy 5.6.1, 5.6.12). Nothing that apt or mmdebstrap would take
/// for a pattern, a file or, with a '-' at the end, a removal.
bool valid_package(std::string_view package) {
  const auto name = package.substr(0, package.find('='));
  const auto version = package.substr(std::min(package.size(), name.size() + 1));
  if (name.size() < 2 || package.size() > 200 || !lower_or_digit(name.front()) ||
      name.back() == '-')
    return false;
  if (package.size() > name.size() && version.empty()) return false;
  return std::ranges::all_of(
             name, [](char c) { return lower_or_digit(c) || c == '+' || c == '-' || c == '.'; }) &&
         std::ranges::all_of(version, [](char c) {
           return lower_or_digit(c) || (c >= 'A' && c <= 'Z') ||
                  std::string_view("+-.:~").find(c) != std::string_view::npos;
         });
}

result<std::string> output_of(std::vector<std::string> argv, const std::filesystem::path& scratch) {
  base::subprocess_spec spec;
  spec.argv = std::move(argv);
  spec.env = tool_environment(scratch);
  spec.timeout = apt_timeout;
  auto done = base::run_subprocess(spec);
  if (!done && done.error().code == errc::not_found) {
    return fail(errc::unsupported,
                spec.argv[0] + " is not installed: debian: sources need the package apt");
  }
  if (!done) return fail(std::move(done).error());
  if (done->status != 0) return fail(errc::internal, spec.argv[0] + " failed: " + done->errors);
  return std::move(done->out);
}

/// The lines of mmdebstrap's and apt's own errors, for a message.
std::string error_lines(const std::string& log) {
  std::string out;
  for (std::size_t begin = 0; begin < log.size();) {
    const auto end = std::min(log.find('\n', begin), log.size());
    const auto line = log.substr(begin, end - begin);
    if (line.starts_with("E: ") || line.starts_with("Err:"))
      out += (out.empty() ? "" : "; ") + line;
    begin = end + 1;
  }
  return out.empty() ? log.substr(log.size() - std::min<std::size_t>(log.size(), 500))
                     : out.substr(0, 1500);
}

errc code_of(const std::string& log) {
  const auto has = [&](const char* text) { return log.find(text) != std::string::npos; };
  if (has("No space left on device")) return errc::io;
  if (has("Unable to locate package") || has("has no installation candidate") ||
      has("was not found")) {
    return errc::not_found;
  }
  if (has("Could not resolve") || has("Could not connect") || has("Failed to fetch") ||
      has("Connection failed") || has("does not have a Release file")) {
    return errc::unavailable;
  }
  return errc::internal;
}

class debian_source final : public image_source {
 public:
  debian_source(std::string suite, std::vector<std::string> packages)
      : suite_(std::move(suite)), packages_(std::move(packages)) {}

  result<std::string> fingerprint() override {
    std::string text = "debian 1\n" + suite_;
    for (const auto& p : packages_) text += "\n" + p;
    return base::sha256_of(text);
  }
  [[nodiscard]] bool pinned() const override { return false; }

  result<std::filesystem::path> materialise(const std::filesystem::path& scratch,
                                            const progress& tell) override {
    if (::geteuid() != 0)
      return fail(errc::permission_denied, "debian: sources can only be built by root");
    auto root = scratch / "root";
    DSEC_TRY(const auto argv, command(scratch, root));
    base::subprocess_spec spec;
    spec.argv = argv;
    DSEC_CHECK(make_private_directories(scratch / "tmp"));
    spec.env = tool_environment(scratch / "tmp");
    spec.timeout = build_timeout;
    spec.own_pid_namespace = true;
    spec.on_stderr_line = [&](std::string_view line) { tell("build", printable(line)); };
    auto done = base::run_subprocess(spec);
    if (!done && done.error().code == errc::not_found) {
      return fail(errc::unsupported, "mmdebstrap is not installed: install the package mmdebstrap");
    }
    if (!done) return fail(std::move(done).error());
    if (done->status != 0) {
      return fail(code_of(done->errors),
                  "mmdebstrap could not build debian:" + suite_ + ": " + error_lines(done->errors));
    }
    DSEC_CHECK(forget_builder(root));
    return root;
  }

  [[nodiscard]] image_config default_config() const override {
    image_config config;
    config.env = {{"PATH", std::string(tool_path)}, {"LANG", "C.UTF-8"}};
    return config;
  }

 private:
  result<std::vector<std::string>> command(const std::filesystem::path& scratch,
                                           const std::filesystem::path& root) const {
    DSEC_TRY(const auto listed, output_of({"apt-get", "indextargets", "--format",
                                           std::string(apt_target_format), "Created-By: Packages"},
                                          scratch));
    DSEC_TRY(const auto os_release, read_file("/etc/os-release", 64U << 10U));
    const auto sources = sources_for(parse_apt_targets(listed), suite_, codename_of(os_release));
    if (sources.empty()) {
      return fail(errc::unavailable, "no package source of this machine serves debian:" + suite_ +
                                         "; see /etc/apt/sources.list.d and run apt-get update");
    }
    DSEC_TRY(const auto dump, output_of({"apt-config", "dump"}, scratch));
    const auto options = scratch / "apt.conf";
    DSEC_CHECK(write_file_power(options, scratch / "apt.conf.new", network_options(dump)));

    std::vector<std::string> argv{"mmdebstrap", "--mode=root", "--variant=minbase",
                                  "--format=directory", "--aptopt=" + options.string()};
    // unsafe-io: no fsync per file; the tree is thrown away and its image is synced as a whole.
    for (const char* option :
         {"force-unsafe-io", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*",
          "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/doc/*",
          "path-include=/usr/share/doc/*/copyright"}) {
      argv.push_back(std::string("--dpkgopt=") + option);
    }
    for (const auto& p : packages_) argv.push_back("--include=" + p);
    argv.insert(argv.end(), {suite_, root.string()});
    argv.insert(argv.end(), sources.begin(), sources.end());
    return argv;
  }

  /// Drops what mmdebstrap took from this machine, and gives the root what every container needs
  /// instead.
  static result<void> forget_builder(const std::filesystem::path& root) {
    for (const char* file :
         {"etc/apt/apt.conf.d/99mmdebstrap", "etc/resolv.conf", "etc/hostname"}) {
      if (::unlink((root / file).c_str()) != 0 && errno != ENOENT)
        return base::fail_errno("remove " + (root / file).string());
    }
    DSEC_CHECK(replace(root / "etc/apt/sources.list",
                       "# The image names no mirror: it must not depend on where it was built.\n"));
    // Without this file the C library asks a name server for "localhost".
    return replace(root / "etc/hosts",
                   "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
  }

  static result<void> replace(const std::filesystem::path& file, std::string_view text) {
    DSEC_CHECK(write_file_power(file, file.string() + ".new", text));
    if (::chmod(file.c_str(), 0644) != 0) return base::fail_errno("chmod " + file.string());
    return {};
  }

  std::string suite_;
  std::vector<std::string> packages_;
};

}  // namespace

result<source_ptr> open_debian_source(std::string_view text, const source_options&) {
  const auto plus = text.find('+');
  const auto suite = text.substr(0, plus);
  if (!valid_suite(suite)) {
    return fail(errc::invalid_argument,
                "a Debian source is debian:SUITE or debian:SUITE+PACKAGE,PACKAGE");
  }
  std::vector<std::string> packages;
  if (plus != std::string_view::npos) {
    auto rest = text.substr(plus + 1);
    for (;;) {
      const auto comma = rest.find(',');
      const auto package = rest.substr(0, comma);
      if (!valid_package(package) || packages.size() >= max_packages) {
        return fail(errc::invalid_argument,
                    "'" + printable(package) + "' is not the name of a Debian package");
      }
      packages.emplace_back(package);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return std::make_unique<debian_source>(std::string(suite), std::move(packages));
}

}  // namespace dsec::fs
