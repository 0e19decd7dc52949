// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/partition.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "nn/attention.h"
#include "nn/cross_attention.h"

namespace tessera::dist {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Status CheckCut(int64_t blocks, int chunks) {
  if (chunks < 1) return InvalidArgument("a model cannot be cut into ", chunks, " chunks");
  if (chunks > blocks) {
    return InvalidArgument("a model of ", blocks, " blocks cannot be cut into ", chunks,
                           " chunks (pp times chunks per rank)");
  }
  return OkStatus();
}

// The least over all cuts of `join` over the chunks' costs: best[k][n] of the first n blocks in k
// chunks; a chunk above `limit` is not allowed. Returns the boundaries of one such cut.
template <typename Join>
std::vector<int> BestCut(const std::vector<double>& before, int chunks, double limit, Join join) {
  const int blocks = static_cast<int>(before.size()) - 1;
  std::vector<std::vector<double>> best(
      static_cast<size_t>(chunks) + 1,
      std::vector<double>(static_cast<size_t>(blocks) + 1, kInfinity));
  std::vector<std::vector<int>> from(static_cast<size_t>(chunks) + 1,
                                     std::vector<int>(static_cast<size_t>(blocks) + 1, 0));
  best[0][0] = 0;
  for (size_t k = 1; k <= static_cast<size_t>(chunks); ++k) {
    for (size_t end = k; end <= static_cast<size_t>(blocks); ++end) {
      for (size_t begin = k - 1; begin < end; ++begin) {
        const double cost = before[end] - before[begin];
        if (best[k - 1][begin] == kInfinity || cost > limit) continue;
        const double all = join(best[k - 1][begin], cost);
        if (all >= best[k][end]) continue;
        best[k][end] = all;
        from[k][end] = static_cast<int>(begin);
      }
    }
  }
  std::vector<int> cuts(static_cast<size_t>(chunks) + 1, blocks);
  for (size_t k = static_cast<size_t>(chunks); k > 0; --k) {
    cuts[k - 1] = from[k][static_cast<size_t>(cuts[k])];
  }
  return cuts;
}

}  // namespace

StatusOr<std::vector<int>> CutBlocks(const std::vector<double>& costs, int chunks) {
  TESSERA_RETURN_IF_ERROR(CheckCut(std::ssize(costs), chunks));
  std::vector<double> before = {0.0};
  for (const double cost : costs) {
    if (!(cost >= 0) || !std::isfinite(cost)) {
      return InvalidArgument("block ", before.size() - 1, " of the model costs ", cost);
    }
    before.push_back(before.back() + cost);
  }
  const std::vector<int> fastest = BestCut(
      before, chunks, kInfinity, [](double most, double cost) { return std::max(most, cost); });
  double limit = 0;
  for (size_t c = 0; c + 1 < fastest.size(); ++c) {
    limit = std::max(limit, before[static_cast<size_t>(fastest[c + 1])] -
                                before[static_cast<size_t>(fastest[c])]);
  }
  // Of the cuts whose most expensive chunk costs no more, the one nearest to equal shares.
  return BestCut(before, chunks, limit, [](double sum, double cost) { return sum + cost * cost; });
}

StatusOr<std::vector<int>> CutEvenly(int blocks, int chunks) {
  TESSERA_RETURN_IF_ERROR(CheckCut(blocks, chunks));
  return CutBlocks(std::vector<double>(static_cast<size_t>(blocks), 1.0), chunks);
}

BlockBuilder BlocksOf(const nlohmann::json& config, const nn::BuildContext& context) {
  return [config, context](int first, int end, Device device) {
    nn::BuildContext part = context;
    part.first_block = first;
    part.end_block = end;
    part.device = device;
    return models::BuildModel(config, part);
  };
}

// --- Computed costs ------------------------------------------------------------------------------

namespace {

// Of scores and of sums of values, for one of `tokens` tokens.
double AttentionProducts(const nn::SelfAttentionConfig& config, double tokens) {
  const double sides = config.causal ? 1 : 2;
  const double seen = config.window > 0
                          ? std::min(tokens, sides * static_cast<double>(config.window) - sides + 1)
                          : tokens;
  return 2 * seen * static_cast<double>(config.num_heads * nn::HeadDim(config));
}

double AttentionProducts(nn::Module& m, double tokens) {
  if (const nn::SelfAttention* self = m.self_attention()) {
    return AttentionProducts(self->config(), tokens);
  }
  // There are no dynamic casts in libraries for other programs.
  if (m.kind() != "CrossAttention") return 0;
  return AttentionProducts(static_cast<const nn::CrossAttention&>(m).config(), tokens);
}

}  // namespace

int64_t PlacesOfToken(const models::Model& model) {
  const bool pictures = model.keys_of_block(0).takes.has(keys::kPixelValues.name());
  return pictures ? model.max_positions() : 1;
}

