// What becomes of the writable layer of a sandbox that fails: it is dropped with the rest, or shown
// to the one hook that may keep it first. Pure but for the hook, which blocks (kill pool).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace dsec::backends {
class instance;
}

namespace dsec::actors {

struct sandbox_record;

/// Asked for with the create. snapshot: kept as an image before the sandbox is cleared away.
enum class on_failure : std::uint8_t { none, snapshot };

std::string_view to_string(on_failure what);
/// errc::corrupt for anything that to_string() does not say.
base::result<on_failure> parse_on_failure(std::string_view name);

/// Whether it is to be kept: it was asked for, and the sandbox has failed by itself. One that was
/// stopped and could not be cleared away has not.
bool is_to_be_kept(const sandbox_record& r);

/// The hook (worker::keep_failed) of a version that cannot make images of sandboxes: says in the
/// log that nothing was kept.
void keep_nothing(const sandbox_record& r, backends::instance& failed);

}  // namespace dsec::actors
