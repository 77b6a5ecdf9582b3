// Everything this instance has on disk, in one place. All functions are pure.
// What each of them holds, who writes it and when it goes: docs/disk-layout.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dsec::base {

class paths {
 public:
  explicit paths(std::filesystem::path state) : state_(std::move(state)) {}

  [[nodiscard]] const std::filesystem::path& state() const { return state_; }
  [[nodiscard]] std::filesystem::path instance_file() const { return state_ / "instance"; }
  [[nodiscard]] std::filesystem::path api_key() const { return state_ / "api-key"; }
  [[nodiscard]] std::filesystem::path url() const { return state_ / "url"; }
  [[nodiscard]] std::filesystem::path lock() const { return state_ / "lock"; }
  [[nodiscard]] std::filesystem::path launcher_socket() const { return state_ / "launcher.sock"; }
  [[nodiscard]] std::filesystem::path worker_db() const { return state_ / "worker.db"; }
  [[nodiscard]] std::filesystem::path node_id() const { return state_ / "node-id"; }
  [[nodiscard]] std::filesystem::path edges() const { return state_ / "edges"; }
  [[nodiscard]] std::filesystem::path keys_db() const { return state_ / "keys.db"; }
  [[nodiscard]] std::filesystem::path images() const { return state_ / "images"; }
  [[nodiscard]] std::filesystem::path sandboxes() const { return state_ / "sandboxes"; }
  [[nodiscard]] std::filesystem::path sandbox(std::string_view id) const {
    return sandboxes() / id;
  }
  [[nodiscard]] std::filesystem::path trash() const { return state_ / "trash"; }

 private:
  std::filesystem::path state_;
};

}  // namespace dsec::base
