// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_runtime.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>

#include "base/error.h"
#include "dist/comm/mpi_monitor.h"
#include "nn/module.h"

#if defined(__SANITIZE_ADDRESS__)
namespace {
std::atomic<bool> uses_mpi{false};
}  // namespace

// Open MPI keeps memory to its end, some of it by plug-ins that it has unloaded by then. The leak
// check asks here whether it shall be left out.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {  // NOLINT
  return uses_mpi ? 1 : 0;
}
#endif

namespace tessera::dist {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long the progress thread rests between two looks: while something is under way that nobody
// waits for, while there was something lately, and when nothing happens at all.
constexpr microseconds kRestBusy{100};
constexpr microseconds kRestAwake{1000};
constexpr microseconds kRestAsleep{20000};
constexpr milliseconds kAwakeFor{100};
// A waiting thread yields its core for so long, then it also sleeps in between.
constexpr milliseconds kYieldFor{50};
// mpirun reads what ranks write at once.
constexpr milliseconds kReadsWithin{500};
// Looks of a waiting thread before it yields.
constexpr int64_t kSpins = 50;

// What an exit without the orderly end must still do.
std::atomic<bool> must_abort_at_exit{false};

// What mpirun says of an abort takes another way to it: what this process wrote is read before.
void AbortWorld(int code) {
  std::fflush(nullptr);
  constexpr milliseconds kPause{2};
  int unread = 1;  // bytes of a pipe
  for (milliseconds waited{0}; unread > 0 && waited < kReadsWithin; waited += kPause) {
    if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0) break;
    std::this_thread::sleep_for(kPause);
  }
  Mpi().Abort(Mpi().comm_world, code);
}

void AbortAtExit() {
  if (!must_abort_at_exit.exchange(false)) return;
  int rank = 0;
  Mpi().Comm_rank(Mpi().comm_world, &rank);
  std::fflush(nullptr);
  std::fprintf(stderr, "rank %d has ended before the others: the job ends\n", rank);
  AbortWorld(1);
}

}  // namespace

MpiRuntime::MpiRuntime(const MpiOptions& options) : options_(options) {}

StatusOr<std::shared_ptr<MpiRuntime>> MpiRuntime::Start(const MpiOptions& options) {
  TESSERA_RETURN_IF_ERROR(LoadMpi());
  int initialised = 0;
  Mpi().Initialized(&initialised);
  if (initialised != 0) return Internal("MPI was started before in this process");
#if defined(__SANITIZE_ADDRESS__)
  uses_mpi = true;
#endif
  int provided = 0;
  Mpi().Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Internal("this MPI library does not allow calls from several threads");
  }
  must_abort_at_exit = true;
  std::atexit(AbortAtExit);
  std::shared_ptr<MpiRuntime> runtime(new MpiRuntime(options));
  MPI_Comm comm = nullptr;
  Mpi().Comm_dup(Mpi().comm_world, &comm);
  runtime->world_ = runtime->DescribeGroup(comm, "world", "world");
  Mpi().Comm_dup(comm, &runtime->closing_);
  runtime->FindNodes();
  runtime->monitor_ = std::make_unique<MpiMonitor>(*runtime);
  runtime->progress_ = std::thread([raw = runtime.get()] { raw->RunProgress(); });
  return runtime;
}

MpiRuntime::~MpiRuntime() {
  const bool orderly = std::uncaught_exceptions() == 0;
  if (orderly) Close();
  {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  progress_.join();
  if (!orderly) return;  // the exception's line comes first, then AbortAtExit
  monitor_->Close();
  Mpi().Finalize();
  must_abort_at_exit = false;
}

// Waits for this rank's operations, then for the other ranks.
void MpiRuntime::Close() {
  for (;;) {
    MpiOperationPtr next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TestAll();
      if (!in_flight_.empty()) next = in_flight_.front();
    }
    if (next == nullptr) break;
    Wait(*next);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    monitor_->SetEnded();
  }
  Call call;
  call.operation = "end";
  const auto end = Issue(call, world_, {}, [&](std::vector<MPI_Request>& requests) {
    requests.emplace_back();
    Mpi().Ibarrier(closing_, &requests.back());
  });
  Wait(*end);
}

