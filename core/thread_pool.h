// SPDX-License-Identifier: Apache-2.0
// Data-parallel loops on the CPU.
//
//   ParallelFor(n, /*grain=*/4096, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
//   });
//
// One pool serves the process, unless the caller's execution context has one of its own
// (core/execution_context.h). Several threads may call `ParallelFor` at once (ranks as threads,
// a prefetching loader): each caller works on its own loop and idle workers help whoever has work
// left, so no caller ever waits for another one's loop. A `ParallelFor` inside a body runs on the
// calling thread. An exception thrown by a body is rethrown to the caller after the loop has ended;
// the chunks that nobody has begun by then are left out. A caller whose work is cancelled
// (ExecutionContext::cancelled) gets a CancelledError before the next chunk.
//
// Chunk boundaries depend on `n` and `grain` alone, never on the number of threads, so that a
// reduction over per-chunk partial results has the same bits with any number of threads: chunk c
// covers [c*grain, min(n, (c+1)*grain)) and `body` is called once per chunk.
#ifndef TESSERA_CORE_THREAD_POOL_H_
#define TESSERA_CORE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera {

// A non-owning reference to a callable `void(int64_t begin, int64_t end)`.
class RangeBody {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, RangeBody>>>
  RangeBody(F&& f)  // NOLINT(google-explicit-constructor): call sites pass lambdas
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

// Calls body(begin, end) for consecutive chunks of `grain` indices of [0, n). n <= 0 does nothing;
// grain >= 1.
void ParallelFor(int64_t n, int64_t grain, RangeBody body);

// Threads that help the callers of loops; they start with the first loop, and sleep between loops.
// Where the system gives fewer, those that there are do the work. A fork of the process, which has
// no thread but the one that made it, starts its own.
class ThreadPool {
 public:
  // `num_threads` >= 1, a caller included.
  explicit ThreadPool(int num_threads);
  // No loop may run.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // >= 1. Not to be called while a loop runs.
  void SetNumThreads(int n);

  // The process's: of AvailableCores() threads at first.
  static ThreadPool& OfProcess();
  // The one that loops of this thread run in.
  static ThreadPool& Current();

 private:
  friend void ParallelFor(int64_t n, int64_t grain, RangeBody body);
  class Workers;
  const std::unique_ptr<Workers> workers_;
};

// The number of threads that loops of this thread use.
inline int NumThreads() { return ThreadPool::Current().num_threads(); }
// Sets that of the process's pool.
inline void SetNumThreads(int n) { ThreadPool::OfProcess().SetNumThreads(n); }

// Cores this process may use: the lesser of the affinity mask and the cgroup's quota (v1 and v2),
// rounded up, at least 1.
int AvailableCores();

}  // namespace tessera

#endif  // TESSERA_CORE_THREAD_POOL_H_
