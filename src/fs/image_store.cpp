#include "fs/image_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>

#include "base/failpoint.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/nearest.hpp"
#include "base/unix_time.hpp"
#include "fs/bounded_json.hpp"
#include "fs/files.hpp"
#include "fs/manifest.hpp"
#include "fs/manifest_cache.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::array kinds{layer_kind::base, layer_kind::workspace, layer_kind::toolkit};
constexpr int store_lock_seconds = 120;
constexpr std::size_t names_in_message = 10;

std::filesystem::path manifests(const base::paths& paths, layer_kind kind) {
  return paths.images() / "manifests" / to_string(kind);
}

/// Names in a directory, sorted; a missing directory is an empty one.
result<std::vector<std::string>> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::end(it); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(base::from_errno("read directory " + directory.string(), error.value()));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

image_store::image_store(base::paths paths)
    : paths_(std::move(paths)), cache_(std::make_shared<manifest_cache>()) {}

std::filesystem::path image_store::blob(std::string_view digest) const {
  return paths_.images() / "blobs" / "sha256" / (std::string(digest) + ".erofs");
}

std::filesystem::path image_store::manifest_file(const image_name& name) const {
  return manifests(paths_, name.kind) / name.file_name();
}

result<void> image_store::prepare() const {
  DSEC_CHECK(make_private_directories(paths_.images() / "blobs" / "sha256"));
  DSEC_CHECK(make_private_directories(paths_.images() / "tmp"));
  DSEC_CHECK(make_private_directories(paths_.images() / "locks"));
  for (const auto kind : kinds) DSEC_CHECK(make_private_directories(manifests(paths_, kind)));
  return {};
}

result<image> image_store::load(const image_name& name) const {
  const auto file = manifest_file(name);
  DSEC_TRY(const auto text, read_file(file, max_json_bytes));
  return decode_manifest(text, name, file.string());
}

result<image> image_store::load_cached(const image_name& name) const {
  const auto file = manifest_file(name).string();
  struct stat st {};
  if (::lstat(file.c_str(), &st) != 0) return load(name);  // says why
  if (auto known = cache_->find(file, st)) return *std::move(known);
  auto read = load(name);
  if (read) cache_->put(file, st, *read);
  return read;
}

base::error image_store::not_found(const image_name& wanted) const {
  std::string message = "no " + wanted.describe();
  std::vector<std::string> same_kind;
  std::string elsewhere;
  if (const auto all = list()) {
    for (const auto& i : *all) {
      const image_name name{i.kind, i.name, i.tag};
      if (i.kind == wanted.kind) same_kind.push_back(name.reference());
      if (i.kind != wanted.kind && i.name == wanted.name && i.tag == wanted.tag)
        elsewhere = name.describe();
    }
  }
  if (const auto near = base::nearest(same_kind, wanted.reference()); !near.empty()) {
    message += "; did you mean '" + near + "'?";
  }
  if (!elsewhere.empty()) message += "; there is a " + elsewhere;
  if (same_kind.empty()) {
    message += "; there is no image of this kind yet, see 'dsecd image import --help'";
  } else {
    message += "; there are:";
    for (std::size_t i = 0; i < std::min(same_kind.size(), names_in_message); ++i)
      message += " " + same_kind[i];
    if (same_kind.size() > names_in_message) {
      message += " and " + std::to_string(same_kind.size() - names_in_message) + " more";
    }
  }
  return {errc::not_found, std::move(message), 0};
}

result<image> image_store::find(layer_kind kind, std::string_view reference) const {
  DSEC_TRY(const auto name, parse_image_name(kind, reference));
  auto found = load_cached(name);
  if (!found) {
    if (found.error().code == errc::not_found) return fail(not_found(name));
    return found;
  }
  const auto file = blob(found->digest);
  struct stat st {};
  if (::stat(file.c_str(), &st) != 0 ||
      static_cast<std::uint64_t>(st.st_size) != found->size_bytes) {
    return fail(errc::corrupt, "the blob of " + name.describe() + " (" + file.string() +
                                   ") is missing or has another size; import the image again");
  }
  return found;
}

result<std::vector<image>> image_store::list(std::vector<base::error>* damaged) const {
  std::vector<image> images;
  for (const auto kind : kinds) {
    DSEC_TRY(const auto names, names_in(manifests(paths_, kind)));
    for (const auto& file_name : names) {
      auto loaded = parse_manifest_file_name(kind, file_name).and_then([&](const image_name& n) {
        return load_cached(n);
      });
      if (loaded) {
        images.push_back(std::move(*loaded));
      } else if (loaded.error().code != errc::not_found &&
                 damaged != nullptr) {  // not_found: removed meanwhile
        damaged->push_back(std::move(loaded).error());
      }
    }
  }
  return images;
}

