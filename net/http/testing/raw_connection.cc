// SPDX-License-Identifier: Apache-2.0
#include "net/http/testing/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace tessera::net {

std::string WithoutDate(std::string answer) {
  constexpr std::string_view kName = "\r\nDate: ";
  const size_t begin = answer.find(kName);
  if (begin == std::string::npos) return "no Date in " + answer;
  const size_t end = std::min(answer.find('\r', begin + 2), answer.size());
  const std::string date = answer.substr(begin + kName.size(), end - begin - kName.size());
  std::tm at = {};
  const char* const rest = strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &at);
  if (rest == nullptr || *rest != 0 || date.size() != 29) return "no date: " + date;
  if (std::abs(std::time(nullptr) - timegm(&at)) > 60) return "not now: " + date;
  return answer.erase(begin, end - begin);
}

RawConnection::RawConnection(int port, int receive_buffer)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ended_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0;
}

RawConnection::~RawConnection() {
  if (socket_ >= 0) close(socket_);
}

RawConnection::RawConnection(RawConnection&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      ended_(other.ended_),
      buffer_(std::move(other.buffer_)) {}

bool RawConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawConnection::ReadMore(std::chrono::milliseconds time) {
  pollfd waits = {.fd = socket_, .events = POLLIN, .revents = 0};
  if (ended_ || poll(&waits, 1, static_cast<int>(time.count())) != 1) return false;
  char bytes[16 << 10];
  const ssize_t size = recv(socket_, bytes, sizeof(bytes), 0);
  if (size > 0) buffer_.append(bytes, static_cast<size_t>(size));
  ended_ = size <= 0;
  return !ended_;
}

bool RawConnection::ReadUntil(std::string_view end, std::string* before) {
  size_t at = 0;
  while ((at = buffer_.find(end)) == std::string::npos) {
    if (!ReadMore(std::chrono::seconds(10))) return false;
  }
  *before = buffer_.substr(0, at);
  buffer_.erase(0, at + end.size());
  return true;
}

bool RawConnection::ReadBytes(size_t size, std::string* bytes) {
  while (buffer_.size() < size) {
    if (!ReadMore(std::chrono::seconds(10))) return false;
  }
  bytes->append(buffer_, 0, size);
  buffer_.erase(0, size);
  return true;
}

RawConnection::Answer RawConnection::ReadAnswer(bool head_only) {
  Answer answer;
  if (!ReadUntil("\r\n\r\n", &answer.head)) return {};
  answer.status = std::atoi(answer.head.substr(answer.head.find(' ') + 1, 3).c_str());
  if (head_only || answer.status / 100 == 1 || answer.status == 304) return answer;
  constexpr std::string_view kLength = "Content-Length: ";
  if (const size_t at = answer.head.find(kLength); at != std::string::npos) {
    const size_t size = std::strtoul(answer.head.c_str() + at + kLength.size(), nullptr, 10);
    return ReadBytes(size, &answer.body) ? answer : Answer{};
  }
  std::string size;
  std::string end;
  do {
    if (!ReadUntil("\r\n", &size)) return {};
    if (!ReadBytes(std::strtoul(size.c_str(), nullptr, 16), &answer.body)) return {};
    if (!ReadUntil("\r\n", &end) || !end.empty()) return {};
  } while (size != "0");
  return answer;
}

std::string RawConnection::ReadSome() {
  ReadMore(std::chrono::seconds(10));
  return std::exchange(buffer_, {});
}

std::string RawConnection::ReadAll(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !ReadMore(left)) return std::exchange(buffer_, {});
  }
}

bool RawConnection::Closes(std::chrono::milliseconds time) {
  ReadAll(time);
  return ended_;
}

void RawConnection::EndSending() { shutdown(socket_, SHUT_WR); }

void RawConnection::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(std::exchange(socket_, -1));
}

}  // namespace tessera::net
