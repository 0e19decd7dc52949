// SPDX-License-Identifier: Apache-2.0
// Runs with a wrong kernel in one micro-batch: it takes the place of the right one in its table
// (core/kernel_table.h), and changes the first element of what that gives. The comparison names the
// first operation that launches the kernel, and its element.
#include <functional>
#include <memory>

#include "core/kernel_table.h"
#include "ops/attention/attention_kernel.h"
#include "ops/cross_entropy/cross_entropy_kernel.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/elementwise/elementwise_kernel.h"
#include "ops/index/index_kernel.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/norm/norm_kernel.h"
#include "ops/reduction/reduction_kernel.h"
#include "train/testing/traced_runs.h"

namespace tessera::train {
namespace {

bool is_due = false;  // whether wrong kernels are wrong now

void Spoil(void* float32) { *static_cast<float*>(float32) += 0.25f; }

// While it lives, the table has a kernel that calls the right one and then `spoil`.
template <typename Args>
class WrongKernel {
 public:
  WrongKernel(KernelTable<Args>& table, void (*spoil)(const Args& args))
      : table_(table), before_(table) {
    right_ = table.For(Device::Cpu());
    spoil_ = spoil;
    KernelTable<Args> wrong(table.name());
    wrong.Register(DeviceType::kCpu, &Launch);
    table_ = wrong;
  }
  ~WrongKernel() { table_ = before_; }
  WrongKernel(const WrongKernel&) = delete;
  WrongKernel& operator=(const WrongKernel&) = delete;

 private:
  static void Launch(const Args& args) {
    right_(args);
    if (is_due) spoil_(args);
  }

  inline static typename KernelTable<Args>::Fn right_ = nullptr;
  inline static void (*spoil_)(const Args& args) = nullptr;
  KernelTable<Args>& table_;
  const KernelTable<Args> before_;
};

template <typename Args>
std::function<std::shared_ptr<void>()> Wrong(KernelTable<Args>& table,
                                             void (*spoil)(const Args& args)) {
  return [&table, spoil] { return std::make_shared<WrongKernel<Args>>(table, spoil); };
}

struct Case {
  std::function<std::shared_ptr<void>()> plant;
  const char* operation;  // the pass and what differs in it
};

std::vector<Case> Cases() {
  return {
      {Wrong<NormArgs>(norm_forward, [](const NormArgs& a) { Spoil(a.y); }),
       "forward: result 0 of 'layer_norm_residual' in transformer.h.0.ln_1"},
      {Wrong<NormGradArgs>(norm_backward, [](const NormGradArgs& a) { Spoil(a.dx); }),
       "backward: the gradient for input 0 of 'layer_norm' in transformer.ln_f"},
      {Wrong<MatmulArgs>(matmul_kernel, [](const MatmulArgs& a) { Spoil(a.c); }),
       "forward: result 0 of 'linear' in transformer.h.0.attn.c_attn"},
      {Wrong<AttentionArgs>(attention_forward, [](const AttentionArgs& a) { Spoil(a.o); }),
       "forward: result 0 of 'attention' in transformer.h.0.attn"},
      {Wrong<AttentionGradArgs>(attention_backward,
                                [](const AttentionGradArgs& a) { Spoil(a.dq); }),
       "backward: the gradient for input 0 of 'attention' in transformer.h.3.attn"},
      {Wrong<CrossEntropyStatsArgs>(cross_entropy_stats,
                                    [](const CrossEntropyStatsArgs& a) { Spoil(a.target_logit); }),
       "forward: result 0 of 'cross_entropy'"},
      {Wrong<CrossEntropyGradArgs>(cross_entropy_grad,
                                   [](const CrossEntropyGradArgs& a) { Spoil(a.dx); }),
       "backward: the gradient for input 0 of 'cross_entropy'"},
      {Wrong<DropoutArgs>(dropout_kernel, [](const DropoutArgs& a) { Spoil(a.out); }),
       "forward: result 0 of 'dropout' in transformer.drop"},
      {Wrong<UnaryArgs>(unary_kernel, [](const UnaryArgs& a) { Spoil(a.out); }),
       "forward: result 0 of 'gelu_tanh' in transformer.h.0.mlp"},
      {Wrong<BinaryArgs>(binary_kernel, [](const BinaryArgs& a) { Spoil(a.out); }),
       "forward: result 0 of 'add'"},
      {Wrong<TakeArgs>(take_kernel, [](const TakeArgs& a) { Spoil(a.out); }),
       "forward: result 0 of 'embedding' in transformer.wpe"},
      {Wrong<PutArgs>(put_kernel, [](const PutArgs& a) { Spoil(a.x); }),
       "backward: the gradient for input 0 of 'embedding' in transformer.wte"},
      {Wrong<SumArgs>(sum_kernel, [](const SumArgs& a) { Spoil(a.out); }),
       "forward: result 0 of 'cross_entropy'"},
  };
}

class PlantedKernelsTest : public TracedRuns {};

TEST_F(PlantedKernelsTest, AWrongKernelIsNamedAtItsFirstOperation) {
  const RunConfig good = Traced("good");
  Run(good);
  for (const Case& wrong : Cases()) {
    for (const auto& [step, micro_batch] : {std::pair(2, 0), std::pair(3, 1)}) {
      SCOPED_TRACE(Concat(wrong.operation, ", step ", step));
      const Stopwatch watch;
      RunConfig bad = Traced("bad");
      bad.overwrite = true;
      const PlantedFault fault = {.before_pass = [&](nn::Module&, const TracedPass& pass) {
        is_due = pass.step == step && pass.micro_batch == micro_batch;
      }};
      is_due = false;
      std::shared_ptr<void> planted = wrong.plant();
      Run(bad, 1, fault);
      const TraceComparison found = Compared(good, bad);
      EXPECT_EQ(found.difference, Concat("step ", step, ": rank 0, micro-batch ", micro_batch, ", ",
                                         wrong.operation, " differs"));
      ASSERT_TRUE(found.in_a && found.in_b);
      is_due = false;
      const std::vector<RetakenTensor> y = RetakeWith(bad, 1, fault, *found.in_b);
      planted = nullptr;
      const auto x = Retake(good.out, *found.in_a);
      ASSERT_TRUE(x.ok()) << Message(x.status());
      EXPECT_NE(FirstOf(*x, y).find("["), std::string::npos) << FirstOf(*x, y);
      EXPECT_LT(watch.seconds(), kMostSeconds);
    }
  }
}

}  // namespace
}  // namespace tessera::train
