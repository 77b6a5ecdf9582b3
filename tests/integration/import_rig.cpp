#include "import_rig.hpp"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

#include "base/log.hpp"
#include "base/subprocess.hpp"

namespace dsec::tests {
namespace {

struct stat look_at(const std::filesystem::path& file) {
  struct stat st {};
  if (::lstat(file.c_str(), &st) != 0) throw std::runtime_error("lstat " + file.string());
  return st;
}

std::set<std::string> names(const std::filesystem::path& root) {
  std::set<std::string> out{"."};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    out.insert(entry.path().native().substr(root.native().size() + 1));
  }
  return out;
}

/// Everything of one file that an image must keep, as text. `links` numbers inodes in order of
/// appearance.
std::string describe(const std::filesystem::path& file, std::map<ino_t, std::size_t>& links) {
  const auto st = look_at(file);
  std::string out = "mode " + std::to_string(st.st_mode) + " owner " + std::to_string(st.st_uid) +
                    ":" + std::to_string(st.st_gid) + " mtime " +
                    std::to_string(st.st_mtim.tv_sec) + "." + std::to_string(st.st_mtim.tv_nsec);
  if (!S_ISDIR(st.st_mode)) {
    out += " links " + std::to_string(st.st_nlink) + " inode " +
           std::to_string(links.emplace(st.st_ino, links.size()).first->second);
  }
  if (S_ISREG(st.st_mode)) out += " size " + std::to_string(st.st_size) + " content " + slurp(file);
  if (S_ISLNK(st.st_mode)) out += " to " + std::filesystem::read_symlink(file).string();
  for (const auto& [name, value] : attributes(file)) {
    if (!name.starts_with("trusted.")) out += " " + name + "=" + value;
  }
  return out;
}

}  // namespace

std::string import_missing() {
  if (::geteuid() != 0) return "needs root";
  if (!base::find_program("mkfs.erofs")) return "mkfs.erofs is not installed";
  return {};
}

import_rig::import_rig() {
  base::log::set_level(base::log::level::error);
  std::filesystem::create_directory(tree);
  const char* path = std::getenv("PATH");
  old_path_ = path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin";
}

import_rig::~import_rig() {
  ::setenv("PATH", old_path_.c_str(), 1);
}

base::result<fs::image> import_rig::import(const std::string& reference, const std::string& source,
                                           std::optional<std::filesystem::path> config,
                                           fs::layer_kind kind) {
  return fs::import_image(paths, kind, reference, source, config,
                          [this](std::string_view step, std::string_view detail) {
                            const std::scoped_lock hold(mutex_);
                            told_.push_back(std::string(step) + ": " + std::string(detail));
                          });
}

std::vector<std::string> import_rig::told() {
  const std::scoped_lock hold(mutex_);
  return told_;
}

void import_rig::stand_in(const std::string& tool, const std::string& script) {
  write(dir / "bin" / tool, "#!/bin/sh\n" + script + "\n", 0755);
  ::setenv("PATH", ((dir / "bin").string() + ":" + old_path_).c_str(), 1);
}

void import_rig::stand_in_apt() {
  stand_in("apt-get", "echo 'http://mirror.test/debian bookworm bookworm main no'");
  stand_in("apt-config", "echo 'Acquire::Retries \"3\";'");
}

std::vector<std::string> import_rig::leftovers() const {
  std::vector<std::string> out;
  const auto tmp = paths.images() / "tmp";
  if (!std::filesystem::exists(tmp)) return out;
  for (const auto& entry : std::filesystem::directory_iterator(tmp))
    out.push_back(entry.path().filename());
  return out;
}

std::size_t import_rig::blobs() const {
  const auto begin = std::filesystem::directory_iterator(paths.images() / "blobs" / "sha256");
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

mounted_image::mounted_image(const std::filesystem::path& blob) {
  std::filesystem::create_directory(root_);
  if (::mount(blob.c_str(), root_.c_str(), "erofs", MS_RDONLY, nullptr) == 0) return;
  // Kernels before 6.12 mount block devices only.
  base::subprocess_spec loop;
  loop.argv = {"mount", "-t", "erofs", "-o", "loop,ro", blob.string(), root_.string()};
  loop.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  loop.timeout = std::chrono::seconds(60);
  const auto done = base::run_subprocess(loop);
  if (!done || done->status != 0) {
    throw std::runtime_error("mount " + blob.string() + ": " +
                             (done ? done->errors : done.error().to_string()));
  }
}

mounted_image::~mounted_image() {
  ::umount2(root_.c_str(), MNT_DETACH);
}

std::vector<std::pair<std::string, std::string>> attributes(const std::filesystem::path& file) {
  std::vector<char> list(65536);
  const auto length = ::llistxattr(file.c_str(), list.data(), list.size());
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name = list.data(); name < list.data() + std::max<ssize_t>(length, 0);
       name += std::strlen(name) + 1) {
    std::vector<char> value(65536);
    const auto size = ::lgetxattr(file.c_str(), name, value.data(), value.size());
    out.emplace_back(
        name, std::string(value.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))));
  }
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> differences(const std::filesystem::path& original,
                                     const std::filesystem::path& copy,
                                     const std::vector<std::string>& except) {
  std::vector<std::string> out;
  auto expected = names(original);
  for (const auto& name : except) expected.erase(name);
  const auto actual = names(copy);
  std::map<ino_t, std::size_t> original_links;
  std::map<ino_t, std::size_t> copy_links;
  for (const auto& name : actual) {
    if (!expected.contains(name)) out.push_back("not in the original: " + name);
  }
  for (const auto& name : expected) {
    if (!actual.contains(name)) {
      out.push_back("missing: " + name);
      continue;
    }
    const auto a = describe(original / name, original_links);
    const auto b = describe(copy / name, copy_links);
    if (a != b) out.push_back(name + ": " + a.substr(0, 300) + " became " + b.substr(0, 300));
  }
  return out;
}

}  // namespace dsec::tests
