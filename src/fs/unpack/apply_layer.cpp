#include "fs/unpack/apply_layer.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "fs/printable.hpp"
#include "fs/unpack/archive.hpp"
#include "fs/unpack/entry_path.hpp"
#include "fs/unpack/findings.hpp"
#include "fs/unpack/layer_stream.hpp"
#include "fs/unpack/tree_writer.hpp"

namespace dsec::fs::unpack {
namespace {

using base::errc;
using base::fail;
using base::result;
using base::unique_fd;

constexpr std::size_t block = 512;
constexpr la_int64_t max_id =
    65'535;  // what a sandbox can show, as for directories (tree_scan.hpp)

/// Over all layers of the image.
struct account {
  limits most;
  std::uint64_t tar_bytes_left = 0;
  report told;
  findings left_out;
  std::unordered_set<std::string> devices;  // paths where one was left out
};

class layer_reader {
 public:
  layer_reader(layer_stream& stream, tree_writer& tree, account& a)
      : stream_(stream), tree_(tree), account_(a), tar_(::archive_read_new()) {}

  result<void> run() {
    auto* a = tar_.get();
    ::archive_read_support_format_tar(a);
    ::archive_read_support_format_empty(a);
    if (::archive_read_open(a, this, nullptr, give, nullptr) != ARCHIVE_OK) return failure();
    for (;;) {
      archive_entry* entry = nullptr;
      const auto status = ::archive_read_next_header(a, &entry);
      if (status == ARCHIVE_EOF) break;
      DSEC_CHECK(check(status));
      DSEC_CHECK(one(entry));
    }
    DSEC_CHECK(tree_.leave());
    DSEC_CHECK(stream_.finish());
    if (padded_ && content_end_ > stream_.tar_bytes())
      return fail(errc::corrupt, "its tar ends in the middle of a file");
    return {};
  }

 private:
  static la_ssize_t give(archive* a, void* self, const void** bytes) {
    auto& reader = *static_cast<layer_reader*>(self);
    auto next = reader.stream_.next();
    if (!next) {
      reader.stream_error_ = std::move(next).error();
      ::archive_set_error(a, reader.stream_error_->sys_errno, "cannot be read");
      return -1;
    }
    if (next->empty()) *next = reader.padding();
    *bytes = next->data();
    return static_cast<la_ssize_t>(next->size());
  }

  /// There are writers that forget the end of the last block, and Go does not mind. Whether only
  /// padding was missing is looked at in the end.
  std::string_view padding() {
    static constexpr std::array<char, block> zeros{};
    if (std::exchange(padded_, true)) return {};
    return {zeros.data(), missing(stream_.tar_bytes())};
  }
  static std::size_t missing(std::uint64_t bytes) { return (block - bytes % block) % block; }

  tl::unexpected<base::error> failure() {
    return fail(stream_error_ ? *stream_error_ : error_of(tar_.get(), "its tar"));
  }

  /// In the C locale names that are not ASCII come as the bytes they are, with a warning that they
  /// cannot be converted. Any other warning means that something of the entry was lost.
  result<void> check(int status) {
    if (status == ARCHIVE_OK) return {};
    if (status != ARCHIVE_WARN || stream_error_) return failure();
    const char* text = ::archive_error_string(tar_.get());
    const std::string_view warning = text != nullptr ? text : "";
    return warning.find("can't be converted") != std::string_view::npos ? result<void>()
                                                                        : failure();
  }

  result<void> one(archive_entry* entry) {
    if (++account_.told.entries > account_.most.entries) {
      return fail(errc::too_large, "the image has more than " +
                                       std::to_string(account_.most.entries) +
                                       " entries, the limit (import.max_entries)");
    }
    const char* raw = ::archive_entry_pathname(entry);
    if (raw == nullptr) return fail(errc::corrupt, "its tar has an entry without a name");
    DSEC_TRY(const auto path, parse_entry_path(raw));
    DSEC_TRY(const auto marked, parse_marker(path));
    if (marked.what != marker::none) return hide(path, marked);
    const char* link = ::archive_entry_hardlink(entry);
    if (path.name.empty()) return root(entry);
    DSEC_TRY([[maybe_unused]] const auto made, tree_.enter(path.directory, true));
    if (link != nullptr) return hard_link(path, link);
    return inode(entry, path);
  }

  result<void> hide(const entry_path& path, const marked_name& marked) {
    DSEC_TRY(const auto there, tree_.enter(path.directory, false));
    if (!there) return {};
    return marked.what == marker::opaque ? tree_.opaque() : tree_.whiteout(marked.hidden);
  }

  result<void> root(archive_entry* entry) {
    if (::archive_entry_filetype(entry) != AE_IFDIR)
      return fail(errc::invalid_argument, "the root of its tree is not a directory");
    DSEC_TRY(const auto m, metadata_of(entry, {}));
    return tree_.root(m);
  }

  result<void> hard_link(const entry_path& path, const char* link) {
    DSEC_TRY(const auto target, parse_entry_path(link));
    if (target.name.empty()) {
      return fail(errc::invalid_argument,
                  "entry '" + printable(path.full()) + "' is a hard link to a directory");
    }
    DSEC_TRY(const auto linked, tree_.hard_link(path.name, target.directory, target.name));
    if (linked) return {};
    if (account_.devices.contains(target.full())) return leave_out(path);
    return fail(errc::invalid_argument, "entry '" + printable(path.full()) +
                                            "' is a hard link to '" + printable(target.full()) +
                                            "', which is not there");
  }

  result<void> leave_out(const entry_path& path) {
    account_.devices.insert(path.full());
    account_.left_out.device(path.full());
    return tree_.nothing(path.name);
  }

