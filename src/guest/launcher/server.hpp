// The launcher's socket: one dsecd at a time, the newest; datagrams with descriptors. The
// launcher's thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "guest/launch.hpp"
#include "guest/launcher/fd.hpp"

namespace dsec::launcher {

inline constexpr std::size_t max_request_bytes = 8192;
inline constexpr std::size_t max_request_fds = 32;

/// One datagram as received: bytes of a peer that is root, but maybe of another release.
struct request {
  alignas(8) std::array<char, max_request_bytes> bytes;
  std::size_t length = 0;
  std::array<fd, max_request_fds> fds;
  std::size_t fd_count = 0;

  [[nodiscard]] std::span<const fd> descriptors() const { return std::span(fds).first(fd_count); }
  [[nodiscard]] const guest::launch_header& header() const {
    return *reinterpret_cast<const guest::launch_header*>(bytes.data());
  }
  /// nullptr when it is too short to be one.
  template <class T>
  [[nodiscard]] const T* as() const {
    return length >= sizeof(T) ? reinterpret_cast<const T*>(bytes.data()) : nullptr;
  }
};

class server {
 public:
  explicit server(fd listening) : listening_(std::move(listening)) {}

  [[nodiscard]] int listening() const { return listening_.get(); }
  [[nodiscard]] int connection() const { return connection_.get(); }

  /// Takes a waiting connection in place of the present one; false when there was none or it is not
  /// root's.
  bool accept();
  void disconnect() { connection_.reset(); }

  /// False: nothing there, or the peer is gone, and then there is no connection any more.
  bool receive(request& into);

  /// Waits for a peer that does not read, but not for ever, nor when another one has come: then it
  /// is disconnected.
  void send(const void* datagram, std::size_t length, std::initializer_list<int> fds = {});

 private:
  bool wait_writable() const;

  fd listening_;
  fd connection_;
};

}  // namespace dsec::launcher
