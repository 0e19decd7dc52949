// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_choice.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "ops/kernel_choice.h"

namespace tessera {
namespace {

// Nothing where the variable is not set.
std::optional<AttentionKernels> FromEnvironment() {
  const char* text = std::getenv("TESSERA_ATTENTION");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const StatusOr<AttentionKernels> parsed = ParseAttentionKernels(text);
  TESSERA_CHECK(parsed.ok(), "attention", "TESSERA_ATTENTION: ", Message(parsed.status()));
  return *parsed;
}

std::atomic<std::optional<AttentionKernels>>& Setting() {
  static std::atomic<std::optional<AttentionKernels>> setting = FromEnvironment();
  return setting;
}

std::atomic<int64_t> cudnn_calls{0};
std::atomic<size_t> cudnn_workspace_limit{size_t{1} << 30};

}  // namespace

StatusOr<AttentionKernels> ParseAttentionKernels(std::string_view text) {
  if (text == "measure") return AttentionKernels::kMeasured;
  if (text == "own") return AttentionKernels::kOwn;
  if (text == "cudnn") return AttentionKernels::kCudnn;
  return InvalidArgument("'", text, "' is none of measure, own, cudnn");
}

AttentionKernels CurrentAttentionKernels() {
  const std::optional<AttentionKernels> set = Setting();
  if (set) return *set;
  return CurrentKernelChoice().alike ? AttentionKernels::kOwn : AttentionKernels::kMeasured;
}

std::optional<AttentionKernels> SetAttentionKernels(std::optional<AttentionKernels> kernels) {
  return Setting().exchange(kernels);
}

int64_t CudnnAttentionCalls() { return cudnn_calls; }
void CountCudnnAttentionCall() { ++cudnn_calls; }

size_t CudnnWorkspaceLimit() { return cudnn_workspace_limit; }
size_t SetCudnnWorkspaceLimit(size_t bytes) { return cudnn_workspace_limit.exchange(bytes); }

bool AttentionChoices::IsWorthMeasuring(const SdpaShape& s) {
  constexpr double kLeastProducts = 1 << 28;
  return s.q_len >= 128 && static_cast<double>(s.batch * s.heads) * static_cast<double>(s.q_len) *
                                   static_cast<double>(s.k_len) * static_cast<double>(s.head_dim) >=
                               kLeastProducts;
}

bool AttentionChoices::Cudnn(const SdpaShape& shape, AttentionKernels kernels, bool may_try,
                             const AttentionTrial& trial) {
  if (kernels == AttentionKernels::kOwn) return false;
  const bool forced = kernels == AttentionKernels::kCudnn;
  if (!forced && !IsWorthMeasuring(shape)) return false;
  Known known;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(shape);
    if (found != known_.end()) {
      known = found->second;
    } else if (known_.size() >= kMostShapes) {
      return false;
    }
  }
  if (known.usable == false) return false;
  if (known.usable == true && (forced || known.faster)) return forced || *known.faster;
  if (!may_try) return false;
  if (!known.usable) known = Compared(shape, known, forced, trial);
  if (known.usable == true && !forced) {
    known.faster = trial.milliseconds(true) < trial.milliseconds(false) * (1.0 - kMargin);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  known_[shape] = known;
  return known.usable == true && (forced || *known.faster);
}

AttentionChoices::Known AttentionChoices::Compared(const SdpaShape& shape, Known known, bool loud,
                                                   const AttentionTrial& trial) {
  const auto refuse = [&](const Status& why, bool aloud) {
    known.usable = false;
    if (aloud)
      say_(Concat("attention: cuDNN is not used for ", shape.ToString(), ": ", Message(why)));
    return known;
  };
  const Status prepared = trial.prepare();
  // That cuDNN has nothing to offer is no news, unless it was asked for.
  if (!prepared.ok()) return refuse(prepared, loud);
  const StatusOr<bool> agreed = trial.agree();
  if (!agreed.ok()) return refuse(agreed.status(), true);
  if (*agreed) {
    known.usable = true;
  } else if (++known.comparisons >= kMostComparisons) {
    known.usable = false;
  }
  return known;
}

void AttentionChoices::Drop(const SdpaShape& shape, const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    known_[shape].usable = false;
  }
  say_(Concat("attention: cuDNN is no longer used for ", shape.ToString(), ": ", why));
}

}  // namespace tessera
