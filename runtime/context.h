// SPDX-License-Identifier: Apache-2.0
// What a tsr_context is, and a call that it runs.
#ifndef TESSERA_RUNTIME_CONTEXT_H_
#define TESSERA_RUNTIME_CONTEXT_H_

#include <atomic>
#include <memory>

#include "base/status.h"
#include "core/allocator.h"
#include "core/execution_context.h"
#include "core/thread_pool.h"
#include "models/generation/continuous_batch.h"
#include "runtime/handles.h"
#include "runtime/model.h"
#include "runtime/tessera.h"

struct tsr_context {
  tsr_context(const tsr_model* model, tessera::runtime::Pin pin)
      : model(model), model_pin(std::move(pin)) {}

  const tsr_model* const model;
  const tessera::runtime::Pin model_pin;
  std::unique_ptr<tessera::ThreadPool> threads;  // nullptr: the process's
  std::unique_ptr<tessera::Allocator> memory;    // nullptr: the process's
  tsr_context_options options = {};              // as it was made with
  // The texts that the context keeps; nullptr: none yet. It gives its memory back before `memory`
  // goes.
  std::unique_ptr<tessera::models::ContinuousBatch> kept;
  tessera::models::ContinuousBatchCounts counts;  // of tokens, in all calls
  std::atomic<bool> cancelled = false;
};

namespace tessera::runtime {

// A call that a context runs: no other may, and it is not released meanwhile.
//
//   TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
//   call.model().model->Run(...);
class Call {
 public:
  static StatusOr<Call> Begin(tsr_context* context);

  const tsr_model& model() const { return *context_->model; }
  int adapter() const { return context_->options.adapter; }
  tsr_context& context() const { return *context_; }

 private:
  Call(tsr_context* context, Pin pin);

  tsr_context* context_;
  Pin pin_;
  std::unique_ptr<ExecutionScope> scope_;
};

// A batch that keeps as many texts as the options say.
std::unique_ptr<models::ContinuousBatch> MakeBatch(const tsr_model& model,
                                                   const tsr_context_options& options);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_CONTEXT_H_