  result<void> inode(archive_entry* entry, const entry_path& path) {
    const auto type = ::archive_entry_filetype(entry);
    if (type == AE_IFCHR || type == AE_IFBLK) return leave_out(path);
    const bool may_have_attributes = type == AE_IFREG || type == AE_IFDIR;
    DSEC_TRY(const auto m, metadata_of(entry, path, may_have_attributes));
    switch (type) {
      case AE_IFREG:
        return file(entry, path, m);
      case AE_IFDIR:
        return tree_.directory(path.name, m);
      case AE_IFIFO:
        return tree_.fifo(path.name, m);
      case AE_IFLNK: {
        const char* target = ::archive_entry_symlink(entry);
        if (target == nullptr || *target == '\0') {
          return fail(errc::invalid_argument,
                      "entry '" + printable(path.full()) + "' is a symbolic link to nothing");
        }
        return tree_.symlink(path.name, target, m);
      }
      default:
        return fail(errc::invalid_argument,
                    "entry '" + printable(path.full()) + "' is of a kind that no layer can have");
    }
  }

  result<void> file(archive_entry* entry, const entry_path& path, const metadata& m) {
    const auto size = static_cast<std::uint64_t>(std::max<la_int64_t>(
        ::archive_entry_size_is_set(entry) != 0 ? ::archive_entry_size(entry) : 0, 0));
    // Holes count: the image will have their zeros.
    if (size > account_.most.bytes - account_.told.bytes) {
      return fail(errc::too_large,
                  "entry '" + printable(path.full()) + "' of " + std::to_string(size) +
                      " bytes: the image's files have more than " +
                      std::to_string(account_.most.bytes) + " bytes, the limit (import.max_mb)");
    }
    account_.told.bytes += size;
    DSEC_TRY(const auto fd, tree_.begin_file(path.name));
    DSEC_CHECK(copy(fd, path, size));
    // libarchive has read up to the end of a block. How much of that is padding is not known of
    // files with holes: of them all of it has to be there.
    const bool holes = ::archive_entry_sparse_count(entry) > 0;
    content_end_ = static_cast<std::uint64_t>(::archive_filter_bytes(tar_.get(), 0)) -
                   (holes ? 0 : missing(size));
    return tree_.finish_file(fd, path.name, size, m);
  }

  result<void> copy(const unique_fd& fd, const entry_path& path, std::uint64_t size) {
    for (;;) {
      const void* bytes = nullptr;
      std::size_t length = 0;
      la_int64_t offset = 0;
      const auto status = ::archive_read_data_block(tar_.get(), &bytes, &length, &offset);
      if (status == ARCHIVE_EOF) return {};
      if (status != ARCHIVE_OK) return failure();
      if (offset < 0 || static_cast<std::uint64_t>(offset) > size ||
          length > size - static_cast<std::uint64_t>(offset)) {
        return fail(errc::corrupt,
                    "entry '" + printable(path.full()) + "' has more bytes than it says");
      }
      DSEC_CHECK(write_at(fd, {static_cast<const char*>(bytes), length}, offset, path));
    }
  }

  static result<void> write_at(const unique_fd& fd, std::string_view bytes, off_t offset,
                               const entry_path& path) {
    while (!bytes.empty()) {
      const auto n = ::pwrite(fd.get(), bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return base::fail_errno("write '" + printable(path.full()) + "'");
      bytes.remove_prefix(static_cast<std::size_t>(n));
      offset += n;
    }
    return {};
  }

  result<metadata> metadata_of(archive_entry* entry, const entry_path& path,
                               bool may_have_attributes = true) {
    const auto uid = ::archive_entry_uid(entry);
    const auto gid = ::archive_entry_gid(entry);
    if (uid < 0 || uid > max_id || gid < 0 || gid > max_id) {
      return fail(errc::invalid_argument, "entry '" + printable(path.full()) + "' belongs to " +
                                              std::to_string(uid) + ":" + std::to_string(gid) +
                                              "; a sandbox has ids 0 to 65535");
    }
    metadata m{static_cast<mode_t>(::archive_entry_perm(entry)),
               static_cast<uid_t>(uid),
               static_cast<gid_t>(gid),
               {::archive_entry_mtime(entry), ::archive_entry_mtime_nsec(entry)},
               {}};
    ::archive_entry_xattr_reset(entry);
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    while (::archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
      if (may_have_attributes && allowed_attribute(name)) {
        m.attributes.emplace_back(name, std::string(static_cast<const char*>(value), size));
      } else {
        account_.left_out.attribute(path.full(), name);
      }
    }
    return m;
  }

  layer_stream& stream_;
  tree_writer& tree_;
  account& account_;
  reader tar_;
  std::optional<base::error> stream_error_;
  bool padded_ = false;            // the tar has been read to its end
  std::uint64_t content_end_ = 0;  // where the last file's does
};

}  // namespace

result<report> apply_layers(const plan& p, unique_fd root, std::vector<unique_fd> blobs) {
  DSEC_TRY(auto tree, tree_writer::open(std::move(root)));
  account a{p.most, p.most.bytes, {}, {}, {}};
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    const auto& l = p.layers[i];
    layer_stream stream(std::move(blobs.at(i)), l, p.most, a.tar_bytes_left);
    if (auto done = layer_reader(stream, tree, a).run(); !done) {
      auto why = std::move(done).error();
      // A blob that is damaged is seldom a tar; that it is damaged tells more.
      if (why.code == errc::corrupt) {
        if (auto whole = stream.check_blob(); !whole) why = std::move(whole).error();
      }
      if (why.message.find(l.digest) == std::string::npos)
        why.message = "layer sha256:" + l.digest + ": " + why.message;
      return fail(std::move(why));
    }
    tree.next_layer();
  }
  a.told.findings = a.left_out.lines();
  return std::move(a.told);
}

}  // namespace dsec::fs::unpack
