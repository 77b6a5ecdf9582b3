// Where in a JSON text we are, for messages: "FILE: config.Env[3]". Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::fs {

class json_place {
 public:
  /// `what` names the text; `prefix` is the way to what is read of it, "" or "config".
  explicit json_place(std::string_view what, std::string_view prefix = {})
      : text_(std::string(what) + ": " + std::string(prefix)) {}

  [[nodiscard]] json_place key(std::string_view k) const {
    return of(text_ + (text_.ends_with(' ') ? "" : ".") + std::string(k));
  }
  [[nodiscard]] json_place index(std::size_t i) const { return member(std::to_string(i)); }
  /// What is no plain name: an index, or a name in quotes.
  [[nodiscard]] json_place member(std::string_view m) const {
    return of(text_ + "[" + std::string(m) + "]");
  }
  [[nodiscard]] tl::unexpected<base::error> fail(
      std::string_view why, base::errc code = base::errc::invalid_argument) const {
    return base::fail(code, text_ + " " + std::string(why));
  }

 private:
  static json_place of(std::string text) {
    json_place p({});
    p.text_ = std::move(text);
    return p;
  }
  std::string text_;
};

}  // namespace dsec::fs
