// Bytes from outside (arguments, paths, names, what a client or a sandbox gave) made fit to be
// shown as text: cut between characters, and UTF-8 throughout. The wire's Text, JSON and terminals
// demand UTF-8, the kernel does not. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace dsec::base {

/// Whether it is UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing over U+10FFFF.
bool is_utf8(std::string_view text);

/// The text with U+FFFD for every byte that is not part of a character.
std::string as_utf8(std::string_view bytes);

/// At most `limit` bytes of as_utf8(bytes), cut between characters. Looks at no more of `bytes`
/// than that.
std::string shown(std::string_view bytes, std::size_t limit);

/// Lower-case hexadecimal digits of bytes.
std::string hex(std::string_view bytes);

}  // namespace dsec::base
