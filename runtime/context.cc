// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <utility>

#include "runtime/border.h"

namespace tessera::runtime {
namespace {

constexpr int kMostThreads = 4096;

Status Create(const tsr_model* model, const tsr_context_options* given, tsr_context** out) {
  TESSERA_ASSIGN_OR_RETURN(Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_context_options options,
                           OptionsOf(given, "tsr_context_options"));
  if (options.threads < 0 || options.threads > kMostThreads) {
    return InvalidArgument("tsr_context_options: threads is ", options.threads,
                           "; it is 0 (the process's) to ", kMostThreads);
  }
  if (options.memory_limit > static_cast<uint64_t>(INT64_MAX)) {
    return InvalidArgument("tsr_context_options: memory_limit is ", options.memory_limit);
  }
  if (options.adapter != 0 && (options.adapter < -1 || options.adapter >= model->adapters)) {
    return InvalidArgument("tsr_context_options: adapter is ", options.adapter,
                           "; the model was loaded with ", model->adapters);
  }
  auto context = std::make_unique<tsr_context>(model, std::move(pin));
  context->adapter = options.adapter;
  if (options.threads > 0) context->threads = std::make_unique<ThreadPool>(options.threads);
  if (options.memory_limit > 0) {
    context->memory = Allocator::MakeCpu("memory of the context");
    context->memory->SetLimit(static_cast<int64_t>(options.memory_limit));
  }
  AddHandle(context.get(), HandleKind::kContext, &context->cancelled);
  *out = context.release();
  return OkStatus();
}

Status Release(tsr_context* context) {
  if (context == nullptr) return OkStatus();
  TESSERA_RETURN_IF_ERROR(RemoveHandle(context, HandleKind::kContext));
  delete context;
  return OkStatus();
}

ExecutionContext ExecutionOf(const tsr_context& context) {
  ExecutionContext execution;
  execution.records = false;
  execution.threads = context.threads.get();
  execution.cpu_allocator = context.memory.get();
  execution.cancelled = &context.cancelled;
  return execution;
}

}  // namespace

Call::Call(tsr_context* context, Pin pin)
    : context_(context),
      pin_(std::move(pin)),
      scope_(std::make_unique<ExecutionScope>(ExecutionOf(*context))) {}

StatusOr<Call> Call::Begin(tsr_context* context) {
  TESSERA_ASSIGN_OR_RETURN(Pin pin, Pin::Alone(context, HandleKind::kContext));
  return Call(context, std::move(pin));
}

}  // namespace tessera::runtime

using tessera::runtime::AtBorder;
using tessera::runtime::HandleKind;

tsr_status* tsr_context_create(const tsr_model* model, const tsr_context_options* options,
                               tsr_context** out) {
  return AtBorder([&] { return tessera::runtime::Create(model, options, out); });
}

tsr_status* tsr_context_cancel(tsr_context* context) {
  return AtBorder([&] { return tessera::runtime::CancelHandle(context, HandleKind::kContext); });
}

tsr_status* tsr_context_release(tsr_context* context) {
  return AtBorder([&] { return tessera::runtime::Release(context); });
}
