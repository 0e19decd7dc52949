// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/socket_mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "dist/comm/waited.h"

namespace tessera::dist {
namespace {

using std::chrono::milliseconds;

constexpr char kMagic[8] = {'t', 'e', 's', 's', 'm', 'e', 's', 'h'};
constexpr std::chrono::seconds kForPeer{2};
// How long the others leave it to the lowest rank to speak.
constexpr milliseconds kForTheLowest{1500};
constexpr milliseconds kBetweenLooks{20};
constexpr uint32_t kLongestId = 4 << 10;

enum FrameKind { kData = 0, kQuestion = 1, kAnswer = 2, kEnd = 3, kAbort = 4 };

struct Hello {
  char magic[8];
  uint64_t job;
  int32_t rank;
};

struct Header {
  int32_t kind;
  int32_t part;  // of kAbort the exit code
  int64_t call;
  int64_t bytes;
  uint32_t id_bytes;  // of the group's id, which precedes the data
};

// Without a limit: the watch ends the job when it takes too long.
SocketClock::time_point Never() { return SocketClock::now() + std::chrono::hours(24 * 365); }

std::atomic<SocketMesh*> open_mesh{nullptr};

[[noreturn]] void SleepUntilTheEnd() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// What each rank gives to the others: its port, and rank 0 the job's number, which keeps out
// connections of other jobs.
std::string Ticket(int port, uint64_t job) { return Concat(port, " ", job); }

struct Place {
  int port = 0;
  uint64_t job = 0;
};

StatusOr<Place> ReadTicket(const std::string& text) {
  Place place;
  const char* const end = text.data() + text.size();
  const auto [middle, error] = std::from_chars(text.data(), end, place.port);
  if (error != std::errc() || middle == end ||
      std::from_chars(middle + 1, end, place.job).ec != std::errc()) {
    return Internal("another rank is of another version of this program");
  }
  return place;
}

}  // namespace

SocketMesh::SocketMesh(const SocketOptions& options) : options_(options) {
  for (int r = 0; r < size(); ++r) peers_.push_back(std::make_unique<Peer>());
}

StatusOr<std::shared_ptr<SocketMesh>> SocketMesh::Open(const SocketOptions& options) {
  if (open_mesh != nullptr) return Internal("the ranks of this process have met before");
  StatusOr<Socket> listener = ListenOn(0, options.meeting.size);
  if (!listener.ok()) return Internal("cannot listen: ", Message(listener.status()));
  std::random_device random;
  const uint64_t job = static_cast<uint64_t>(random()) << 32 | random();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<RankPlace> places,
                           Rendezvous(options.meeting, Ticket(PortOf(*listener), job)));
  const std::shared_ptr<SocketMesh> mesh = UnlessUnwinding(new SocketMesh(options));
  TESSERA_RETURN_IF_ERROR(mesh->Connect(places, *listener));
  mesh->Start();
  return mesh;
}

// Each rank connects to those below it, and is connected to by those above.
Status SocketMesh::Connect(const std::vector<RankPlace>& places, const Socket& listener) {
  const auto until =
      Clock::now() +
      milliseconds(static_cast<int64_t>(std::max(options_.meeting.timeout, 10.0) * 1000));
  TESSERA_ASSIGN_OR_RETURN(const Place first, ReadTicket(places[0].message));
  for (int r = 0; r < rank(); ++r) {
    const RankPlace& place = places[static_cast<size_t>(r)];
    TESSERA_ASSIGN_OR_RETURN(const Place of, ReadTicket(place.message));
    Peer& peer = *peers_[static_cast<size_t>(r)];
    std::string reason = "no answer";
    while (!peer.socket.is_open()) {
      peer.socket = ConnectTo(place.address, of.port, until, &reason);
      if (!peer.socket.is_open() && Clock::now() > until) {
        return Internal("rank ", rank(), " cannot reach rank ", r, " at ", place.address, ":",
                        of.port, ": ", reason);
      }
    }
    Hello hello{{}, first.job, rank()};
    std::memcpy(hello.magic, kMagic, sizeof(kMagic));
    if (!WriteAll(peer.socket, &hello, sizeof(hello), until)) {
      return Internal("rank ", r, " has gone away");
    }
  }
  for (int missing = size() - 1 - rank(); missing > 0;) {
    Socket socket = Accept(listener, until);
    if (!socket.is_open() && Clock::now() >= until) {
      return Internal("rank ", rank(), ": ", missing, " ranks have not connected in time");
    }
    Hello hello{};
    if (!socket.is_open() || !ReadAll(socket, &hello, sizeof(hello), Clock::now() + kForPeer) ||
        std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0 || hello.job != first.job ||
        hello.rank <= rank() || hello.rank >= size()) {
      continue;
    }
    peers_[static_cast<size_t>(hello.rank)]->socket = std::move(socket);
    --missing;
  }
  return OkStatus();
}

