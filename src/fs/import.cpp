#include "fs/import.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/failpoint.hpp"
#include "base/sha256.hpp"
#include "base/unix_time.hpp"
#include "fs/bounded_json.hpp"
#include "fs/erofs.hpp"
#include "fs/files.hpp"
#include "fs/staging.hpp"
#include "fs/tree_scan.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;
using base::unique_fd;

constexpr int name_lock_seconds = 3600;  // longer than any import may take
constexpr const char* config_inside = ".dsec/image.json";

/// The tree is not trusted: no link is followed out of it (or at all) and nothing special is
/// opened.
result<std::optional<std::string>> read_config_inside(const std::filesystem::path& tree) {
  const auto name = tree / config_inside;
  const unique_fd root(::open(tree.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return base::fail_errno("open directory " + tree.string());
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const unique_fd file(
      static_cast<int>(::syscall(SYS_openat2, root.get(), config_inside, &how, sizeof how)));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file && errno == ELOOP)
    return fail(errc::invalid_argument, name.string() + ": symbolic links are not followed");
  if (!file) return base::fail_errno("open " + name.string());
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return base::fail_errno("stat " + name.string());
  if (!S_ISREG(st.st_mode))
    return fail(errc::invalid_argument, name.string() + " is not a regular file");
  DSEC_TRY(auto text, read_all(file.get(), max_json_bytes, name));
  return std::optional(std::move(text));
}

result<image_config> choose_config(const std::optional<image_config>& given,
                                   const std::filesystem::path& tree, const image_source& source) {
  if (given) return *given;
  if (auto own = source.own_config()) return *std::move(own);
  DSEC_TRY(const auto inside, read_config_inside(tree));
  if (inside) return parse_image_config(*inside, (tree / config_inside).string());
  return source.default_config();
}

/// Writing the image into the tree that it is made from would never end.
result<void> check_outside(const std::filesystem::path& tree, const std::filesystem::path& images) {
  std::error_code error;
  const auto target = std::filesystem::canonical(images, error);
  if (error) return fail(base::from_errno("state directory " + images.string(), error.value()));
  if (std::ranges::mismatch(tree, target).in1 == tree.end()) {
    return fail(errc::invalid_argument,
                "source " + tree.string() + " contains the image store " + target.string());
  }
  return {};
}

result<tree_summary> scan(const std::filesystem::path& tree, const progress& tell) {
  DSEC_TRY(auto summary, scan_tree(tree));
  if (!summary.excluded.empty()) {
    tell("scan", "left out " + std::to_string(summary.devices) + " device nodes and " +
                     std::to_string(summary.sockets) + " sockets");
  }
  return summary;
}

result<void> convert(const std::filesystem::path& tree, const std::filesystem::path& target,
                     const progress& tell) {
  DSEC_TRY(const auto before, scan(tree, tell));
  tell("convert", std::to_string(before.entries) + " files, " +
                      std::to_string(before.image_bytes >> 20U) + " MiB");
  DSEC_CHECK(make_erofs(tree, before, target));
  // What was checked must be what was converted.
  DSEC_TRY(const auto after, scan_tree(tree));
  if (after.fingerprint != before.fingerprint) {
    return fail(errc::unavailable,
                tree.string() + " changed while it was being read; import it again");
  }
  return {};
}

/// The image that is there, when importing again would give the same one. Sources that are not
/// pinned have to have been built since `waiting_since`: by the import that this one waited for.
std::optional<image> reusable(const image_store& store, const image_name& name,
                              const image_source& source, const std::string& fingerprint,
                              std::uint64_t waiting_since) {
  auto present = store.find(name.kind, name.reference());
  if (!present || present->fingerprint != fingerprint) return std::nullopt;
  const bool just_built = present->created_unix_ms >= waiting_since;
  if (!just_built && !(source.pinned() && store.verify(present->digest))) return std::nullopt;
  return *std::move(present);
}

}  // namespace

result<image> import_image(const base::paths& paths, layer_kind kind, std::string_view reference,
                           std::string_view source_text,
                           const std::optional<std::filesystem::path>& config_file,
                           const progress& tell, const source_options& options) {
  const auto started = base::unix_ms(std::chrono::system_clock::now());
  DSEC_TRY(const auto name, parse_image_name(kind, reference));
  DSEC_TRY(const auto source, open_source(source_text, options));
  std::optional<image_config> given;
  if (config_file) {
    DSEC_TRY(const auto text, read_file(*config_file, max_json_bytes));
    DSEC_TRY(given, parse_image_config(text, config_file->string()));
  }

  image_store store(paths);
  DSEC_CHECK(store.prepare());
  DSEC_TRY(const auto swept, staging::sweep(paths));
  if (swept > 0)
    tell("clean", "removed what " + std::to_string(swept) + " unfinished imports left");

  bool waited = false;
  const auto lock_name =
      paths.images() / "locks" / (std::string(to_string(kind)) + "-" + name.name + "@" + name.tag);
  DSEC_TRY(const auto lock, lock_file(lock_name, name_lock_seconds, &waited));
  DSEC_TRY(const auto of_source, source->fingerprint());
  const auto fingerprint = base::sha256_of(of_source + "\n" + std::to_string(conversion_version) +
                                           "\n" + (given ? to_json(*given) : std::string()));
  if (auto present = reusable(store, name, *source, fingerprint, waited ? started : UINT64_MAX)) {
    tell("done", name.describe() + " is up to date");
    return *std::move(present);
  }

  DSEC_TRY(const auto stage, staging::make(paths));
  DSEC_CHECK(base::failpoint::check("import.staged"));
  DSEC_TRY(const auto tree, source->materialise(stage.directory(), tell));
  DSEC_CHECK(base::failpoint::check("import.built"));
  if (tree.native().rfind(stage.directory().native(), 0) != 0)
    DSEC_CHECK(check_outside(tree, paths.images()));
  DSEC_TRY(auto config, choose_config(given, tree, *source));
  const auto blob = stage.directory() / "image.erofs";
  DSEC_CHECK(convert(tree, blob, tell));
  DSEC_CHECK(base::failpoint::check("import.converted"));
  tell("store", name.describe());
  return store.add(kind, reference, blob, std::move(config), std::string(source_text), fingerprint);
}

}  // namespace dsec::fs
