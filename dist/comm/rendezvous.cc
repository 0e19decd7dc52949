// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "dist/comm/rank_state.h"
#include "dist/comm/tcp_socket.h"

namespace tessera::dist {
namespace {

using Clock = SocketClock;

constexpr char kMagic[8] = {'t', 'e', 's', 's', 'e', 'r', 'a', '2'};
constexpr uint32_t kLongestMessage = 4 << 10;
constexpr uint32_t kLongestText = 1 << 26;  // of all messages: more than any job has
// For what a peer that is connected has to send or take at once.
constexpr std::chrono::milliseconds kForPeer{2000};
constexpr std::chrono::milliseconds kBetweenAttempts{50};

struct Hello {
  char magic[8];
  int32_t rank;
  int32_t size;
  uint32_t length;  // of the message that follows
};

std::string Where(const RendezvousOptions& o) {
  return Concat("rendezvous at ", o.address, ":", o.port, ": ");
}

// A text with its length before it.
bool WriteText(const Socket& socket, const std::string& text, Clock::time_point until) {
  const auto length = static_cast<uint32_t>(text.size());
  return WriteAll(socket, &length, sizeof(length), until) &&
         WriteAll(socket, text.data(), text.size(), until);
}

// Lengths and bytes, one after the other.
std::string Packed(const std::vector<RankPlace>& places) {
  std::string text;
  for (const RankPlace& place : places) {
    for (const std::string* part : {&place.address, &place.message}) {
      const auto length = static_cast<uint32_t>(part->size());
      text.append(reinterpret_cast<const char*>(&length), sizeof(length));
      text += *part;
    }
  }
  return text;
}

// Nothing when the text is something else.
std::vector<RankPlace> Unpacked(std::string_view text, int size) {
  std::vector<RankPlace> places(static_cast<size_t>(size));
  for (RankPlace& place : places) {
    for (std::string* part : {&place.address, &place.message}) {
      uint32_t length = 0;
      if (text.size() < sizeof(length)) return {};
      std::memcpy(&length, text.data(), sizeof(length));
      text.remove_prefix(sizeof(length));
      if (text.size() < length) return {};
      *part = text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return text.empty() ? places : std::vector<RankPlace>();
}

StatusOr<std::vector<RankPlace>> Serve(const RendezvousOptions& o, const std::string& message) {
  const StatusOr<Socket> listener = ListenOn(o.port, o.size);
  if (!listener.ok()) {
    return Internal(Where(o), "rank 0 cannot listen on the port: ", Message(listener.status()));
  }
  const auto until =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(o.timeout * 1000));
  std::vector<Socket> peers(static_cast<size_t>(o.size));
  std::vector<RankPlace> places(static_cast<size_t>(o.size));
  places[0] = {o.address, message};
  for (int missing = o.size - 1; missing > 0;) {
    Socket peer = Accept(*listener, until);
    if (!peer.is_open() && Clock::now() >= until) {
      std::vector<int> ranks;
      for (int r = 1; r < o.size; ++r) {
        if (!peers[static_cast<size_t>(r)].is_open()) ranks.push_back(r);
      }
      return Internal(Where(o), "after ", o.timeout, " s ", RankList(ranks),
                      ranks.size() == 1 ? " has" : " have", " not come");
    }
    Hello hello{};
    const auto soon = Clock::now() + kForPeer;
    if (!peer.is_open() || !ReadAll(peer, &hello, sizeof(hello), soon) ||
        std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0 || hello.length > kLongestMessage) {
      continue;
    }
    if (hello.size != o.size || hello.rank < 1 || hello.rank >= o.size) {
      return InvalidArgument(Where(o), "rank ", hello.rank, " of ", hello.size,
                             " ranks came, but rank 0 is one of ", o.size);
    }
    std::string text(hello.length, '\0');
    if (!ReadAll(peer, text.data(), text.size(), soon)) continue;
    Socket& place = peers[static_cast<size_t>(hello.rank)];
    if (place.is_open()) return InvalidArgument(Where(o), "rank ", hello.rank, " came twice");
    places[static_cast<size_t>(hello.rank)] = {PeerAddress(peer), std::move(text)};
    place = std::move(peer);
    --missing;
  }
  const std::string all = Packed(places);
  for (int r = 1; r < o.size; ++r) {
    if (!WriteText(peers[static_cast<size_t>(r)], all, Clock::now() + kForPeer)) {
      return Internal(Where(o), "rank ", r, " has gone away");
    }
  }
  return places;
}

// What rank 0 answers to a rank that is connected.
StatusOr<std::vector<RankPlace>> Answer(const RendezvousOptions& o, const Socket& socket,
                                        const std::string& message, Clock::time_point last) {
  Hello hello{{}, o.rank, o.size, static_cast<uint32_t>(message.size())};
  std::memcpy(hello.magic, kMagic, sizeof(kMagic));
  uint32_t length = 0;
  if (!WriteAll(socket, &hello, sizeof(hello), last) ||
      !WriteAll(socket, message.data(), message.size(), last) ||
      !ReadAll(socket, &length, sizeof(length), last) || length > kLongestText) {
    return Internal(Where(o), "rank 0 has given up, or something else listens there");
  }
  std::string text(length, '\0');
  if (!ReadAll(socket, text.data(), text.size(), last)) {
    return Internal(Where(o), "rank 0 has gone away");
  }
  std::vector<RankPlace> places = Unpacked(text, o.size);
  if (places.empty()) {
    return Internal(Where(o), "rank 0 has given up, or something else listens there");
  }
  places[0].address = o.address;  // as this rank reaches it
  return places;
}

StatusOr<std::vector<RankPlace>> Come(const RendezvousOptions& o, const std::string& message) {
  const auto until =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(o.timeout * 1000));
  std::string reason = "no answer";
  for (;;) {
    const Socket socket = ConnectTo(o.address, o.port, until, &reason);
    if (socket.is_open()) {
      // Rank 0 waits for all others as long as this rank may wait for it, and a little more.
      return Answer(o, socket, message, until + kForPeer);
    }
    if (Clock::now() + kBetweenAttempts > until) {
      return Internal(Where(o), "rank ", o.rank, " cannot reach rank 0 within ", o.timeout,
                      " s: ", reason);
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

}  // namespace

StatusOr<std::vector<RankPlace>> Rendezvous(const RendezvousOptions& options,
                                            const std::string& message) {
  if (message.size() > kLongestMessage) return Internal("rendezvous: the message is too long");
  if (options.size == 1) return std::vector<RankPlace>{{options.address, message}};
  return options.rank == 0 ? Serve(options, message) : Come(options, message);
}

}  // namespace tessera::dist
