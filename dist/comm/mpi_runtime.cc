#include "dist/comm/mpi_runtime.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>

#include "core/error.h"

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

// What an exit without the orderly end must still do.
std::atomic<bool> must_abort_at_exit{false};

void AbortAtExit() {
  if (!must_abort_at_exit.exchange(false)) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fflush(nullptr);
  std::fprintf(stderr, "rank %d has ended before the others: the job ends\n", rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace

MpiRuntime::MpiRuntime(const MpiOptions& options) : options_(options) {}

absl::StatusOr<std::shared_ptr<MpiRuntime>> MpiRuntime::Start(const MpiOptions& options) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised != 0) return Internal("MPI was started before in this process");
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Internal("this MPI library does not allow calls from several threads");
  }
  must_abort_at_exit = true;
  std::atexit(AbortAtExit);
  std::shared_ptr<MpiRuntime> runtime(new MpiRuntime(options));
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  runtime->world_ = runtime->DescribeGroup(comm, "world", "world");
  runtime->FindNodes();
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
  MPI_Finalize();
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
  Call call;
  call.operation = "end";
  const auto end = Issue(call, world_, {}, [&](std::vector<MPI_Request>& requests) {
    requests.emplace_back();
    MPI_Ibarrier(world_->side, &requests.back());
  });
  Wait(*end);
}

std::shared_ptr<MpiGroup> MpiRuntime::DescribeGroup(MPI_Comm comm, const std::string& name,
                                                    const std::string& id) {
  auto group = std::make_shared<MpiGroup>();
  group->comm = comm;
  MPI_Comm_dup(comm, &group->side);
  MPI_Comm_rank(comm, &group->rank);
  MPI_Comm_size(comm, &group->size);
  group->name = name;
  group->id = id;
  MPI_Group members, all;
  MPI_Comm_group(comm, &members);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  std::vector<int> ranks(static_cast<size_t>(group->size));
  for (int r = 0; r < group->size; ++r) ranks[static_cast<size_t>(r)] = r;
  group->world.resize(ranks.size());
  MPI_Group_translate_ranks(members, group->size, ranks.data(), all, group->world.data());
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  groups_[id] = group;
  return group;
}

void MpiRuntime::FindNodes() {
  MPI_Comm local;
  MPI_Comm_split_type(world_->comm, MPI_COMM_TYPE_SHARED, world_->rank, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank_);
  MPI_Comm_size(local, &local_size_);
  int first = world_->rank;  // the machine's lowest rank stands for it
  MPI_Bcast(&first, 1, MPI_INT, 0, local);
  MPI_Comm_free(&local);
  std::vector<int> firsts(static_cast<size_t>(world_->size));
  MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, world_->comm);
  const std::set<int> machines(firsts.begin(), firsts.end());
  node_ = static_cast<int>(std::distance(machines.begin(), machines.find(first)));
}

void MpiRuntime::Track(const MpiOperationPtr& operation) {
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
  int flag = 1;
  MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(), &flag,
              MPI_STATUSES_IGNORE);
  if (flag != 0) {
    operation.requests.clear();
    operation.operands.clear();
    operation.done.store(true, std::memory_order_release);
  }
  return flag != 0;
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
    sched_yield();
    if (round % 64 == 63 && Clock::now() - begin > kYieldFor) {
      std::this_thread::sleep_for(kRestBusy);
    }
  }
  --waiters_;
}

void MpiRuntime::RunProgress() {
  Clock::time_point last_busy = Clock::now();
  std::unique_lock<std::mutex> sleeping(sleep_mutex_);
  while (!stop_) {
    sleeping.unlock();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (waiters_.load() == 0 && !in_flight_.empty()) TestAll();
    }
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
  const auto arrival = Issue(call, parent, {}, [&](auto& requests) {
    requests.emplace_back();
    MPI_Ibarrier(parent->comm, &requests.back());
  });
  Wait(*arrival);
  const std::string id = Concat(parent->id, "/", ++parent->splits, ".", color);
  std::lock_guard<std::mutex> lock(mutex_);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(parent->comm, color, key, &comm);
  return DescribeGroup(comm, name, id);
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
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace tessera::dist
