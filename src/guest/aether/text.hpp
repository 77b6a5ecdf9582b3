// Little helpers over bytes and strings. Pure, freestanding, also compiled into host tests.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace dsec::guest::aether {

inline size_t length_of(const char* s) {
  size_t n = 0;
  while (s[n] != '\0') ++n;
  return n;
}

inline bool equal(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

inline bool starts_with(const char* s, const char* prefix) {
  while (*prefix != '\0') {
    if (*s++ != *prefix++) return false;
  }
  return true;
}

inline bool contains(const char* s, char c) {
  for (; *s != '\0'; ++s) {
    if (*s == c) return true;
  }
  return false;
}

/// Reads all of `s` as a decimal number that fits in 32 bits; false otherwise.
inline bool parse_u32(const char* s, uint32_t& out) {
  if (*s == '\0') return false;
  uint64_t value = 0;
  for (; *s != '\0'; ++s) {
    if (*s < '0' || *s > '9') return false;
    value = value * 10 + static_cast<uint64_t>(*s - '0');
    if (value > 0xffffffffU) return false;
  }
  out = static_cast<uint32_t>(value);
  return true;
}

/// Builds a short string in a fixed buffer; what does not fit makes it bad() instead of
/// overflowing.
template <size_t capacity>
class fixed_text {
 public:
  fixed_text& add(const char* s) { return add(s, length_of(s)); }
  fixed_text& add(const char* s, size_t n) {
    if (n >= capacity - size_) {
      bad_ = true;
      return *this;
    }
    for (size_t i = 0; i < n; ++i) text_[size_ + i] = s[i];
    size_ += n;
    text_[size_] = '\0';
    return *this;
  }
  fixed_text& add(uint64_t number) {
    char digits[20];
    size_t n = 0;
    do {
      digits[19 - n++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return add(digits + 20 - n, n);
  }
  [[nodiscard]] const char* c_str() const { return text_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool bad() const { return bad_; }

 private:
  size_t size_ = 0;
  bool bad_ = false;
  char text_[capacity] = {};
};

/// The value after `name` (which ends in a blank) at the start of a line of a kernel's "name value"
/// file; 0 if absent.
inline uint64_t keyed_value(const char* text, size_t size, const char* name) {
  const size_t n = length_of(name);
  for (size_t at = 0; at + n <= size;) {
    size_t same = 0;
    while (same < n && text[at + same] == name[same]) ++same;
    if (same == n) {
      uint64_t value = 0;
      for (size_t i = at + n; i < size && text[i] >= '0' && text[i] <= '9'; ++i) {
        value = value * 10 + static_cast<uint64_t>(text[i] - '0');
      }
      return value;
    }
    while (at < size && text[at] != '\n') ++at;
    ++at;
  }
  return 0;
}

}  // namespace dsec::guest::aether
