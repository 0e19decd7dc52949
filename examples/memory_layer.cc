// SPDX-License-Identifier: Apache-2.0
// A layer of one's own that is split over ranks, on one rank, on two and on three: the last part of
// docs/writing-a-model.md, which shows what it prints.
#include <iostream>

#include <tessera/core/thread_communicator.h>
#include <tessera/nn/module.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/matmul/matmul.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/ops/view/view.h>

using namespace tessera;

namespace {

struct MemoryConfig {
  int64_t width = 0;
  int64_t slots = 0;
};

// y = sum over slots of relu(x . key)^2 value (Geva et al. 2021, "Transformer Feed-Forward Layers
// Are Key-Value Memories", with the activation of So et al. 2021). Each rank of the tensor-parallel
// group has some of the slots. B batch, T tokens, C width, S slots of this rank.
class Memory : public nn::Module {
 public:
  Memory(const MemoryConfig& config, const nn::Scope& scope)
      : Module(scope),
        keys_SC_(AddParameter("keys", Slots(config), nn::Init::Normal(1))),
        values_SC_(AddParameter("values", Slots(config), nn::Init::Normal(1))) {}

  // x [B, T, C] to [B, T, C], whole on every rank; shares of T under sequence parallelism.
  Tensor Forward(const Tensor& x_BTC, const nn::ForwardContext& context) const {
    return Call(x_BTC, [&] {
      const Tensor hits_BTS = Square(
          Relu(Linear(Whole(x_BTC, context), keys_SC_.tensor, Tensor(), LinearLayout::kOutIn)));
      return Joined(Linear(hits_BTS, values_SC_.tensor, Tensor(), LinearLayout::kInOut));
    });
  }

 private:
  // Which rows of the [slots, width] parameter this rank has.
  Placement Slots(const MemoryConfig& config) const {
    const Group& group = build().tensor_parallel;
    const Shape shape = {config.slots, config.width};
    if (group == nullptr) return Placement::Whole(shape);
    const Share mine = EvenShare(config.slots, group->size(), group->rank());
    return Placement::Split(shape, 0, {{config.slots, mine.begin, mine.count}});
  }
  // Every rank reads all tokens; back come the sums of the ranks' gradients.
  Tensor Whole(const Tensor& x, const nn::ForwardContext& context) const {
    const Group& group = build().tensor_parallel;
    return build().sequence_parallel ? AllGatherToGroup(x, 1, context.sequence_length, group)
                                     : CopyToGroup(x, group);
  }
  // The ranks' sums over their own slots, added up.
  Tensor Joined(const Tensor& partial) const {
    const Group& group = build().tensor_parallel;
    return build().sequence_parallel ? ReduceScatterToGroup(partial, 1, group)
                                     : ReduceFromGroup(partial, group);
  }

  nn::Parameter& keys_SC_;
  nn::Parameter& values_SC_;
};

// The same tokens and the same seed everywhere; `shares` of the tokens under sequence parallelism.
void RunOn(int ranks, bool shares) {
  RunRanks(ranks, [shares](const Group& group) {
    const nn::Scope root =
        nn::Scope::Root({.seed = 1, .tensor_parallel = group, .sequence_parallel = shares});
    Memory memory({.width = 2, .slots = 7}, root);
    const Tensor x = RequireGrad(Tensor::FromVector<float>({1, -1, 0.5, 2}, {1, 2, 2}));
    const Tensor in = shares ? ScatterToGroup(x, 1, group) : x;
    const Tensor out = memory.Forward(in, {.sequence_length = 2});
    const Tensor y = shares ? GatherFromGroup(out, 1, 2, group) : out;
    Backward(Sum(y));
    if (group->rank() > 0) return;
    std::cout << memory.FindParameter("keys")->tensor.size(0) << " of 7 slots, " << in.size(1)
              << " of 2 tokens\n  y        " << Reshape(y, {4}) << "\n  gradient "
              << Reshape(Grad(x), {4}) << "\n";
  });
}

}  // namespace

int main() {
  for (const int ranks : {1, 2, 3}) RunOn(ranks, /*shares=*/false);
  RunOn(2, /*shares=*/true);
}