std::shared_ptr<MpiGroup> MpiRuntime::DescribeGroup(MPI_Comm comm, const std::string& name,
                                                    const std::string& id) {
  auto group = std::make_shared<MpiGroup>();
  group->comm = comm;
  // What fails is then reported with the call that it belongs to.
  Mpi().Comm_set_errhandler(comm, Mpi().errors_return);
  Mpi().Comm_dup(comm, &group->side);
  Mpi().Comm_rank(comm, &group->rank);
  Mpi().Comm_size(comm, &group->size);
  group->name = name;
  group->id = id;
  MPI_Group members, all;
  Mpi().Comm_group(comm, &members);
  Mpi().Comm_group(Mpi().comm_world, &all);
  std::vector<int> ranks(static_cast<size_t>(group->size));
  for (int r = 0; r < group->size; ++r) ranks[static_cast<size_t>(r)] = r;
  group->world.resize(ranks.size());
  Mpi().Group_translate_ranks(members, group->size, ranks.data(), all, group->world.data());
  Mpi().Group_free(&members);
  Mpi().Group_free(&all);
  groups_[id] = group;
  return group;
}

void MpiRuntime::FindNodes() {
  MPI_Comm local;
  Mpi().Comm_split_type(world_->comm, MPI_COMM_TYPE_SHARED, world_->rank, Mpi().info_null, &local);
  Mpi().Comm_rank(local, &local_rank_);
  Mpi().Comm_size(local, &local_size_);
  int first = world_->rank;  // the machine's lowest rank stands for it
  Mpi().Bcast(&first, 1, Mpi().int_type, 0, local);
  Mpi().Comm_free(&local);
  std::vector<int> firsts(static_cast<size_t>(world_->size));
  Mpi().Allgather(&first, 1, Mpi().int_type, firsts.data(), 1, Mpi().int_type, world_->comm);
  const std::set<int> machines(firsts.begin(), firsts.end());
  node_ = static_cast<int>(std::distance(machines.begin(), machines.find(first)));
}

void MpiRuntime::Track(const MpiOperationPtr& operation) {
  if (operation->call.number > 0) {
    operation->group->last_call = operation->call;
    operation->group->last_thread = operation->thread;
  }
  if (Test(*operation)) return;
  in_flight_.push_back(operation);
  ++unfinished_;
  if (asleep_.load()) {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    wake_.notify_all();
  }
}

// Under the mutex.
bool MpiRuntime::Test(MpiOperation& operation) {
  if (operation.done.load(std::memory_order_relaxed)) return true;
  for (;;) {
    int flag = 1;
    const int count = static_cast<int>(operation.requests.size());
    std::vector<MPI_Status> statuses(operation.message_bytes < 0 ? 0 : operation.requests.size());
    const int error = Mpi().Testall(count, operation.requests.data(), &flag,
                                    statuses.empty() ? MPI_STATUSES_IGNORE : statuses.data());
    if (error != MPI_SUCCESS || (flag != 0 && !statuses.empty())) {
      CheckResult(operation, error, statuses);
    }
    if (flag == 0) return false;
    operation.requests.clear();
    if (!operation.next || !operation.next(operation.requests)) break;
  }
  operation.next = nullptr;
  operation.operands.clear();
  operation.done.store(true, std::memory_order_release);
  return true;
}

// A received message must be as long as its receiver expects.
void MpiRuntime::CheckResult(const MpiOperation& operation, int error,
                             const std::vector<MPI_Status>& statuses) {
  int64_t bytes = 0;
  for (const MPI_Status& status : statuses) {
    int part = 0;
    Mpi().Get_count(&status, Mpi().byte_type, &part);
    bytes += part;
  }
  if (error == MPI_SUCCESS && bytes == operation.message_bytes) return;
  const MpiGroup& group = *operation.group;
  if (operation.message_bytes < 0) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    Mpi().Error_string(error, text, &length);
    FailJob(Concat(RankList({world_->rank}), ": ", DescribeCall(operation.call, group.name), ": ",
                   text));
  }
  FailJob(Concat("messages differ in group ", group.name, ": ",
                 RankList({group.world[static_cast<size_t>(operation.call.peer)]}), " sent ",
                 error == MPI_SUCCESS ? Concat(bytes) : "more than the expected",
                 error == MPI_SUCCESS ? " bytes" : "", ", but ", RankList({world_->rank}),
                 " is in ", DescribeCall(operation.call, group.name), ", ", operation.message_bytes,
                 " bytes"));
}

// Under the mutex: advances everything, and forgets what is complete.
void MpiRuntime::TestAll() {
  std::erase_if(in_flight_, [&](const MpiOperationPtr& operation) { return Test(*operation); });
  unfinished_ = static_cast<int>(in_flight_.size());
}

