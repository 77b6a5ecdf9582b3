// dsecd image import|ls|rm: works on the state directory, whether or not a daemon runs on it.
#include <array>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/cli.hpp"
#include "fs/image_store.hpp"
#include "fs/import.hpp"

namespace dsec::cli {
namespace {

struct options {
  std::string name, source, kind, config_json;
  bool insecure_registry = false;
};
using options_ptr = std::shared_ptr<options>;

base::result<void> import(const base::config& c, const options& o) {
  DSEC_TRY(const auto kind, fs::parse_layer_kind(o.kind));
  std::optional<std::filesystem::path> image_config;
  if (!o.config_json.empty()) image_config = o.config_json;
  const auto tell = [](std::string_view step, std::string_view detail) {
    std::cerr << std::left << std::setw(8) << step << " " << detail << "\n";
  };
  const fs::source_options from{
      {std::uint64_t{c.import.max_mb} << 20U, c.import.max_entries, c.import.max_ratio},
      o.insecure_registry};
  DSEC_TRY(const auto image, fs::import_image(base::paths(c.state), kind, o.name, o.source,
                                              image_config, tell, from));
  std::cout << fs::to_string(image.kind) << " " << image.name << ":" << image.tag
            << " sha256:" << image.digest << " " << image.size_bytes / 1024 << " KiB\n";
  return {};
}

std::string day(std::uint64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc)};
}

/// Whole images first; a damaged one is told on stderr and is an error.
base::result<void> list(const base::config& c) {
  std::vector<base::error> damaged;
  DSEC_TRY(const auto images, fs::image_store(base::paths(c.state)).list(&damaged));
  const auto line = [](auto&&... fields) {
    constexpr std::array widths{10, 36, 14, 10, 12};
    std::size_t at = 0;
    ((std::cout << std::left << std::setw(widths[at++]) << fields), ...);
  };
  line("KIND", "NAME", "DIGEST", "KIB", "CREATED");
  std::cout << "SOURCE\n";
  for (const auto& i : images) {
    line(fs::to_string(i.kind), i.name + ":" + i.tag, i.digest.substr(0, 12), i.size_bytes / 1024,
         day(i.created_unix_ms));
    std::cout << i.source << "\n";
  }
  for (const auto& e : damaged) std::cerr << e.message << "\n";
  if (damaged.empty()) return {};
  return base::fail(base::errc::corrupt, std::to_string(damaged.size()) +
                                             " damaged images; 'dsecd image rm' them or import "
                                             "them again");
}

base::result<void> remove(const base::config& c, const options& o) {
  DSEC_TRY(const auto kind, fs::parse_layer_kind(o.kind));
  return fs::image_store(base::paths(c.state)).remove(kind, o.name);
}

CLI::App* add_verb(CLI::App& image, context& shared, const std::string& name,
                   const std::string& help,
                   std::function<base::result<void>(const base::config&)> action) {
  auto* verb = image.add_subcommand(name, help);
  verb->add_option("--config-file", shared.config_file,
                   "dsecd's TOML file, for [import]; not --config, which is the image's");
  verb->add_option("--state", shared.state, "state directory (default /var/lib/dsec)");
  on_chosen(*verb, shared, std::move(action));
  return verb;
}

}  // namespace

void add_image(CLI::App& app, context& shared) {
  auto* image = app.add_subcommand("image", "make, list and remove image layers");
  image->require_subcommand(1);
  image->footer("Examples:\n  dsecd image ls\n  dsecd image import --help\n");
  auto o = std::make_shared<options>();
  const char* kinds = "base, workspace or toolkit";

  auto* make = add_verb(*image, shared, "import",
                        "make a layer of a directory, a container image or Debian packages",
                        [o](const base::config& c) { return import(c, *o); });
  make->footer(
      "Examples:\n"
      "  dsecd image import debian-python:12 debian:bookworm+python3,git --kind base\n"
      "  dsecd image import project:2024-06-01 ./checkout --kind workspace --config image.json\n"
      "  dsecd image import alpine:3.20 docker://docker.io/library/alpine:3.20 --kind base\n"
      "  dsecd image import mine:1 docker://127.0.0.1:5000/mine:1 --kind base --insecure-registry\n"
      "  dsecd image import mine:1 oci:./layout:1 --kind base\n"
      "  dsecd image import mine:1 docker-archive:./saved.tar --kind base\n");
  make->add_option("name", o->name, "NAME:TAG")->required();
  make->add_option(
          "source", o->source,
          "a directory, debian:SUITE+PACKAGE,PACKAGE, docker://REFERENCE, oci:DIRECTORY[:TAG] "
          "or docker-archive:FILE")
      ->required();
  make->add_option("--kind", o->kind, kinds)->required();
  make->add_option("--config", o->config_json,
                   "image configuration, JSON in OCI form (default: the image's own, or "
                   "/.dsec/image.json inside "
                   "the source)");
  make->add_flag("--insecure-registry", o->insecure_registry,
                 "docker:// also without TLS, or with a certificate that nobody vouches for");

  add_verb(*image, shared, "ls", "list images", list)
      ->footer("Examples:\n  dsecd image ls\n  dsecd image ls --state /srv/dsec\n");

  auto* rm = add_verb(*image, shared, "rm", "remove an image",
                      [o](const base::config& c) { return remove(c, *o); });
  rm->footer("Examples:\n  dsecd image rm project:2024-06-01 --kind workspace\n");
  rm->add_option("name", o->name, "NAME:TAG")->required();
  rm->add_option("--kind", o->kind, kinds)->required();
}

}  // namespace dsec::cli
