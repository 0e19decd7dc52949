// SPDX-License-Identifier: Apache-2.0
// Which kernels compute attention of some shape on the GPU, Tessera's own or cuDNN's: tried once
// per shape, then remembered.
//
//   AttentionChoices choices([](const std::string& line) { std::cerr << line << '\n'; });
//   if (choices.Cudnn(shape, CurrentAttentionKernels(), !capturing, trial)) ...
//
// cuDNN is used for a shape only after its results have been compared with those of our own kernel
// on the operands of that very call. Thread-safe; free of CUDA.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_CHOICE_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_CHOICE_H_

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ops/attention/sdpa_graph.h"

namespace tessera {

enum class AttentionKernels : uint8_t {
  kMeasured,  // the faster of both, for shapes that are worth the measuring
  kOwn,       // which do not depend on measurements: the same bits in every process
  kCudnn,     // wherever cuDNN has an engine and agrees
};

// What was Set, else what the environment's TESSERA_ATTENTION says ("measure", "own" or "cudnn";
// anything else throws Error), else what the process's KernelChoice does (ops/kernel_choice.h).
AttentionKernels CurrentAttentionKernels();
// nullopt: unset. Returns what was set before.
std::optional<AttentionKernels> SetAttentionKernels(std::optional<AttentionKernels> kernels);
StatusOr<AttentionKernels> ParseAttentionKernels(std::string_view text);

// Those kernels for a scope, and the ones of before afterwards.
class AttentionKernelsScope {
 public:
  explicit AttentionKernelsScope(AttentionKernels kernels)
      : before_(SetAttentionKernels(kernels)) {}
  ~AttentionKernelsScope() { SetAttentionKernels(before_); }
  AttentionKernelsScope(const AttentionKernelsScope&) = delete;
  AttentionKernelsScope& operator=(const AttentionKernelsScope&) = delete;

 private:
  const std::optional<AttentionKernels> before_;
};

// How many forward and backward passes cuDNN has computed in this process.
int64_t CudnnAttentionCalls();
void CountCudnnAttentionCall();

// What cuDNN's backward pass may keep in memory: a batch that needs more is computed in parts. At
// first 1 GiB. Set returns what was set before, and counts for shapes that are not known yet.
size_t CudnnWorkspaceLimit();
size_t SetCudnnWorkspaceLimit(size_t bytes);

// How a shape is tried. All write the call's outputs.
struct AttentionTrial {
  // Compiles cuDNN's plan, or says why there is none.
  std::function<Status()> prepare;
  // Runs both. False: these operands cannot tell (they are all zero, or not finite). A status says
  // how the results differ.
  std::function<StatusOr<bool>()> agree;
  std::function<double(bool cudnn)> milliseconds;
};

class AttentionChoices {
 public:
  // cuDNN has to be faster by more than this.
  static constexpr double kMargin = 0.03;
  // Compiling takes up to a second, so that shapes beyond these, as those of growing sequences, run
  // in our own kernels.
  static constexpr size_t kMostShapes = 64;
  static constexpr int kMostComparisons = 4;

  explicit AttentionChoices(std::function<void(const std::string&)> say) : say_(std::move(say)) {}

  // True where cuDNN computes `shape`. Without `may_try` (a stream that is being captured) what is
  // known decides, and our own kernel where nothing is.
  bool Cudnn(const SdpaShape& shape, AttentionKernels kernels, bool may_try,
             const AttentionTrial& trial);
  // Never again for this shape; says why.
  void Drop(const SdpaShape& shape, const std::string& why);

  // Whether measuring is worth a second: neither decoding nor small.
  static bool IsWorthMeasuring(const SdpaShape& shape);

 private:
  struct Known {
    std::optional<bool> usable;  // unset: not yet compared
    std::optional<bool> faster;  // unset: not measured
    int comparisons = 0;
  };
  Known Compared(const SdpaShape& shape, Known known, bool loud, const AttentionTrial& trial);

  std::function<void(const std::string&)> say_;
  std::mutex mutex_;
  std::map<SdpaShape, Known> known_;
};

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_CHOICE_H_
