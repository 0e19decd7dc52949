// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace tessera::dist {
namespace {

constexpr std::chrono::seconds kForConnection{2};

// While nobody listens on a port of this machine, the system may give that port to the socket that
// connects to it: TCP then joins the socket with itself.
bool IsJoinedWithItself(const Socket& socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool AwaitReady(const Socket& socket, short events, SocketClock::time_point until) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - SocketClock::now()).count();
    pollfd p{socket.fd(), events, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool ReadAll(const Socket& socket, void* data, size_t bytes, SocketClock::time_point until) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(socket, POLLIN, until)) return false;
    const ssize_t n = recv(socket.fd(), at, bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(const Socket& socket, const void* data, size_t bytes, SocketClock::time_point until) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(socket, POLLOUT, until)) return false;
    const ssize_t n = send(socket.fd(), at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

StatusOr<Socket> ListenOn(int port, int backlog) {
  // One socket for both address families where the machine has IPv6.
  for (const int family : {AF_INET6, AF_INET}) {
    Socket s(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!s.is_open()) continue;
    const int on = 1, off = 0;
    setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage address{};
    socklen_t length = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      setsockopt(s.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(static_cast<uint16_t>(port));
      length = sizeof(sockaddr_in6);
    } else {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<uint16_t>(port));
    }
    if (bind(s.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        listen(s.fd(), std::max(backlog, 16)) == 0) {
      return s;
    }
    if (errno == EADDRINUSE) break;
  }
  return Internal(std::strerror(errno));
}

int PortOf(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  // The port is at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Socket Accept(const Socket& listener, SocketClock::time_point until) {
  if (!AwaitReady(listener, POLLIN, until)) return Socket();
  return Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
}

std::string PeerAddress(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, NI_MAXHOST> name{};
  getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, name.data(), name.size(),
              nullptr, 0, NI_NUMERICHOST);
  return name.data();
}

Socket ConnectTo(const std::string& address, int port, SocketClock::time_point until,
                 std::string* reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    *reason = gai_strerror(error);
    return Socket(-1);
  }
  Socket result(-1);
  for (const addrinfo* a = found; a != nullptr && !result.is_open(); a = a->ai_next) {
    Socket s(socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    if (!s.is_open()) continue;
    int failure = 0;
    if (connect(s.fd(), a->ai_addr, a->ai_addrlen) != 0) {
      failure = errno;
      if (failure == EINPROGRESS) {
        socklen_t length = sizeof(failure);
        const bool is_ready =
            AwaitReady(s, POLLOUT, std::min(until, SocketClock::now() + kForConnection));
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
        if (!is_ready) failure = ETIMEDOUT;
      }
    }
    if (failure == 0 && IsJoinedWithItself(s)) failure = ECONNREFUSED;
    if (failure != 0) {
      *reason = std::strerror(failure);
    } else {
      result = std::move(s);
    }
  }
  freeaddrinfo(found);
  return result;
}

}  // namespace tessera::dist
