// SPDX-License-Identifier: Apache-2.0
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/control_groups.h"
#include "core/execution_context.h"

namespace tessera {
namespace {

// A waiting thread looks this often before it parks: about 80 microseconds, so that the loops of
// one token's pass find it awake. Longer would take time from other threads where there are more of
// them than cores.
constexpr int kSpins = 2000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Set while the thread runs a body, so that loops inside it stay on this thread.
thread_local bool inside_body = false;

class InsideBody {
 public:
  InsideBody() : before_(inside_body) { inside_body = true; }
  ~InsideBody() { inside_body = before_; }
  InsideBody(const InsideBody&) = delete;
  InsideBody& operator=(const InsideBody&) = delete;

 private:
  bool before_;
};

// One caller's loop. It lives on the caller's stack: the pool's mutex guards `helpers`, and the
// caller leaves only when it has unlinked the loop and seen `helpers` fall to zero.
struct Loop {
  Loop(int64_t n, int64_t grain, RangeBody body)
      : n(n), grain(grain), chunks((n - 1) / grain + 1), body(body) {}

  const int64_t n;
  const int64_t grain;
  const int64_t chunks;
  const RangeBody body;
  const std::atomic<bool>* const cancelled = ExecutionContext::Current().cancelled;
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};
  std::condition_variable done;
  Loop* following = nullptr;

  std::mutex error_mutex;
  std::exception_ptr error;
  int64_t error_chunk = std::numeric_limits<int64_t>::max();

  bool HasChunks() const { return next.load(std::memory_order_relaxed) < chunks; }

  void RunChunk(int64_t chunk) {
    StopIfCancelled();
    const int64_t begin = chunk * grain;
    body(begin, n - begin < grain ? n : begin + grain);
  }

  // Runs chunks until none is left; `open` counts the loops that have some.
  void Run(std::atomic<int>& open) {
    InsideBody inside;
    const ExecutionModeScope<&ExecutionContext::cancelled> scope(cancelled);
    while (true) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      if (chunk == chunks - 1) open.fetch_sub(1, std::memory_order_relaxed);
      try {
        RunChunk(chunk);
      } catch (...) {
        // Nobody takes what is left, the last chunk included.
        if (next.exchange(chunks, std::memory_order_relaxed) < chunks) {
          open.fetch_sub(1, std::memory_order_relaxed);
        }
        std::lock_guard<std::mutex> lock(error_mutex);
        if (chunk < error_chunk) {
          error_chunk = chunk;
          error = std::current_exception();
        }
      }
    }
  }
};

int CoresInAffinityMask() {
  // The kernel refuses a mask smaller than its own, so the size grows until it fits.
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(size, set);
    const bool ok = sched_getaffinity(0, size, set) == 0;
    const int count = ok ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Counts the forks that lead from the process that loaded this to the one that asks.
constinit std::atomic<int> forks{0};

void CountForks() {
  static const int error = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  if (error != 0) throw std::bad_alloc();
}

// The threads of a pool and what they share with the callers.
class Crew {
 public:
  // Of `size` threads, or of as many as the system gives.
  Crew(int size, int spins) : spins_(spins) {
    threads_.reserve(static_cast<size_t>(size));
    // Signals go to the threads that the program made itself.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < size; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, WorkOf, this) != 0) break;
      pthread_setname_np(thread, "tessera-worker");
      threads_.push_back(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Crew() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void Run(Loop& loop) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      loop.following = first_;
      first_ = &loop;
      open_.fetch_add(1, std::memory_order_relaxed);
      const int64_t wanted = std::min<int64_t>(parked_, loop.chunks - 1);
      for (int64_t i = 0; i < wanted; ++i) work_.notify_one();
    }
    loop.Run(open_);
    Leave(loop);
    if (loop.error) std::rethrow_exception(loop.error);
  }

 private:
  // Ends the caller's part in its loop: no helper can come, and those there are finish.
  void Leave(Loop& loop) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Loop** link = &first_;
      while (*link != &loop) link = &(*link)->following;
      *link = loop.following;
      if (loop.helpers.load(std::memory_order_acquire) == 0) return;
    }
    for (int i = 0; i < spins_; ++i) {
      if (loop.helpers.load(std::memory_order_relaxed) == 0) break;
      Pause();
    }
    // Under the mutex, so that the last helper has let go of the loop.
    std::unique_lock<std::mutex> lock(mutex_);
    loop.done.wait(lock, [&] { return loop.helpers.load(std::memory_order_acquire) == 0; });
  }

  // The loop with work left that has the fewest helpers. Needs the mutex.
  Loop* FindLoop() const {
    Loop* best = nullptr;
    for (Loop* loop = first_; loop != nullptr; loop = loop->following) {
      if (loop->HasChunks() && (best == nullptr || loop->helpers < best->helpers)) best = loop;
    }
    return best;
  }

  static void* WorkOf(void* crew) {
    static_cast<Crew*>(crew)->Work();
    return nullptr;
  }

  void Work() {
    while (true) {
      for (int i = 0; i < spins_; ++i) {
        if (open_.load(std::memory_order_relaxed) > 0) break;
        Pause();
      }
      Loop* loop = nullptr;
      std::unique_lock<std::mutex> lock(mutex_);
      ++parked_;
      work_.wait(lock, [&] { return stopping_ || (loop = FindLoop()) != nullptr; });
      --parked_;
      if (stopping_) return;
      loop->helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      loop->Run(open_);
      lock.lock();
      if (loop->helpers.fetch_sub(1, std::memory_order_release) == 1) loop->done.notify_one();
    }
  }

  const int spins_;
  std::vector<pthread_t> threads_;
  std::atomic<int> open_{0};  // loops that have chunks left
  std::mutex mutex_;          // guards what follows
  std::condition_variable work_;
  Loop* first_ = nullptr;
  int parked_ = 0;
  bool stopping_ = false;
};

}  // namespace

