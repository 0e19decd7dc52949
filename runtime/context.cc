// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <cstring>
#include <utility>
#include <vector>

#include "runtime/border.h"

namespace tessera::runtime {
namespace {

constexpr int64_t kMostKeptTexts = 1 << 20;

StatusOr<std::unique_ptr<tsr_context>> Make(const tsr_model* model,
                                            const tsr_context_options* given) {
  TESSERA_ASSIGN_OR_RETURN(Pin pin, Pin::Share(model, HandleKind::kModel));
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
  if (options.kept_texts < 0 || options.kept_texts > kMostKeptTexts) {
    return InvalidArgument("tsr_context_options: kept_texts is ", options.kept_texts,
                           "; it is 0 (none) to ", kMostKeptTexts);
  }
  auto context = std::make_unique<tsr_context>(model, std::move(pin));
  context->options = options;
  if (options.threads > 0) context->threads = std::make_unique<ThreadPool>(options.threads);
  if (options.memory_limit > 0) {
    context->memory = Allocator::MakeCpu("memory of the context");
    context->memory->SetLimit(static_cast<int64_t>(options.memory_limit));
  }
  return context;
}

void HandOut(std::unique_ptr<tsr_context> context, tsr_context** out) {
  AddHandle(context.get(), HandleKind::kContext, &context->cancelled);
  *out = context.release();
}

Status Create(const tsr_model* model, const tsr_context_options* given, tsr_context** out) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<tsr_context> context, Make(model, given));
  HandOut(std::move(context), out);
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

// The texts of the copy lie in its own memory.
Status CopyTexts(models::ContinuousBatch& texts, const Call& call, tsr_context* copy) {
  const size_t count = texts.RestingTokens().size();
  copy->kept = MakeBatch(call.model(), copy->options);
  for (size_t i = 0; i < count; ++i) {
    models::RestingText text = texts.CopyResting(i);
    const ExecutionScope scope(ExecutionOf(*copy));
    TESSERA_RETURN_IF_ERROR(copy->kept->AddResting(std::move(text)));
  }
  return OkStatus();
}

Status Fork(tsr_context* context, tsr_context** out) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<tsr_context> copy,
                           Make(&call.model(), &context->options));
  if (context->kept != nullptr) {
    TESSERA_RETURN_IF_ERROR(CopyTexts(*context->kept, call, copy.get()));
  }
  HandOut(std::move(copy), out);
  return OkStatus();
}

Status Clear(tsr_context* context) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  context->kept = nullptr;
  return OkStatus();
}

// What a context tells, `size` bytes of which the caller has.
template <typename Info>
Status CheckInfo(const Info* info, const char* name, size_t* size) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(info, "info"));
  std::memcpy(size, info, sizeof(*size));
  if (*size >= sizeof(*size) && *size <= sizeof(Info)) return OkStatus();
  return InvalidArgument(name, ": size is ", *size, "; set it to sizeof(", name, ")");
}

Status Describe(tsr_context* context, tsr_context_info* out) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  size_t size = 0;
  TESSERA_RETURN_IF_ERROR(CheckInfo(out, "tsr_context_info", &size));
  tsr_context_info info = {};
  info.size = size;
  if (context->kept != nullptr) {
    for (const std::vector<int64_t>& text : context->kept->RestingTokens()) {
      ++info.kept_texts;
      info.kept_tokens += std::ssize(text);
    }
    const models::ContinuousBatchCounts now = context->kept->counts();
    info.cache_bytes = static_cast<uint64_t>(now.pages_in_use * now.page_bytes);
  }
  if (context->memory != nullptr) {
    const AllocatorStats stats = context->memory->stats();
    info.memory_bytes = static_cast<uint64_t>(stats.current_bytes);
    info.memory_peak = static_cast<uint64_t>(stats.peak_bytes);
  }
  info.tokens_read = context->counts.tokens_read;
  info.tokens_reused = context->counts.tokens_taken;
  info.tokens_written = context->counts.tokens_made;
  std::memcpy(out, &info, size);
  return OkStatus();
}

Status Memory(tsr_memory_info* out) {
  size_t size = 0;
  TESSERA_RETURN_IF_ERROR(CheckInfo(out, "tsr_memory_info", &size));
  const AllocatorStats stats = Allocator::For(Device::Cpu()).stats();
  tsr_memory_info info = {};
  info.size = size;
  info.bytes = static_cast<uint64_t>(stats.current_bytes);
  info.peak = static_cast<uint64_t>(stats.peak_bytes);
  info.reserved = static_cast<uint64_t>(stats.reserved_bytes);
  std::memcpy(out, &info, size);
  return OkStatus();
}

}  // namespace

std::unique_ptr<models::ContinuousBatch> MakeBatch(const tsr_model& model,
                                                   const tsr_context_options& options) {
  return std::make_unique<models::ContinuousBatch>(
      *model.model, models::ContinuousBatchOptions{.tokenizer = model.tokenizer.get(),
                                                   .resting = options.kept_texts});
}

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

tsr_status* tsr_context_fork(tsr_context* context, tsr_context** out) {
  return AtBorder([&] { return tessera::runtime::Fork(context, out); });
}

tsr_status* tsr_context_clear(tsr_context* context) {
  return AtBorder([&] { return tessera::runtime::Clear(context); });
}

tsr_status* tsr_context_describe(tsr_context* context, tsr_context_info* info) {
  return AtBorder([&] { return tessera::runtime::Describe(context, info); });
}

tsr_status* tsr_memory(tsr_memory_info* info) {
  return AtBorder([&] { return tessera::runtime::Memory(info); });
}

tsr_status* tsr_context_release(tsr_context* context) {
  return AtBorder([&] { return tessera::runtime::Release(context); });
}
