// SPDX-License-Identifier: Apache-2.0
// TCP connections with time limits, as ranks without MPI use them.
#ifndef TESSERA_DIST_COMM_TCP_SOCKET_H_
#define TESSERA_DIST_COMM_TCP_SOCKET_H_

#include <chrono>
#include <string>
#include <utility>

#include "base/status.h"

namespace tessera::dist {

using SocketClock = std::chrono::steady_clock;

// An open file descriptor, closed at the end.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Whether `events` (POLLIN, POLLOUT) come until then.
bool AwaitReady(const Socket& socket, short events, SocketClock::time_point until);

// All bytes until then, or false.
bool ReadAll(const Socket& socket, void* data, size_t bytes, SocketClock::time_point until);
bool WriteAll(const Socket& socket, const void* data, size_t bytes, SocketClock::time_point until);

// Listens on the port of all addresses of this machine, IPv6 too where it has that; port 0 is a
// free one. The status has the system's words.
StatusOr<Socket> ListenOn(int port, int backlog);
int PortOf(const Socket& listener);
// The next connection; closed when none has come until then.
Socket Accept(const Socket& listener, SocketClock::time_point until);
// The numeric address of the other end.
std::string PeerAddress(const Socket& socket);

// One attempt of at most two seconds; closed when it fails, with the reason.
Socket ConnectTo(const std::string& address, int port, SocketClock::time_point until,
                 std::string* reason);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_TCP_SOCKET_H_
