// Reading /etc/passwd and /etc/group piece by piece: lines of any length, no buffer but for the
// fields wanted, so that a hostile file costs time only. Pure; the caller reads the files. Format:
// passwd(5), group(5).
#pragma once

#include "guest/aether/text.hpp"

namespace dsec::guest::aether {

inline constexpr size_t max_user_name = 64;
inline constexpr size_t max_home = 256;
inline constexpr size_t max_groups = 256;

/// Splits a stream of bytes into lines of colon-separated fields. `sink` has on_byte(field, c),
/// on_field(field) and on_line(fields); a line without its newline at the end of the file still
/// counts (finish()).
template <class sink>
class field_splitter {
 public:
  explicit field_splitter(sink& to) : to_(to) {}

  void feed(const char* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      if (bytes[i] == '\n') {
        end_line();
      } else if (bytes[i] == ':') {
        to_.on_field(field_);
        ++field_;
        any_ = true;
      } else {
        to_.on_byte(field_, bytes[i]);
        any_ = true;
      }
    }
  }
  void finish() { end_line(); }

 private:
  void end_line() {
    if (any_) {
      to_.on_field(field_);
      to_.on_line(field_ + 1);
    }
    field_ = 0;
    any_ = false;
  }

  sink& to_;
  size_t field_ = 0;
  bool any_ = false;
};

/// A decimal field that may turn out not to be a 32-bit number.
struct number_field {
  uint64_t value = 0;
  bool good = true;
  bool any = false;
  void add(char c) {
    any = true;
    if (c < '0' || c > '9' || value > 0xffffffffU) {
      good = false;
    } else {
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
  }
  [[nodiscard]] bool valid() const { return good && any && value < 0xffffffffU; }
};

/// Compares a field with a wanted string as its bytes come.
struct matching_field {
  const char* wanted = nullptr;
  size_t at = 0;
  bool same = true;
  void add(char c) { same = same && wanted != nullptr && wanted[at] == c && wanted[at++] != '\0'; }
  [[nodiscard]] bool matches() const { return same && wanted != nullptr && wanted[at] == '\0'; }
  void restart() {
    at = 0;
    same = true;
  }
};

/// Finds one user in /etc/passwd, by name or by number. The first line that fits wins.
class passwd_scan {
 public:
  /// `name` (not copied) or, when null, `uid`.
  passwd_scan(const char* name, uint32_t uid) : wanted_uid_(uid) { name_.wanted = name; }

  void on_byte(size_t field, char c) {
    if (field == 0) {
      name_.add(c);
      line_name_.add(&c, 1);
    } else if (field == 2) {
      uid_.add(c);
    } else if (field == 3) {
      gid_.add(c);
    } else if (field == 5) {
      line_home_.add(&c, 1);
    }
  }
  void on_field(size_t) {}
  void on_line(size_t fields) {
    const bool wanted = name_.wanted != nullptr ? name_.matches() : uid_.value == wanted_uid_;
    if (!found && wanted && fields >= 6 && uid_.valid() && gid_.valid() && !line_name_.bad()) {
      found = true;
      uid = static_cast<uint32_t>(uid_.value);
      gid = static_cast<uint32_t>(gid_.value);
      user_name = line_name_;
      if (!line_home_.bad()) home = line_home_;
    }
    name_.restart();
    uid_ = {};
    gid_ = {};
    line_name_ = {};
    line_home_ = {};
  }

  bool found = false;
  uint32_t uid = 0, gid = 0;
  fixed_text<max_user_name> user_name;
  fixed_text<max_home> home;

 private:
  uint32_t wanted_uid_;
  matching_field name_;
  number_field uid_, gid_;
  fixed_text<max_user_name> line_name_;
  fixed_text<max_home> line_home_;
};

/// Collects from /etc/group the groups that list a user, and finds one group by name.
class group_scan {
 public:
  /// Either may be null; neither is copied.
  group_scan(const char* member, const char* group) {
    member_.wanted = member;
    name_.wanted = group;
  }

  void on_byte(size_t field, char c) {
    if (field == 0) {
      name_.add(c);
    } else if (field == 2) {
      gid_.add(c);
    } else if (field == 3 && c == ',') {
      end_member();
    } else if (field == 3) {
      member_.add(c);
    }
  }
  void on_field(size_t field) {
    if (field == 3) end_member();
  }
  void on_line(size_t) {
    if (gid_.valid()) {
      const auto gid = static_cast<uint32_t>(gid_.value);
      if (!found && name_.matches()) {
        found = true;
        named_gid = gid;
      }
      if (listed_ && count < max_groups) gids[count++] = gid;
    }
    name_.restart();
    member_.restart();
    gid_ = {};
    listed_ = false;
  }

  bool found = false;
  uint32_t named_gid = 0;
  size_t count = 0;
  uint32_t gids[max_groups] = {};

 private:
  void end_member() {
    listed_ = listed_ || member_.matches();
    member_.restart();
  }

  matching_field name_, member_;
  number_field gid_;
  bool listed_ = false;
};

}  // namespace dsec::guest::aether
