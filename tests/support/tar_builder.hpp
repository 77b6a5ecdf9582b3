// Tars as tests want them, right or wrong: each header is written field by field, so that anything
// can be said in it that a careful writer would not say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsec::tests {

struct tar_entry {
  std::string name;
  char type = '0';  // 0 file, 1 hard link, 2 symbolic link, 3 char, 4 block, 5 directory, 6 fifo
  std::string content = {};
  std::string link = {};
  unsigned mode = 0644;
  unsigned uid = 0, gid = 0;
  std::uint64_t mtime = 1'000'000'000;
  std::vector<std::pair<std::string, std::string>> pax = {};  // records before it
  std::int64_t said_size = -1;  // what the header says; -1 = the truth
};

class tar_builder {
 public:
  tar_builder& add(const tar_entry& e) {
    auto pax = e.pax;
    if (e.name.size() > 100) pax.emplace_back("path", e.name);
    if (e.link.size() > 100) pax.emplace_back("linkpath", e.link);
    if (!pax.empty()) {
      std::string records;
      for (const auto& [key, value] : pax) records += record(key, value);
      member({"pax", 'x', records});
    }
    member(e);
    return *this;
  }
  tar_builder& file(const std::string& name, const std::string& content = "",
                    unsigned mode = 0644) {
    return add({name, '0', content, {}, mode});
  }
  tar_builder& directory(const std::string& name, unsigned mode = 0755) {
    return add({name, '5', {}, {}, mode});
  }
  tar_builder& symlink(const std::string& name, const std::string& target) {
    return add({name, '2', {}, target, 0777});
  }
  tar_builder& hard_link(const std::string& name, const std::string& target) {
    return add({name, '1', {}, target});
  }
  tar_builder& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  /// With the two empty blocks that end a tar.
  [[nodiscard]] std::string done() const { return bytes_ + std::string(1024, '\0'); }
  [[nodiscard]] const std::string& cut() const { return bytes_; }

 private:
  static std::string record(const std::string& key, const std::string& value) {
    const auto body = " " + key + "=" + value + "\n";
    auto length = body.size() + 1;
    while (std::to_string(length).size() + body.size() != length) ++length;
    return std::to_string(length) + body;
  }

  static void put(std::string& header, std::size_t at, std::size_t width, std::string_view text) {
    header.replace(at, std::min(width, text.size()), text.substr(0, width));
  }

  /// Octal, or base 256 where that is too small.
  static std::string number(std::uint64_t value, int width) {
    if (value >> (3U * static_cast<unsigned>(width - 1)) != 0) {
      std::string out(static_cast<std::size_t>(width), '\0');
      out.front() = '\x80';
      for (auto i = out.size(); i > 1 && value > 0; value >>= 8U)
        out[--i] = static_cast<char>(value);
      return out;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%0*llo", width - 1, static_cast<unsigned long long>(value));
    return text;
  }

  void member(const tar_entry& e) {
    std::string h(512, '\0');
    put(h, 0, 100, e.name);
    put(h, 100, 8, number(e.mode, 8));
    put(h, 108, 8, number(e.uid, 8));
    put(h, 116, 8, number(e.gid, 8));
    put(h, 124, 12,
        number(e.said_size < 0 ? e.content.size() : static_cast<std::uint64_t>(e.said_size), 12));
    put(h, 136, 12, number(e.mtime, 12));
    put(h, 148, 8, "        ");
    h[156] = e.type;
    put(h, 157, 100, e.link);
    put(h, 257, 8, std::string_view("ustar\00000", 8));
    if (e.type == '3' || e.type == '4') {
      put(h, 329, 8, number(1, 8));
      put(h, 337, 8, number(3, 8));
    }
    unsigned sum = 0;
    for (const unsigned char c : h) sum += c;
    char text[16];
    std::snprintf(text, sizeof text, "%06o", sum);
    put(h, 148, 8, std::string(text) + std::string("\0 ", 2));
    bytes_ += h + e.content;
    bytes_.append((512 - e.content.size() % 512) % 512, '\0');
  }

  std::string bytes_;
};

}  // namespace dsec::tests
