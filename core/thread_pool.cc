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
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu_quota.h"
#include "core/error.h"
#include "core/execution_context.h"

namespace tessera {
namespace {

// A waiting thread looks this often before it parks: about 20 microseconds, the price of one
// wake-up. Longer would take time from other threads where there are more of them than cores.
constexpr int kSpins = 500;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
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
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::atomic<int> helpers{0};
  std::condition_variable done;
  Loop* following = nullptr;

  std::mutex error_mutex;
  std::exception_ptr error;
  int64_t error_chunk = std::numeric_limits<int64_t>::max();

  bool HasChunks() const { return next.load(std::memory_order_relaxed) < chunks; }

  void RunChunk(int64_t chunk) {
    const int64_t begin = chunk * grain;
    body(begin, n - begin < grain ? n : begin + grain);
  }

  // Runs chunks until none is left; `open` counts the loops that have some.
  void Run(std::atomic<int>& open) {
    InsideBody inside;
    while (true) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      if (chunk == chunks - 1) open.fetch_sub(1, std::memory_order_relaxed);
      if (failed.load(std::memory_order_relaxed)) continue;
      try {
        RunChunk(chunk);
      } catch (...) {
        std::lock_guard<std::mutex> lock(error_mutex);
        failed.store(true, std::memory_order_relaxed);
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

}  // namespace

class ThreadPool::Workers {
 public:
  explicit Workers(int n) : num_threads_(n) {}
  ~Workers() { Stop(); }

  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }

  void SetNumThreads(int n) {
    std::lock_guard<std::mutex> start_lock(start_mutex_);
    if (n == num_threads()) return;
    Stop();
    num_threads_.store(n, std::memory_order_relaxed);
  }

  void Run(Loop& loop) {
    if (!started_.load(std::memory_order_acquire)) Start();
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
    for (int i = 0; i < spins_.load(std::memory_order_relaxed); ++i) {
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

  void Work() {
    while (true) {
      for (int i = 0; i < spins_.load(std::memory_order_relaxed); ++i) {
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

  void Start() {
    std::lock_guard<std::mutex> start_lock(start_mutex_);
    if (started_.load(std::memory_order_relaxed)) return;
    spins_.store(num_threads() <= AvailableCores() ? kSpins : 0, std::memory_order_relaxed);
    // Signals go to the threads that the program made itself.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 1; i < num_threads(); ++i) {
        workers_.emplace_back([this] { Work(); });
        pthread_setname_np(workers_.back().native_handle(), "tessera-worker");
      }
    } catch (const std::exception&) {
      // The system gives no more threads: those that exist do the work.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    started_.store(true, std::memory_order_release);
  }

  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_ = false;
    started_.store(false, std::memory_order_release);
  }

  std::mutex start_mutex_;  // held while workers are started or stopped
  std::vector<std::thread> workers_;
  std::atomic<int> num_threads_;
  std::atomic<bool> started_{false};
  std::atomic<int> spins_{0};

  std::atomic<int> open_{0};  // loops that have chunks left
  std::mutex mutex_;          // guards what follows
  std::condition_variable work_;
  Loop* first_ = nullptr;
  int parked_ = 0;
  bool stopping_ = false;
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