result<void> image_store::remove(layer_kind kind, std::string_view reference) {
  DSEC_TRY(const auto name, parse_image_name(kind, reference));
  DSEC_CHECK(prepare());
  DSEC_TRY(const auto lock, lock_file(paths_.images() / "locks" / "store", store_lock_seconds));
  const auto file = manifest_file(name);
  if (::unlink(file.c_str()) != 0) {
    if (errno == ENOENT) return fail(not_found(name));
    return base::fail_errno("remove " + file.string());
  }
  DSEC_CHECK(sync_path(file.parent_path()));
  base::log::info("image removed", {{"image", name.describe()}});
  DSEC_CHECK(base::failpoint::check("image_remove.manifest_gone"));
  return drop_unnamed_blobs();
}

result<void> image_store::drop_unnamed_blobs() {
  std::vector<base::error> damaged;
  DSEC_TRY(const auto images, list(&damaged));
  if (!damaged.empty()) {  // which blob a damaged manifest names is not known
    base::log::warn("unnamed blobs kept", {{"why", damaged.front().message}});
    return {};
  }
  std::set<std::string> named;
  for (const auto& i : images) named.insert(blob(i.digest).filename().string());
  const auto directory = paths_.images() / "blobs" / "sha256";
  DSEC_TRY(const auto files, names_in(directory));
  for (const auto& file : files) {
    if (named.contains(file)) continue;
    // A sandbox that runs on it keeps the file by its mount.
    if (::unlink((directory / file).c_str()) != 0 && errno != ENOENT) {
      return base::fail_errno("remove " + (directory / file).string());
    }
    base::log::info("blob removed", {{"blob", file}});
  }
  return {};
}

result<void> image_store::verify(std::string_view digest) const {
  const auto file = blob(digest);
  DSEC_TRY(const auto actual, sha256_of_file(file));
  if (actual != digest)
    return fail(errc::corrupt, "blob " + file.string() + " is damaged: its digest is " + actual);
  return {};
}

result<void> image_store::take_blob(const std::filesystem::path& erofs, const std::string& digest) {
  const auto target = blob(digest);
  if (const auto present = verify(digest)) {
    ::unlink(erofs.c_str());
    return {};
  } else if (present.error().code != errc::not_found) {
    base::log::warn("blob replaced", {{"why", present.error().message}});
  }
  return move_file_power(erofs, target, 0400);
}

result<void> image_store::write_manifest(const image_name& name, std::string_view text) {
  const auto scratch = paths_.images() / "tmp" / (base::random_token(80) + ".json");
  auto written = base::failpoint::check("image_add.blob_taken").and_then([&] {
    return write_file_power(manifest_file(name), scratch, text);
  });
  if (!written) ::unlink(scratch.c_str());
  return written;
}

result<image> image_store::add(layer_kind kind, std::string_view reference,
                               const std::filesystem::path& erofs, image_config config,
                               std::string source, std::string fingerprint) {
  DSEC_TRY(const auto name, parse_image_name(kind, reference));
  DSEC_CHECK(prepare());
  DSEC_TRY(auto digest, sha256_of_file(erofs));
  struct stat st {};
  if (::stat(erofs.c_str(), &st) != 0) return base::fail_errno("stat " + erofs.string());
  image added{kind,
              name.name,
              name.tag,
              std::move(digest),
              static_cast<std::uint64_t>(st.st_size),
              base::unix_ms(std::chrono::system_clock::now()),
              std::move(config),
              std::move(source),
              std::move(fingerprint)};
  const auto manifest = encode_manifest(added);
  if (manifest.size() > max_json_bytes) {
    return fail(errc::too_large,
                name.describe() + ": its configuration is too large for a manifest");
  }

  DSEC_TRY(const auto lock, lock_file(paths_.images() / "locks" / "store", store_lock_seconds));
  DSEC_CHECK(take_blob(erofs, added.digest));
  if (auto written = write_manifest(name, manifest); !written) {
    if (const auto dropped = drop_unnamed_blobs(); !dropped) {
      base::log::warn("blob kept", {{"digest", added.digest}, {"why", dropped.error().message}});
    }
    return fail(std::move(written).error());
  }
  base::log::info("image added", {{"image", name.describe()}, {"digest", added.digest}});
  DSEC_CHECK(base::failpoint::check("image_add.manifest_written"));
  DSEC_CHECK(drop_unnamed_blobs());
  return added;
}

}  // namespace dsec::fs