void MpiRuntime::Wait(MpiOperation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return;
  ++waiters_;
  const Clock::time_point begin = Clock::now();
  for (int64_t round = 0;; ++round) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!operation.is_waited) {
        operation.is_waited = true;
        if (!operation.call.is_collective()) operation.since = begin;
      }
      if (Test(operation)) {
        std::erase_if(in_flight_, [&](const MpiOperationPtr& o) { return o.get() == &operation; });
        unfinished_ = static_cast<int>(in_flight_.size());
        break;
      }
    }
    if (round < kSpins) continue;
    sched_yield();
    if (round % 64 == 63 && Clock::now() - begin > kYieldFor) {
      std::this_thread::sleep_for(kRestBusy);
    }
  }
  --waiters_;
}

void MpiRuntime::RunProgress() {
  Clock::time_point last_busy = Clock::now();
  Clock::time_point last_poll = last_busy;
  std::optional<std::string> failure;
  std::unique_lock<std::mutex> sleeping(sleep_mutex_);
  while (!stop_) {
    sleeping.unlock();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (waiters_.load() == 0 && !in_flight_.empty()) TestAll();
      const Clock::time_point now = Clock::now();
      if (now - last_poll >= kRestAsleep) {
        last_poll = now;
        failure = monitor_->Poll();
      }
    }
    if (failure.has_value()) FailJob(*failure);
    const Clock::time_point now = Clock::now();
    if (unfinished_.load() > 0) last_busy = now;
    const bool driven = waiters_.load() > 0;  // by those who wait
    microseconds rest = kRestAsleep;
    if (now - last_busy < kAwakeFor) rest = kRestAwake;
    if (unfinished_.load() > 0 && !driven) rest = kRestBusy;
    sleeping.lock();
    asleep_ = rest == kRestAsleep;
    if (!stop_) wake_.wait_for(sleeping, rest);
    asleep_ = false;
  }
}

std::shared_ptr<MpiGroup> MpiRuntime::Split(const std::shared_ptr<MpiGroup>& parent, int color,
                                            int key, const std::string& name) {
  // Once all have arrived the blocking calls below are short, and other groups go on until then.
  Call call;
  call.operation = "split";
  call.module = nn::CurrentModulePath();
  call.number = ++parent->calls;
  CheckContract(call, parent);
  const auto arrival = Issue(call, parent, {}, [&](auto& requests) {
    requests.emplace_back();
    Mpi().Ibarrier(parent->comm, &requests.back());
  });
  Wait(*arrival);
  const std::string id = Concat(parent->id, "/", ++parent->splits, ".", color);
  std::lock_guard<std::mutex> lock(mutex_);
  MPI_Comm comm = nullptr;
  Mpi().Comm_split(parent->comm, color, key, &comm);
  return DescribeGroup(comm, name, id);
}

void MpiRuntime::CheckContract(const Call& call, const std::shared_ptr<MpiGroup>& group) {
  if (!options_.check_collectives || group->size == 1) return;
  constexpr size_t kBytes = 512;
  const std::string text =
      Concat(DescribeContract(call), call.module.empty() ? " outside of any module" : " in module ",
             call.module)
          .substr(0, kBytes - 1);
  std::vector<char> mine(kBytes, '\0');
  std::copy(text.begin(), text.end(), mine.begin());
  std::vector<char> all(kBytes * static_cast<size_t>(group->size));
  const auto exchange = Issue(call, group, {}, [&](std::vector<MPI_Request>& requests) {
    requests.emplace_back();
    Mpi().Iallgather(mine.data(), kBytes, Mpi().byte_type, all.data(), kBytes, Mpi().byte_type,
                     group->side, &requests.back());
  });
  Wait(*exchange);
  std::vector<std::string> calls;
  for (int r = 0; r < group->size; ++r) calls.emplace_back(&all[static_cast<size_t>(r) * kBytes]);
  if (std::all_of(calls.begin(), calls.end(), [&](const auto& c) { return c == calls[0]; })) return;
  // The lowest rank speaks; the others wait for the end.
  if (group->rank > 0) std::this_thread::sleep_for(milliseconds(1500));
  FailJob(DescribeMismatch(group->name, group->world, calls));
}

void MpiRuntime::FailJob(const std::string& line) {
  std::fflush(nullptr);
  const std::string text = Concat("error: ", line, "\n");
  const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);
  Abort(1);
}

void MpiRuntime::Abort(int code) {
  must_abort_at_exit = false;
  AbortWorld(code);
  std::_Exit(code);
}

}  // namespace tessera::dist
