// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "dist/comm/rank_state.h"

namespace tessera::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = {'t', 'e', 's', 's', 'e', 'r', 'a', '1'};
constexpr uint32_t kLongestMessage = 64 << 10;
// For what a peer that is connected has to send or take at once.
constexpr std::chrono::milliseconds kForPeer{2000};
constexpr std::chrono::milliseconds kBetweenAttempts{50};

struct Hello {
  char magic[8];
  int32_t rank;
  int32_t size;
};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string Where(const RendezvousOptions& o) {
  return Concat("rendezvous at ", o.address, ":", o.port, ": ");
}

bool AwaitReady(int fd, short events, Clock::time_point until) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p{fd, events, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// All bytes until then, or false.
bool ReadAll(int fd, void* data, size_t bytes, Clock::time_point until) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(fd, POLLIN, until)) return false;
    const ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(int fd, const void* data, size_t bytes, Clock::time_point until) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(fd, POLLOUT, until)) return false;
    const ssize_t n = send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

StatusOr<Socket> Listen(const RendezvousOptions& o) {
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
      v6->sin6_port = htons(static_cast<uint16_t>(o.port));
      length = sizeof(sockaddr_in6);
    } else {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<uint16_t>(o.port));
    }
    if (bind(s.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        listen(s.fd(), std::max(o.size, 16)) == 0) {
      return s;
    }
    if (errno == EADDRINUSE) break;
  }
  return Internal(Where(o), "rank 0 cannot listen on the port: ", std::strerror(errno));
}

StatusOr<std::string> Serve(const RendezvousOptions& o, const std::string& message) {
  TESSERA_ASSIGN_OR_RETURN(const Socket listener, Listen(o));
  const auto until =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(o.timeout * 1000));
  std::vector<Socket> peers;
  for (int r = 0; r < o.size; ++r) peers.emplace_back(-1);
  for (int missing = o.size - 1; missing > 0;) {
    if (!AwaitReady(listener.fd(), POLLIN, until)) {
      std::vector<int> ranks;
      for (int r = 1; r < o.size; ++r) {
        if (!peers[static_cast<size_t>(r)].is_open()) ranks.push_back(r);
      }
      return Internal(Where(o), "after ", o.timeout, " s ", RankList(ranks),
                      ranks.size() == 1 ? " has" : " have", " not come");
    }
    Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{};
    if (!peer.is_open() || !ReadAll(peer.fd(), &hello, sizeof(hello), Clock::now() + kForPeer) ||
        std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0) {
      continue;
    }
    if (hello.size != o.size || hello.rank < 1 || hello.rank >= o.size) {
      return InvalidArgument(Where(o), "rank ", hello.rank, " of ", hello.size,
                             " ranks came, but rank 0 is one of ", o.size);
    }
    Socket& place = peers[static_cast<size_t>(hello.rank)];
    if (place.is_open()) return InvalidArgument(Where(o), "rank ", hello.rank, " came twice");
    place = std::move(peer);
    --missing;
  }
  const auto length = static_cast<uint32_t>(message.size());
  for (int r = 1; r < o.size; ++r) {
    const int fd = peers[static_cast<size_t>(r)].fd();
    const auto soon = Clock::now() + kForPeer;
    if (!WriteAll(fd, &length, sizeof(length), soon) ||
        !WriteAll(fd, message.data(), message.size(), soon)) {
      return Internal(Where(o), "rank ", r, " has gone away");
    }
  }
  return message;
}

// One attempt; closed when it fails, with the reason.
Socket Connect(const RendezvousOptions& o, Clock::time_point until, std::string* reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(o.address.c_str(), std::to_string(o.port).c_str(), &hints, &found);
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
        const bool is_ready = AwaitReady(s.fd(), POLLOUT, std::min(until, Clock::now() + kForPeer));
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
        if (!is_ready) failure = ETIMEDOUT;
      }
    }
    if (failure != 0) {
      *reason = std::strerror(failure);
    } else {
      result = std::move(s);
    }
  }
  freeaddrinfo(found);
  return result;
}

StatusOr<std::string> Come(const RendezvousOptions& o) {
  const auto until =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(o.timeout * 1000));
  std::string reason = "no answer";
  for (;;) {
    const Socket s = Connect(o, until, &reason);
    if (s.is_open()) {
      Hello hello{};
      std::memcpy(hello.magic, kMagic, sizeof(kMagic));
      hello.rank = o.rank;
      hello.size = o.size;
      uint32_t length = 0;
      // Rank 0 waits for all others as long as this rank may wait for it, and a little more.
      const auto last = until + kForPeer;
      if (!WriteAll(s.fd(), &hello, sizeof(hello), last) ||
          !ReadAll(s.fd(), &length, sizeof(length), last) || length > kLongestMessage) {
        return Internal(Where(o), "rank 0 has given up, or something else listens there");
      }
      std::string message(length, '\0');
      if (!ReadAll(s.fd(), message.data(), message.size(), last)) {
        return Internal(Where(o), "rank 0 has gone away");
      }
      return message;
    }
    if (Clock::now() + kBetweenAttempts > until) {
      return Internal(Where(o), "rank ", o.rank, " cannot reach rank 0 within ", o.timeout,
                      " s: ", reason);
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

}  // namespace

StatusOr<std::string> Rendezvous(const RendezvousOptions& options, const std::string& message) {
  if (message.size() > kLongestMessage) return Internal("rendezvous: the message is too long");
  if (options.size == 1) return message;
  return options.rank == 0 ? Serve(options, message) : Come(options);
}

}  // namespace tessera::dist
