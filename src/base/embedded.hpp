// The guest programs that are carried inside this binary (cmake/Embed.cmake). Read-only, any
// thread.
#pragma once

#include <cstddef>
#include <span>

namespace dsec::base {

/// Static ELF images; empty in builds without the guest (-DDSEC_GUEST=OFF).
std::span<const std::byte> embedded_launcher();
std::span<const std::byte> embedded_aether();
/// What root inside a sandbox may try (guest/attack): put into images, by tests and `dsecd smoke`.
std::span<const std::byte> embedded_attack();

}  // namespace dsec::base