void SocketMesh::Start() {
  monitor_ = std::make_unique<RankMonitor>(
      RankMonitor::Rank{.rank = rank(),
                        .size = size(),
                        .check_collectives = options_.check_collectives,
                        .collective_timeout = options_.collective_timeout,
                        .send =
                            [this](int rank, RankMonitor::Kind kind, std::string text) {
                              notes_.push_back({rank, kind, std::move(text)});
                              wake_.notify_all();
                            },
                        .state = [this] { return OwnState(); },
                        .waits = [this] { return Waits(false); }});
  open_mesh = this;
  std::atexit(AbortAtExit);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const int on = 1;
    setsockopt(peers_[static_cast<size_t>(r)]->socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof(on));
    peers_[static_cast<size_t>(r)]->reader = std::thread([this, r] { Read(r); });
  }
  watch_ = std::thread([this] { Watch(); });
}

SocketMesh::~SocketMesh() {
  if (monitor_ == nullptr) return;  // never started
  End();
  open_mesh = nullptr;
  for (const auto& peer : peers_) {
    if (peer->socket.is_open()) shutdown(peer->socket.fd(), SHUT_RDWR);
    if (peer->reader.joinable()) peer->reader.join();
  }
  watch_.join();
}

void SocketMesh::End() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    has_ended_ = true;
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    Peer& peer = *peers_[static_cast<size_t>(r)];
    std::lock_guard<std::mutex> lock(peer.writing);
    Write(peer, kEnd, {}, nullptr, 0);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] {
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && !peers_[static_cast<size_t>(r)]->has_ended) return false;
    }
    return true;
  });
  is_closing_ = true;
  wake_.notify_all();
}

std::shared_ptr<SocketMesh::Operation> SocketMesh::Begin(const Call& call,
                                                         const std::shared_ptr<SocketGroup>& group,
                                                         bool is_waited) {
  auto operation = std::make_shared<Operation>();
  operation->call = call;
  operation->group = group;
  operation->is_waited = is_waited;
  std::lock_guard<std::mutex> lock(mutex_);
  if (call.is_collective()) {
    group->last_call = call;
    group->last_thread = operation->thread;
  }
  in_flight_.push_back(operation);
  return operation;
}

void SocketMesh::Finish(Operation& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  operation.is_done = true;
  std::erase_if(in_flight_, [&](const auto& other) { return other.get() == &operation; });
  changed_.notify_all();
}

void SocketMesh::Wait(Operation& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  operation.is_waited = true;
  const Clock::time_point since = Clock::now();
  changed_.wait(lock, [&] { return operation.is_done; });
  AddSecondsWaited(SecondsSince(since));
}

void SocketMesh::Remember(const std::shared_ptr<SocketGroup>& group) {
  std::lock_guard<std::mutex> lock(mutex_);
  groups_[group->id] = group;
}

void SocketMesh::Write(Peer& peer, int kind, const FrameKey& key, const void* data, int64_t bytes) {
  const Header header{kind, key.part, key.call, bytes, static_cast<uint32_t>(key.group.size())};
  std::string head(reinterpret_cast<const char*>(&header), sizeof(header));
  head += key.group;
  // A rank that is gone is its reader's to report.
  if (!WriteAll(peer.socket, head.data(), head.size(), Never()) ||
      !WriteAll(peer.socket, data, static_cast<size_t>(bytes), Never())) {
    if (kind == kData) SleepUntilTheEnd();
  }
}

void SocketMesh::Send(int rank, const FrameKey& key, const void* data, int64_t bytes) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  std::lock_guard<std::mutex> lock(peer.writing);
  Write(peer, kData, key, data, bytes);
}

int64_t SocketMesh::NextPlace(int rank, const FrameKey& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  return boxes_[{rank, key}].asked++;
}

Frame SocketMesh::Take(int rank, const FrameKey& key, int64_t place) {
  std::unique_lock<std::mutex> lock(mutex_);
  Box* box = nullptr;
  size_t at = 0;
  changed_.wait(lock, [&] {
    box = &boxes_[{rank, key}];
    at = static_cast<size_t>(place - box->first);
    return at < box->frames.size();
  });
  Frame frame = std::move(*box->frames[at]);
  box->frames[at].reset();
  for (; !box->frames.empty() && !box->frames.front().has_value(); ++box->first) {
    box->frames.pop_front();
  }
  // A collective's key does not come again.
  if (key.call > 0 && box->frames.empty()) boxes_.erase({rank, key});
  return frame;
}

