// SPDX-License-Identifier: Apache-2.0
// What the work of one caller runs with: the modes of the tape and of mixed precision, whose
// threads, memory and profiler it uses, and who may cancel it.
//
//   ThreadPool two(2);
//   ExecutionContext context = ExecutionContext::Current();
//   context.records = false;                  // no tape
//   context.threads = &two;
//   {
//     const ExecutionScope scope(context);
//     model->Run(batch, options);             // this call, and what it calls on this thread
//   }
//
// Every thread has a context of its own, which begins as `ExecutionContext()`, so that callers on
// different threads never see each other's modes: one model can be run by many at once. Scopes for
// one mode alone stand with what they are about: NoGrad (autograd/autograd.h), AutocastScope
// (autograd/autocast.h), SavedTensorScope (autograd/saved_tensor.h), TapeWatcher::Scope
// (autograd/tape_watcher.h), NoiseKeyTable::Scope.
#ifndef TESSERA_CORE_EXECUTION_CONTEXT_H_
#define TESSERA_CORE_EXECUTION_CONTEXT_H_

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/dtype.h"

namespace tessera {

class Allocator;
class NoiseKeySource;
class Profiler;
class SavedTensorHooks;
class TapeWatcher;
class ThreadPool;

// Whatever is pointed to outlives the scope; an allocator also the tensors made in it.
struct ExecutionContext {
  bool records = true;                        // whether operations record on the tape
  DType products = DType::kFloat32;           // what float32 operands of products become
  SavedTensorHooks* saved_tensors = nullptr;  // what becomes of tensors kept for the backward pass
  NoiseKeySource* noise_keys = nullptr;       // nullptr: keys of noise are values
  TapeWatcher* watcher = nullptr;             // who looks on at the tape; nullptr: nobody
  bool recomputes = false;                    // a region of autograd/recompute.h runs again
  bool saves_region_input = false;            // such a region keeps what it was given
  // Whose tokens an expert works on: a rank of the expert-parallel group (nn/module.h).
  int token_source = 0;
  // The path of the module whose Forward runs, which nodes of the tape keep, and which messages of
  // errors begin with; nullptr: none does.
  const std::shared_ptr<const std::string>* module_path = nullptr;
  ThreadPool* threads = nullptr;       // nullptr: the process's
  Profiler* profiler = nullptr;        // nullptr: the process's
  Allocator* cpu_allocator = nullptr;  // of tensors on Device::Cpu(); nullptr: the process's
  // Set to true by another thread, it ends this one's work with a CancelledError (base/error.h) at
  // the next kernel, piece of a parallel loop, or handful of words that are tokenised: within
  // milliseconds. Loops take it to the threads that help. nullptr: nobody cancels.
  const std::atomic<bool>* cancelled = nullptr;

  // That of this thread.
  static const ExecutionContext& Current();
};

namespace internal {
extern constinit thread_local ExecutionContext execution_context;
[[noreturn]] void ThrowCancelled();
}  // namespace internal

inline const ExecutionContext& ExecutionContext::Current() { return internal::execution_context; }

// Throws CancelledError where this thread's work has been cancelled: for loops that continue for
// more than a millisecond without a kernel or ParallelFor. Costs two loads.
inline void StopIfCancelled() {
  const std::atomic<bool>* const cancelled = ExecutionContext::Current().cancelled;
  if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) [[unlikely]] {
    internal::ThrowCancelled();
  }
}

// Makes `context` this thread's for the scope.
class ExecutionScope {
 public:
  explicit ExecutionScope(const ExecutionContext& context) : before_(ExecutionContext::Current()) {
    internal::execution_context = context;
  }
  ~ExecutionScope() { internal::execution_context = before_; }
  ExecutionScope(const ExecutionScope&) = delete;
  ExecutionScope& operator=(const ExecutionScope&) = delete;

 private:
  const ExecutionContext before_;
};

// Sets one member for the scope: what the scopes of single modes are made of.
template <auto kMember>
class ExecutionModeScope {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<ExecutionContext&>().*kMember)>;
  explicit ExecutionModeScope(Value value) : before_(internal::execution_context.*kMember) {
    internal::execution_context.*kMember = value;
  }
  ~ExecutionModeScope() { internal::execution_context.*kMember = before_; }
  ExecutionModeScope(const ExecutionModeScope&) = delete;
  ExecutionModeScope& operator=(const ExecutionModeScope&) = delete;

 private:
  const Value before_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_EXECUTION_CONTEXT_H_
