// SPDX-License-Identifier: Apache-2.0
// The one owner of MPI in a process: who may call it when, and what is under way.
//
//   TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<MpiRuntime> mpi, MpiRuntime::Start(options));
//   auto operation = mpi->Issue(call, {t}, [&](std::vector<MPI_Request>& requests) {
//     requests.emplace_back();
//     Mpi().Iallreduce(..., &requests.back());
//   });
//   mpi->Wait(*operation);
//
// MPI is initialised for serialised use: every call is made under `mutex`, by the thread that
// issues, by the threads that wait, or by the progress thread. A thread that waits drives MPI
// itself, so that nothing is handed over; the progress thread drives what nobody waits for, and
// otherwise sleeps. It stays awake enough to answer other ranks' questions
// (dist/comm/mpi_monitor.h) while the main thread computes.
//
// The last owner of the runtime ends MPI: it waits for what is under way and for the other ranks.
// If that happens because an exception unwinds, or if the process exits without it, the whole job
// is aborted when the process exits, since the others would wait forever.
#ifndef TESSERA_DIST_COMM_MPI_RUNTIME_H_
#define TESSERA_DIST_COMM_MPI_RUNTIME_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "dist/comm/call.h"
#include "dist/comm/mpi_library.h"

namespace tessera::dist {

struct MpiOptions {
  // Compare every collective's contract over its ranks before it starts.
  bool check_collectives = false;
  // Seconds that a collective may wait before the job is ended.
  double collective_timeout = 600;
  // Elements of one MPI call, whose counts are ints; a larger operand goes in pieces.
  int64_t largest_count = int64_t{1} << 30;
};

// A group of ranks as MPI and the messages about it need it. Never freed before MPI ends.
struct MpiGroup {
  MPI_Comm comm = nullptr;  // collectives and the user's messages
  MPI_Comm side = nullptr;  // contracts, and pieces of operands that are too large
  int rank = 0;
  int size = 1;
  std::string name;        // what the user calls it
  std::string id;          // the same on all members, different for every group of the job
  std::vector<int> world;  // world ranks of the members
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> splits{0};
  // The last collective that was started, and by whom; guarded by the runtime's mutex.
  Call last_call;
  std::thread::id last_thread;
};

// Something under way. Guarded by the runtime's mutex, but for `done`.
struct MpiOperation {
  Call call;
  std::shared_ptr<MpiGroup> group;
  std::vector<MPI_Request> requests;
  // When they are complete: starts more, and says whether there was more. May be empty.
  std::function<bool(std::vector<MPI_Request>&)> next;
  int64_t message_bytes = -1;    // what a receive expects
  std::vector<Tensor> operands;  // kept alive
  std::chrono::steady_clock::time_point since;
  std::thread::id thread;
  bool is_waited = false;
  std::atomic<bool> done{false};
};
using MpiOperationPtr = std::shared_ptr<MpiOperation>;

class MpiMonitor;

class MpiRuntime : public std::enable_shared_from_this<MpiRuntime> {
 public:
  using Clock = std::chrono::steady_clock;

  // Loads and initialises MPI; once per process.
  static StatusOr<std::shared_ptr<MpiRuntime>> Start(const MpiOptions& options);
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  const MpiOptions& options() const { return options_; }
  const std::shared_ptr<MpiGroup>& world() const { return world_; }
  // Ranks on this machine, and this one's place among them.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // Which machine of the job this is, from 0 in the order of their first ranks.
  int node() const { return node_; }

  // Starts an operation: `start(requests)` makes nonblocking MPI calls; where it returns
  // NextMessages (dist/comm/mpi_exchange.h) these are the first, and it continues from there.
  template <typename StartCalls>
  MpiOperationPtr Issue(Call call, std::shared_ptr<MpiGroup> group, std::vector<Tensor> operands,
                        StartCalls start) {
    auto operation = std::make_shared<MpiOperation>();
    operation->call = std::move(call);
    operation->group = std::move(group);
    operation->operands = std::move(operands);
    operation->since = Clock::now();
    operation->thread = std::this_thread::get_id();
    if (operation->call.operation == "receive") {
      operation->message_bytes =
          operation->call.count * static_cast<int64_t>(DTypeSize(operation->call.dtype));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if constexpr (std::is_void_v<decltype(start(operation->requests))>) {
      start(operation->requests);
    } else {
      operation->next = start(operation->requests);
    }
    Track(operation);
    return operation;
  }

  // Returns once the operation is complete.
  void Wait(MpiOperation& operation);

  // A group of those members of `parent` that give the same color. Collective over the parent.
  std::shared_ptr<MpiGroup> Split(const std::shared_ptr<MpiGroup>& parent, int color, int key,
                                  const std::string& name);

  // With `check_collectives`: returns once all ranks of the group have made this call; ends the
  // job with a line that names who differs otherwise.
  void CheckContract(const Call& call, const std::shared_ptr<MpiGroup>& group);

  // Prints the line on standard error and ends the job on all ranks.
  [[noreturn]] void FailJob(const std::string& line);
  // Ends the job on all ranks.
  [[noreturn]] static void Abort(int code);

 private:
  friend class MpiMonitor;

  explicit MpiRuntime(const MpiOptions& options);
  std::shared_ptr<MpiGroup> DescribeGroup(MPI_Comm comm, const std::string& name,
                                          const std::string& id);
  void FindNodes();
  void Track(const MpiOperationPtr& operation);
  bool Test(MpiOperation& operation);
  void TestAll();
  void CheckResult(const MpiOperation& operation, int error,
                   const std::vector<MPI_Status>& statuses);
  void RunProgress();
  void Close();

  const MpiOptions options_;
  std::shared_ptr<MpiGroup> world_;
  MPI_Comm closing_ = nullptr;  // for the last barrier, which meets no other call
  int local_rank_ = 0;
  int local_size_ = 1;
  int node_ = 0;
  const std::thread::id main_thread_ = std::this_thread::get_id();

  std::mutex mutex_;  // around every call of MPI and what follows
  std::vector<MpiOperationPtr> in_flight_;
  std::map<std::string, std::weak_ptr<MpiGroup>> groups_;
  std::unique_ptr<MpiMonitor> monitor_;

  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::atomic<bool> asleep_{false};
  std::atomic<int> waiters_{0};
  std::atomic<int> unfinished_{0};
  std::thread progress_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_RUNTIME_H_
