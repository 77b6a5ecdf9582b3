// dsecd image import|ls|rm: works on the state directory, whether or not a daemon runs on it.
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
};
using options_ptr = std::shared_ptr<options>;

base::result<void> import(const base::config& c, const options& o) {
  DSEC_TRY(const auto kind, fs::parse_layer_kind(o.kind));
  std::optional<std::filesystem::path> image_config;
  if (!o.config_json.empty()) image_config = o.config_json;
  const auto tell = [](std::string_view step, std::string_view detail) {
    std::cerr << std::left << std::setw(8) << step << " " << detail << "\n";
  };
  DSEC_TRY(const auto image,
           fs::import_image(base::paths(c.state), kind, o.name, o.source, image_config, tell));
  std::cout << fs::to_string(image.kind) << " " << image.name << ":" << image.tag
            << " sha256:" << image.digest << " " << image.size_bytes / 1024 << " KiB\n";
  return {};
}

base::result<void> list(const base::config& c) {
  DSEC_TRY(const auto images, fs::image_store(base::paths(c.state)).list());
  std::cout << std::left << std::setw(10) << "KIND" << std::setw(40) << "NAME" << std::setw(14)
            << "DIGEST"
            << "KIB\n";
  for (const auto& i : images) {
    std::cout << std::left << std::setw(10) << fs::to_string(i.kind) << std::setw(40)
              << (i.name + ":" + i.tag) << std::setw(14) << i.digest.substr(0, 12)
              << i.size_bytes / 1024 << "\n";
  }
  return {};
}

base::result<void> remove(const base::config& c, const options& o) {
  DSEC_TRY(const auto kind, fs::parse_layer_kind(o.kind));
  return fs::image_store(base::paths(c.state)).remove(kind, o.name);
}

CLI::App* add_verb(CLI::App& image, context& shared, const std::string& name,
                   const std::string& help,
                   std::function<base::result<void>(const base::config&)> action) {
  auto* verb = image.add_subcommand(name, help);
  verb->add_option("--config-file", shared.config_file, "dsecd's TOML file");
  verb->add_option("--state", shared.state, "state directory (default /var/lib/dsec)");
  verb->callback([&shared, action = std::move(action)] {
    shared.chosen = [&shared, action] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      const auto done = action(*c);
      return done ? 0 : report(done.error());
    };
  });
  return verb;
}

}  // namespace

void add_image(CLI::App& app, context& shared) {
  auto* image = app.add_subcommand("image", "make, list and remove image layers");
  image->require_subcommand(1);
  auto o = std::make_shared<options>();
  const char* kinds = "base, workspace or toolkit";

  auto* make =
      add_verb(*image, shared, "import", "make a layer of a directory or of Debian packages",
               [o](const base::config& c) { return import(c, *o); });
  make->footer(
      "Examples:\n"
      "  dsecd image import debian-python:12 debian:bookworm+python3,git --kind base\n"
      "  dsecd image import project:2024-06-01 ./checkout --kind workspace --config image.json\n");
  make->add_option("name", o->name, "NAME:TAG")->required();
  make->add_option("source", o->source, "a directory, or debian:SUITE+PACKAGE,PACKAGE")->required();
  make->add_option("--kind", o->kind, kinds)->required();
  make->add_option(
      "--config", o->config_json,
      "image configuration, JSON in OCI form (default: /.dsec/image.json inside the source)");

  add_verb(*image, shared, "ls", "list images", list);

  auto* rm = add_verb(*image, shared, "rm", "remove an image",
                      [o](const base::config& c) { return remove(c, *o); });
  rm->add_option("name", o->name, "NAME:TAG")->required();
  rm->add_option("--kind", o->kind, kinds)->required();
}

}  // namespace dsec::cli