StatusOr<std::vector<double>> ComputedBlockCosts(const BlockBuilder& build, int64_t tokens) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> first, build(0, 1, Device::Meta()));
  const int64_t places = PlacesOfToken(*first);
  const auto seen = static_cast<double>(places > 1 ? places : tokens);
  std::vector<double> costs;
  for (int block = 0; block < first->num_blocks(); ++block) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                             build(block, block + 1, Device::Meta()));
    double products = 0;
    model->VisitModules([&](nn::Module& m) {
      const bool looked_up = m.looks_up();
      for (const auto& p : m.own_parameters()) {
        const Shape& shape = p->tensor.shape();
        const auto elements = static_cast<double>(p->tensor.numel());
        const double rows = shape.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, shape[0]));
        products += looked_up ? elements / rows : elements;
      }
      products += AttentionProducts(m, seen);
    });
    // A picture's head is one layer on one of its places.
    const bool head = block + 1 == first->num_blocks();
    costs.push_back(head ? products : products * static_cast<double>(places));
  }
  return costs;
}

// --- Measured costs ------------------------------------------------------------------------------

std::vector<double> BlockTimes::Total() const {
  std::vector<double> total = forward;
  for (size_t b = 0; b < total.size(); ++b) total[b] += input_grad[b] + weight_grad[b];
  return total;
}

BlockTimes BlockTimes::OfChunks(const std::vector<int>& cuts) const {
  BlockTimes chunks;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const auto sum = [&](const std::vector<double>& times) {
      return std::accumulate(times.begin() + cuts[c], times.begin() + cuts[c + 1], 0.0);
    };
    chunks.forward.push_back(sum(forward));
    chunks.input_grad.push_back(sum(input_grad));
    chunks.weight_grad.push_back(sum(weight_grad));
  }
  return chunks;
}

namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The inputs as a block finds them: what differentiates is a result of the tape.
models::Bundle Fresh(const models::Bundle& inputs, const std::vector<std::string>& differentiates) {
  models::Bundle fresh;
  for (const auto& [name, t] : inputs.entries()) {
    Tensor copy = t.defined() ? t.Detach() : t;
    if (std::find(differentiates.begin(), differentiates.end(), name) != differentiates.end()) {
      Record("stage_input", {}, {copy}, nullptr);
    }
    fresh.SetNamed(name, copy);
  }
  return fresh;
}

struct OneRun {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  models::Bundle outputs = {};
  std::vector<std::string> differentiates = {};
};

OneRun RunOnce(models::Model& model, const models::Bundle& inputs,
               const models::RunOptions& options) {
  OneRun run;
  const Clock::time_point begin = Clock::now();
  const models::Bundle outputs = model.Run(inputs, options);
  run.forward = Since(begin);
  std::vector<Tensor> roots;
  std::vector<Tensor> grads;
  for (const auto& [name, t] : outputs.entries()) {
    if (!t.defined() || !RequiresGrad(t) || IsLocalName(name)) continue;
    if (outputs.has(keys::kLoss) && name != keys::kLoss.name()) continue;
    roots.push_back(t);
    grads.push_back(Full(t.shape(), 1e-3, t.dtype(), t.device()));
    run.differentiates.push_back(name);
  }
  for (const auto& [name, t] : outputs.entries()) {
    if (!IsLocalName(name)) run.outputs.SetNamed(name, t.defined() ? t.Detach() : t);
  }
  if (roots.empty()) return run;
  WeightGradQueue queue;
  const Clock::time_point backward = Clock::now();
  Backward(roots, grads, {.weight_queue = &queue, .queue_leaf_gradients = true});
  run.input_grad = Since(backward);
  const Clock::time_point weights = Clock::now();
  queue.Run();
  run.weight_grad = Since(weights);
  return run;
}

}  // namespace

StatusOr<BlockTimes> MeasureBlocks(const BlockBuilder& build, const models::Bundle& inputs,
                                   const models::RunOptions& options, int repeats) {
  BlockTimes times;
  models::Bundle bundle = inputs;
  std::vector<std::string> differentiates;
  Device device = Device::Cpu();
  for (const auto& [name, t] : inputs.entries()) device = t.device();
  for (int block = 0, blocks = 1; block < blocks; ++block) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model, build(block, block + 1, device));
    blocks = model->num_blocks();
    OneRun best = {.forward = kInfinity, .input_grad = kInfinity, .weight_grad = kInfinity};
    for (int r = 0; r <= std::max(1, repeats); ++r) {
      OneRun run = RunOnce(*model, Fresh(bundle, differentiates), options);
      model->ZeroGrad();
      best.outputs = std::move(run.outputs);
      best.differentiates = std::move(run.differentiates);
      if (r == 0) continue;
      best.forward = std::min(best.forward, run.forward);
      best.input_grad = std::min(best.input_grad, run.input_grad);
      best.weight_grad = std::min(best.weight_grad, run.weight_grad);
    }
    times.forward.push_back(best.forward);
    times.input_grad.push_back(best.input_grad);
    times.weight_grad.push_back(best.weight_grad);
    bundle = std::move(best.outputs);
    differentiates = std::move(best.differentiates);
  }
  return times;
}

}  // namespace tessera::dist
