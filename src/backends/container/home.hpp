// The directory of a sandbox on disk, made with its slot before it has a name: to allocate an inode
// can cost more than all else in a start, and a directory that is ready only has to be renamed.
// Stateless; blocking on the local disk; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// Name below <state>/sandboxes until a sandbox takes it; no sandbox id begins like this.
std::string unnamed_home(std::uint32_t slot);
/// Whether a name below <state>/sandboxes is that of such a directory.
bool is_unnamed(std::string_view name);

/// Makes <state>/sandboxes, so that on ext4 every home gets a part of the disk of its own.
base::result<void> make_sandboxes_directory(const base::paths& paths);

/// Makes upper/u, upper/w and spool below it.
base::result<void> make_home(const base::paths& paths, std::uint32_t slot);
/// Gives it to a sandbox. errc::already_exists when there is a directory of that id.
base::result<void> name_home(const base::paths& paths, std::uint32_t slot, const std::string& id);

}  // namespace dsec::container
