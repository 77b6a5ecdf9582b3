// What was left out of an image: counted, with the first few by name. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsec::fs::unpack {

class findings {
 public:
  void device(std::string_view path);
  void attribute(std::string_view path, std::string_view name);
  /// A line for each kind that there was.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  struct kind {
    std::uint64_t count = 0;
    std::string examples;
    void add(const std::string& example);
  };
  kind devices_, attributes_;
};

}  // namespace dsec::fs::unpack
