// The tree that layers are put into, one entry at a time, and nothing outside it: every path is
// resolved by the kernel with the tree's root as "/", symbolic links in the middle lead to where
// they lead inside, the last name is never followed. Knows what the present layer has put there,
// which its own whiteouts must spare. Directories keep their times when something in them changes.
// Blocking; one thread; needs CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID and CAP_SETFCAP.
// Fails with invalid_argument (names the entry) for what cannot be in a tree, io (disk full).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace dsec::fs::unpack {

/// Paths in a tree, from its root; the state directory's own path comes before them.
inline constexpr std::size_t max_path_bytes = 3000;
inline constexpr std::size_t max_path_depth = 256;

/// Of a new entry. Attributes are those that an image may bring (allowed_attribute).
struct metadata {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  timespec mtime{};
  std::vector<std::pair<std::string, std::string>> attributes;
};

/// user.*, file capabilities and POSIX ACLs. trusted.* would speak to overlayfs, other security.*
/// to this host's own security modules.
bool allowed_attribute(std::string_view name);

class tree_writer {
 public:
  /// `root` is an empty directory; it becomes root's, 0755, of time 0.
  static base::result<tree_writer> open(base::unique_fd root);

  /// What was put there until now is a lower layer's.
  void next_layer();

  /// Goes into a directory; everything below is about names in it. What is missing on the way is
  /// made (0755, root's, of time 0) if `make`; else the answer is false.
  base::result<bool> enter(std::string_view directory, bool make);
  /// Done with the last directory; its time is what it was.
  base::result<void> leave();

  // Each takes the place of whatever has the name, but for a directory where one is.
  base::result<void> directory(const std::string& name, const metadata& m);
  base::result<void> symlink(const std::string& name, const std::string& target, const metadata& m);
  base::result<void> fifo(const std::string& name, const metadata& m);
  /// Open for writing; finish_file() gives it its size and metadata.
  base::result<base::unique_fd> begin_file(const std::string& name);
  base::result<void> finish_file(const base::unique_fd& file, const std::string& name,
                                 std::uint64_t size, const metadata& m);
  /// A second name for `target_name` in `target_directory`; false when there is no such thing.
  base::result<bool> hard_link(const std::string& name, std::string_view target_directory,
                               const std::string& target_name);
  /// Nothing, in the place of whatever has the name.
  base::result<void> nothing(const std::string& name);
  /// The root's own metadata.
  base::result<void> root(const metadata& m);

  /// Takes away what lower layers have at the name.
  base::result<void> whiteout(const std::string& name);
  /// Takes away what lower layers have in the directory entered.
  base::result<void> opaque();

 private:
  struct known_directory {
    ino_t parent = 0;
    std::size_t bytes = 0, depth = 0;  // of its path without links
    std::uint64_t touched = 0;         // the last layer that put something into it
  };
  struct place {
    base::unique_fd fd;
    std::string path;
    ino_t inode = 0;
    timespec mtime{};
    bool sure = true;  // that the path still leads here
  };

  explicit tree_writer(base::unique_fd root) : root_(std::move(root)) {}
  base::result<bool> open_place(std::string_view directory);
  base::result<void> make_missing(std::string_view directory);
  base::result<void> remove(int directory, const std::string& name);
  base::result<void> make_room(int directory, const std::string& name, bool keep_directory);
  base::result<void> made_directory(const std::string& name, int fd);
  base::result<void> check_length(const std::string& name) const;
  void touch(const std::string& name);
  void touch_directory(ino_t inode);
  [[nodiscard]] bool touched(ino_t directory, const std::string& name) const;
  base::result<bool> prune(int directory, ino_t inode, const std::string& name);
  base::result<void> prune_all(int directory, ino_t inode);
  base::result<void> apply(int fd, const std::string& name, const metadata& m);
  [[nodiscard]] std::string show(const std::string& name) const;

  base::unique_fd root_;
  ino_t root_inode_ = 0;
  std::uint64_t layer_ = 1;
  place here_;
  std::unordered_map<ino_t, known_directory> directories_;
  std::unordered_set<std::string> touched_;  // directory's inode number and name
};

}  // namespace dsec::fs::unpack
