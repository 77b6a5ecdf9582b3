// Everything this instance has on disk, in one place. All functions are pure.
//
//   <state>/                       0700, default /var/lib/dsec
//     instance                     the instance's name (also the name of its cgroup subtree)
//     api-key                      0600, made at first start
//     url                          where the gateway listens, written when it does
//     lock                         flock'ed by the running worker
//     launcher.sock                0600, the launcher's socket
//     worker.db                    worker store (SQLite, class process)
//     images/
//       blobs/sha256/<hex>.erofs   EROFS images, content-addressed, 0400
//       manifests/<kind>/<name>@<tag>.json
//       tmp/                       half-made blobs, emptied by the next import
//       locks/                     flock'ed: `store` by changes, <kind>-<name>@<tag> by an import
//     layers/<hex>/                mount points of attached layers (only mounted in the launcher's
//     namespace) sandboxes/<id>/
//       upper/u, upper/w           overlay upper and work directories
//       spool/<command>.out|.err   output of commands
//     trash/                       renamed here by stop, deleted in the background
//   <cgroup root>/<instance>/<slot>/{init,cmd}
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
  [[nodiscard]] std::filesystem::path images() const { return state_ / "images"; }
  [[nodiscard]] std::filesystem::path layers() const { return state_ / "layers"; }
  [[nodiscard]] std::filesystem::path sandboxes() const { return state_ / "sandboxes"; }
  [[nodiscard]] std::filesystem::path sandbox(std::string_view id) const {
    return sandboxes() / id;
  }
  [[nodiscard]] std::filesystem::path trash() const { return state_ / "trash"; }

 private:
  std::filesystem::path state_;
};

}  // namespace dsec::base
