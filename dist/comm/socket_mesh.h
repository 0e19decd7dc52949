// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that know each other by the environment alone: a TCP connection between every
// two of them, and what travels on it.
//
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<SocketMesh> mesh, SocketMesh::Open(options));
//   mesh->Send(1, key, data, bytes);              // returns once the system has taken it
//   const Frame frame = mesh->Take(1, key, 0);    // the same key on the other rank
//
// One thread per connection reads all that comes, so that a rank that sends never waits for what
// the other computes. A watch thread asks and answers where ranks are (dist/comm/rank_monitor.h),
// with the same judgements as over MPI.
//
// The last owner of the mesh ends it: it waits for the other ranks. A rank that is lost before that
// ends the job: the lowest rank that is left prints one line. A rank that leaves by an exception,
// or by `exit`, tells the others when the process exits.
#ifndef TESSERA_DIST_COMM_SOCKET_MESH_H_
#define TESSERA_DIST_COMM_SOCKET_MESH_H_

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "dist/comm/call.h"
#include "dist/comm/rank_monitor.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/tcp_socket.h"

namespace tessera::dist {

// Owns `object`, whose threads wait for other ranks, unless an exception unwinds the owner: then
// nothing waits, and the exit of the process tells the others.
template <typename T>
std::shared_ptr<T> UnlessUnwinding(T* object) {
  return std::shared_ptr<T>(object, [](T* own) {
    if (std::uncaught_exceptions() == 0) delete own;
  });
}

struct SocketOptions {
  RendezvousOptions meeting;
  // Compare every collective's contract over its ranks before it starts.
  bool check_collectives = false;
  // Seconds that a collective may wait before the job is ended.
  double collective_timeout = 600;
};

// What a frame belongs to.
struct FrameKey {
  std::string group;  // its id
  int64_t call = 0;   // of the group's collectives, from 1; 0: a message
  int32_t part = 0;   // which exchange of the collective; of a message its tag
  auto operator<=>(const FrameKey&) const = default;
};

struct Frame {
  std::unique_ptr<char[]> data;
  int64_t bytes = 0;
};

// A group of ranks as the mesh's watch needs it, also when nobody else does any more.
struct SocketGroup {
  std::string name;
  std::string id;          // the same on all members, different for every group of the job
  std::vector<int> world;  // world ranks of the members
  int rank = 0;
  int64_t calls = 0;
  int64_t splits = 0;
  // The last collective that was called, and by whom; guarded by the mesh's mutex.
  Call last_call;
  std::thread::id last_thread;
};

class SocketMesh {
 public:
  using Clock = std::chrono::steady_clock;

  // Something under way; the mesh's mutex guards it.
  struct Operation {
    Call call;
    std::shared_ptr<SocketGroup> group;
    Clock::time_point since = Clock::now();
    std::thread::id thread = std::this_thread::get_id();
    bool is_waited = false;
    bool is_done = false;
  };

  // Collective. Once per process.
  static StatusOr<std::shared_ptr<SocketMesh>> Open(const SocketOptions& options);
  ~SocketMesh();
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  const SocketOptions& options() const { return options_; }
  int rank() const { return options_.meeting.rank; }
  int size() const { return options_.meeting.size; }

  // Tells the watch what is under way, until Finish.
  std::shared_ptr<Operation> Begin(const Call& call, const std::shared_ptr<SocketGroup>& group,
                                   bool is_waited = false);
  void Finish(Operation& operation);
  // Returns once another thread has called Finish.
  void Wait(Operation& operation);

  // To a rank of the world, which is not this one.
  void Send(int rank, const FrameKey& key, const void* data, int64_t bytes);
  // The frame number `place` of those from `rank` with this key, once it is there.
  Frame Take(int rank, const FrameKey& key, int64_t place);
  // The place of the next message to be received.
  int64_t NextPlace(int rank, const FrameKey& key);

  // Prints the line on standard error and ends the job on all ranks.
  [[noreturn]] void FailJob(const std::string& line);
  // Ends the job on all ranks.
  [[noreturn]] static void Abort(int code);

  // Of the groups that the watch may be asked about.
  void Remember(const std::shared_ptr<SocketGroup>& group);

 private:
  struct Peer {
    Socket socket;
    std::mutex writing;
    std::thread reader;
    bool has_ended = false;  // guarded by mutex_
  };
  // Frames with one key from one rank, in order; those that were taken are empty.
  struct Box {
    int64_t first = 0;
    int64_t asked = 0;
    std::deque<std::optional<Frame>> frames;
  };

  explicit SocketMesh(const SocketOptions& options);
  Status Connect(const std::vector<RankPlace>& places, const Socket& listener);
  void Start();
  // By the owner of the peer's `writing`.
  void Write(Peer& peer, int kind, const FrameKey& key, const void* data, int64_t bytes);
  void Read(int rank);
  // A rank whose connection ended before it said that it has finished.
  [[noreturn]] void Lose(int rank);
  void Watch();
  std::vector<WaitState> Waits(bool blocked_only) const;
  RankState OwnState() const;
  void End();
  void TellAbort(int code);
  static void AbortAtExit();

  const SocketOptions options_;
  std::vector<std::unique_ptr<Peer>> peers_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a frame has come, an operation is done, a rank has ended
  std::map<std::pair<int, FrameKey>, Box> boxes_;
  std::list<std::shared_ptr<Operation>> in_flight_;
  std::map<std::string, std::shared_ptr<SocketGroup>> groups_;
  bool has_ended_ = false;
  bool is_closing_ = false;

  struct Note {
    int rank;
    RankMonitor::Kind kind;
    std::string text;
  };
  std::deque<Note> notes_;  // that the watch has to send
  std::condition_variable wake_;
  std::unique_ptr<RankMonitor> monitor_;
  std::thread watch_;
  const std::thread::id main_thread_ = std::this_thread::get_id();
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_SOCKET_MESH_H_
