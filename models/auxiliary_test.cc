// SPDX-License-Identifier: Apache-2.0
// Losses from inside a model: their scale, their gradients, recomputation, what is refused.
#include "models/auxiliary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/noise_key_table.h"
#include "models/language_model.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr int64_t kVocab = 11;
constexpr int64_t kWidth = 6;
constexpr double kWeight = 0.25;

// Each of its two layers adds the mean square of what it gives, and one more counts what it sees.
class Squaring : public Model {
 public:
  explicit Squaring(double weight)
      : Model(nn::Scope::Root({})),
        weight_(weight),
        table_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("table")),
        one_(Layer(), Child("one")),
        two_(Layer(), Child("two")),
        head_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("head")) {}

  int num_blocks() const override { return 4; }
  BlockKeys keys_of_block(int block) const override {
    if (block == 0) {
      return {.takes = {keys::kInputIds}, .gives = {keys::kHidden, keys::kPositionIds}};
    }
    if (block == 3) return LanguageModelKeys();
    return {.takes = {keys::kHidden}, .gives = {keys::kHidden}};
  }
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override {
    if (block == 0) {
      in.set(keys::kHidden, table_.Forward(in.at(keys::kInputIds), {}));
      in.set(keys::kPositionIds, in.at(keys::kInputIds));
      return in;
    }
    const Tensor h = in.at(keys::kHidden);
    if (block == 3) {
      options.AddAuxiliary("seen", Full({}, 3.0), 0);
      options.Log("largest", Max(Reshape(h, {-1}), 0));
      options.Log("layers", 2);
      return LanguageModelOutputs(head_, h, in.get(keys::kTargets), in, options);
    }
    const Tensor y = (block == 1 ? one_ : two_).Forward(h);
    options.AddAuxiliary("square", Mean(Square(y)), weight_);
    in.set(keys::kHidden, y);
    return in;
  }
  Tensor Layers(const Tensor& ids, int count) const {
    const Tensor h = one_.Forward(table_.Forward(ids, {}));
    return count == 1 ? h : two_.Forward(h);
  }
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }
  int64_t vocab_size() const override { return kVocab; }

 private:
  static nn::LinearConfig Layer() {
    return {.in_features = kWidth, .out_features = kWidth, .weight_init = nn::Init::Normal(0.5)};
  }
  const nlohmann::json json_ = nlohmann::json::object();
  const double weight_;
  nn::VocabParallelEmbedding table_;
  nn::ReplicatedLinear one_, two_;
  mutable nn::VocabParallelHead head_;
};

Bundle Inputs() {
  return {{keys::kInputIds, RandomIndices({2, 5}, kVocab, 1)},
          {keys::kTargets, RandomIndices({2, 5}, kVocab, 2)}};
}

std::vector<float> GradientsOf(Model& model) {
  std::vector<float> all;
  for (nn::Parameter* p : model.Parameters()) {
    const Tensor grad = Grad(p->tensor);
    const std::vector<float> own =
        (grad.defined() ? grad : Zeros(p->tensor.shape(), DType::kFloat32)).ToVector<float>();
    all.insert(all.end(), own.begin(), own.end());
  }
  model.ZeroGrad();
  return all;
}