void SocketMesh::Read(int from) {
  Peer& peer = *peers_[static_cast<size_t>(from)];
  for (;;) {
    Header header{};
    Frame frame;
    FrameKey key;
    bool is_whole = ReadAll(peer.socket, &header, sizeof(header), Never()) &&
                    header.id_bytes <= kLongestId && header.bytes >= 0;
    if (is_whole) {
      key = {std::string(header.id_bytes, '\0'), header.call, header.part};
      frame.bytes = header.bytes;
      frame.data = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(header.bytes));
      is_whole = ReadAll(peer.socket, key.group.data(), key.group.size(), Never()) &&
                 ReadAll(peer.socket, frame.data.get(), static_cast<size_t>(header.bytes), Never());
    }
    if (is_whole && header.kind == kAbort) {
      std::fflush(nullptr);
      std::_Exit(header.part);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!is_whole) {
      if (peer.has_ended || is_closing_) return;
      lock.unlock();
      Lose(from);
    }
    switch (header.kind) {
      case kData:
        boxes_[{from, key}].frames.emplace_back(std::move(frame));
        changed_.notify_all();
        break;
      case kEnd:
        peer.has_ended = true;
        changed_.notify_all();
        break;
      case kQuestion:
      case kAnswer:
        monitor_->Receive(from, static_cast<RankMonitor::Kind>(header.kind),
                          std::string(frame.data.get(), static_cast<size_t>(frame.bytes)));
        break;
      default:
        break;
    }
  }
}

void SocketMesh::Lose(int lost) {
  // An abort may be on its way from a rank that knows more.
  std::this_thread::sleep_for(rank() == (lost == 0 ? 1 : 0) ? milliseconds(200) : kForTheLowest);
  FailJob(Concat("rank ", lost, " has ended before the others: its connection is closed"));
}

void SocketMesh::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_closing_) {
    wake_.wait_for(lock, kBetweenLooks, [&] { return is_closing_ || !notes_.empty(); });
    double longest = 0;
    for (const auto& operation : in_flight_) {
      longest = std::max(longest, SecondsSince(operation->since));
    }
    const std::optional<std::string> line = monitor_->Poll(longest);
    std::deque<Note> notes = std::move(notes_);
    notes_.clear();
    lock.unlock();
    if (line.has_value()) FailJob(*line);
    for (const Note& note : notes) {
      // A rank that takes nothing, or is in the middle of a long frame, does not answer.
      Peer& peer = *peers_[static_cast<size_t>(note.rank)];
      const std::unique_lock<std::mutex> writing(peer.writing, std::try_to_lock);
      if (!writing.owns_lock() || !AwaitReady(peer.socket, POLLOUT, Clock::now())) continue;
      Write(peer, note.kind, {}, note.text.data(), std::ssize(note.text));
    }
    lock.lock();
  }
}

std::vector<WaitState> SocketMesh::Waits(bool blocked_only) const {
  std::vector<WaitState> waits;
  for (const auto& operation : in_flight_) {
    const Operation& o = *operation;
    if (!o.is_waited && (blocked_only || !o.call.is_collective())) continue;
    const bool is_collective = o.call.is_collective();
    waits.push_back(
        {.group = o.group->id,
         .number = o.call.number,
         .text = DescribeCall(o.call, o.group->name),
         .thread = std::hash<std::thread::id>()(o.thread),
         .seconds = SecondsSince(o.since),
         .members = is_collective
                        ? o.group->world
                        : std::vector<int>{o.group->world[static_cast<size_t>(o.call.peer)]}});
  }
  return waits;
}

RankState SocketMesh::OwnState() const {
  RankState state;
  state.has_ended = has_ended_;
  state.main_thread = std::hash<std::thread::id>()(main_thread_);
  for (const auto& [id, group] : groups_) {
    state.groups[id] = {group->last_call.number, std::hash<std::thread::id>()(group->last_thread),
                        DescribeCall(group->last_call, group->name)};
  }
  state.waits = Waits(true);
  return state;
}

void SocketMesh::TellAbort(int code) {
  const Header header{kAbort, code, 0, 0, 0};
  for (const auto& peer : peers_) {
    if (!peer->socket.is_open()) continue;
    // A frame that is half written would swallow the header; the closed connection says enough.
    const std::unique_lock<std::mutex> writing(peer->writing, std::try_to_lock);
    if (!writing.owns_lock()) continue;
    WriteAll(peer->socket, &header, sizeof(header), Clock::now() + milliseconds(100));
  }
}

void SocketMesh::FailJob(const std::string& line) {
  std::fflush(nullptr);
  const std::string text = Concat("error: ", line, "\n");
  const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);
  Abort(1);
}

void SocketMesh::Abort(int code) {
  std::fflush(nullptr);
  if (SocketMesh* mesh = open_mesh.exchange(nullptr)) mesh->TellAbort(code);
  std::_Exit(code);
}

void SocketMesh::AbortAtExit() {
  if (open_mesh == nullptr) return;
  std::fprintf(stderr, "rank %d has ended before the others: the job ends\n",
               open_mesh.load()->rank());
  Abort(1);
}

}  // namespace tessera::dist