class ThreadPool::Workers {
 public:
  explicit Workers(int n) : num_threads_(n) {}
  ~Workers() { Stop(); }

  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }

  void SetNumThreads(int n) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (n == num_threads()) return;
    Stop();
    num_threads_.store(n, std::memory_order_relaxed);
  }

  void Run(Loop& loop) {
    if (started_at_.load(std::memory_order_acquire) != forks.load(std::memory_order_relaxed)) {
      Start();
    }
    crew_->Run(loop);
  }

 private:
  static constexpr int kNever = -1;

  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (started_at_.load(std::memory_order_relaxed) == forks) return;
    CountForks();
    Stop();
    const bool enough_cores = num_threads() <= AvailableCores();
    crew_ = std::make_unique<Crew>(num_threads() - 1, enough_cores ? kSpins : 0);
    started_at_.store(forks, std::memory_order_release);
  }

  void Stop() {
    // A fork has copies of what its threads were waiting with, but not the threads: what would join
    // them, or wait for them to let go, never ends.
    const int started_at = started_at_.exchange(kNever, std::memory_order_relaxed);
    if (started_at != forks) static_cast<void>(crew_.release());
    crew_.reset();
  }

  std::mutex mutex_;  // held while the crew changes
  std::unique_ptr<Crew> crew_;
  std::atomic<int> started_at_{kNever};  // `forks` when the crew was made
  std::atomic<int> num_threads_;
};

ThreadPool::ThreadPool(int num_threads) : workers_(std::make_unique<Workers>(num_threads)) {
  TESSERA_CHECK(num_threads >= 1, "thread pool", num_threads, " threads");
}
ThreadPool::~ThreadPool() = default;

int ThreadPool::num_threads() const { return workers_->num_threads(); }

void ThreadPool::SetNumThreads(int n) {
  TESSERA_CHECK(n >= 1, "SetNumThreads", n, " threads");
  workers_->SetNumThreads(n);
}

// Never destroyed: loops may run while other static objects go.
ThreadPool& ThreadPool::OfProcess() {
  static ThreadPool* const pool = new ThreadPool(AvailableCores());
  return *pool;
}

ThreadPool& ThreadPool::Current() {
  ThreadPool* const own = ExecutionContext::Current().threads;
  return own != nullptr ? *own : OfProcess();
}

void ParallelFor(int64_t n, int64_t grain, RangeBody body) {
  TESSERA_CHECK(grain >= 1, "ParallelFor", "grain ", grain, " is less than 1");
  if (n <= 0) return;
  if (n > grain && !inside_body) {
    ThreadPool& pool = ThreadPool::Current();
    if (pool.num_threads() > 1) {
      Loop loop(n, grain, body);
      pool.workers_->Run(loop);
      return;
    }
  }
  InsideBody inside;
  for (int64_t begin = 0; begin < n;) {
    StopIfCancelled();
    const int64_t end = n - begin < grain ? n : begin + grain;
    body(begin, end);
    begin = end;
  }
}

int AvailableCores() {
  const int cores = CoresInAffinityMask();
  const double quota = CpuQuota("/proc/self/cgroup", "/sys/fs/cgroup");
  return std::max(1, static_cast<int>(std::min<double>(cores, std::ceil(quota))));
}

}  // namespace tessera