TEST(AuxiliaryTest, TheLossHasThemAtTheScaleOfItsReduction) {
  Squaring with(kWeight);
  Squaring without(0);
  const auto run = [](const Squaring& model, LossReduction reduction, double targets) {
    return model.Run(Inputs(), {.loss_reduction = reduction, .loss_targets = targets});
  };
  const Bundle mean = run(with, LossReduction::kMean, 7);
  const std::map<std::string, Tensor> values = AuxiliariesOf(mean);
  ASSERT_EQ(values.size(), 4U);
  const double square = values.at("square").Item();
  EXPECT_EQ(values.at("seen").Item(), 3);
  EXPECT_EQ(values.at("layers").Item(), 2);
  const Tensor h = with.Layers(Inputs().at(keys::kInputIds), 2);
  EXPECT_EQ(values.at("largest").Item(), Max(Reshape(h, {-1}), 0).Item());
  EXPECT_FALSE(RequiresGrad(values.at("square")));
  EXPECT_NEAR(mean.at(keys::kAuxiliaryLoss).Item(), kWeight * square, 1e-6);
  const auto loss = [](const Bundle& outputs) { return outputs.at(keys::kLoss).Item(); };
  const double bare = loss(run(without, LossReduction::kMean, 0));
  EXPECT_GT(square, 0.01);
  EXPECT_NEAR(loss(mean), bare + kWeight * square, 1e-6);
  EXPECT_NEAR(loss(run(with, LossReduction::kSum, 7)), 10 * bare + 7 * kWeight * square, 1e-5);
  EXPECT_NEAR(loss(run(with, LossReduction::kSum, 0)), 10 * bare, 1e-5);
  const Bundle none = run(with, LossReduction::kNone, 7);
  EXPECT_EQ(none.at(keys::kLoss).ToVector<float>(),
            run(without, LossReduction::kNone, 0).at(keys::kLoss).ToVector<float>());
  const Tensor own = Full({}, 2.0);
  EXPECT_NEAR(
      WithAuxiliaries(own, none, {.loss_reduction = LossReduction::kSum, .loss_targets = 7}).Item(),
      2 + 7 * kWeight * square, 1e-6);
}

TEST(AuxiliaryTest, GradientsAreThoseOfTheSumAndRecomputationKeepsThem) {
  Squaring with(kWeight);
  Backward(with.Run(Inputs(), {}).at(keys::kLoss));
  const std::vector<float> gradients = GradientsOf(with);
  with.set_checkpoint_activations(true);
  Backward(with.Run(Inputs(), {}).at(keys::kLoss));
  EXPECT_TRUE(GradientsOf(with) == gradients);

  // By hand: a summed loss, and what the layers give, on the tape of the same model.
  Squaring bare(0);
  Squaring seven(kWeight);
  const RunOptions sum = {.loss_reduction = LossReduction::kSum, .loss_targets = 7};
  Backward(seven.Run(Inputs(), sum).at(keys::kLoss));
  const std::vector<float> summed = GradientsOf(seven);
  Backward(bare.Run(Inputs(), sum).at(keys::kLoss));
  const std::vector<float> of_targets = GradientsOf(bare);
  const Tensor one = bare.Layers(Inputs().at(keys::kInputIds), 1);
  const Tensor two = bare.Layers(Inputs().at(keys::kInputIds), 2);
  Backward(Mul(Add(Mean(Square(one)), Mean(Square(two))), 7 * kWeight));
  const std::vector<float> of_squares = GradientsOf(bare);
  ASSERT_EQ(of_squares.size(), summed.size());
  double moved = 0;
  for (size_t i = 0; i < summed.size(); ++i) {
    EXPECT_NEAR(summed[i], of_targets[i] + of_squares[i], 1e-5);
    moved += std::abs(of_squares[i]);
  }
  EXPECT_GT(moved, 0.1);
}

TEST(AuxiliaryTest, WhatIsRefused) {
  const RunOptions outside;
  EXPECT_THROW(outside.AddAuxiliary("loss", Full({}, 1.0), 1), Error);
  Auxiliaries found;
  EXPECT_THROW(found.Add("a.b", Full({}, 1.0), 1), Error);
  EXPECT_THROW(found.Add("", Full({}, 1.0), 1), Error);
  EXPECT_THROW(found.Add("rows", Full({2}, 1.0), 1), Error);
  EXPECT_THROW(found.Add("count", Full({}, 1.0, DType::kInt64), 1), Error);
  NoiseKeyTable keys(Device::Cpu());
  const NoiseKeyTable::Scope captured(&keys);
  EXPECT_THROW(found.Add("loss", Full({}, 1.0), 1), Error);
}

}  // namespace
}  // namespace tessera::models
