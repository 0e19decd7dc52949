// SPDX-License-Identifier: Apache-2.0
// What Model::Run does for families of one's own: recomputation, and builds that they cannot have.
#include "models/model.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/allocator.h"
#include "core/thread_communicator.h"
#include "models/family.h"
#include "models/language_model.h"
#include "nlohmann/json.hpp"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

constexpr int64_t kVocab = 13;
constexpr int64_t kWidth = 16;
constexpr TensorKey kStream{"stream", KeyElements::kFloating, "[B, T, C]", "what layers change"};
constexpr TensorKey kSkip{"skip", KeyElements::kFloating, "[B, T, C]", "sums of layers"};
constexpr TensorKey kScale{"scale", KeyElements::kFloating, "[1]", "of layers"};

// Its layers pass on two tensors with gradients, neither called `hidden`, and read a floating
// input.
class TwoStreams : public Model {
 public:
  TwoStreams(const nlohmann::json& json, const nn::BuildContext& build)
      : Model(nn::Scope::Root(build)),
        json_(json),
        table_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("table")),
        head_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("head")) {
    for (int i = 0; i < json.at("layers").get<int>(); ++i) {
      up_.push_back(std::make_unique<nn::ReplicatedLinear>(
          nn::LinearConfig{
              .in_features = kWidth, .out_features = kWidth, .weight_init = nn::Init::Normal(0.3)},
          Child(Concat("up.", i))));
      dropout_.push_back(std::make_unique<nn::Dropout>(0.2, Child(Concat("dropout.", i))));
    }
  }

  int num_blocks() const override { return static_cast<int>(up_.size()) + 2; }
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }
  int64_t vocab_size() const override { return kVocab; }

  BlockKeys keys_of_block(int block) const override {
    if (block == 0) return {.takes = {keys::kInputIds}, .gives = {kStream, kSkip}};
    if (block + 1 == num_blocks()) {
      return {.takes = {kStream, kSkip}, .may_take = {keys::kTargets}, .gives = {keys::kLoss}};
    }
    return {.takes = {kStream, kSkip}, .may_take = {kScale}, .gives = {kStream, kSkip}};
  }

  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override {
    runs.push_back(block);
    if (block == 0) {
      const Tensor x = table_.Forward(in.at(keys::kInputIds));
      in.set(kStream, x);
      in.set(kSkip, Square(x));
      return in;
    }
    if (block + 1 == num_blocks()) {
      const Tensor logits = head_.Forward(Add(in.at(kStream), in.at(kSkip)), options.context);
      return {{keys::kLoss, CrossEntropy(logits, in.at(keys::kTargets),
                                         head_.LossOptions(LossOptionsOf(options)))}};
    }
    const auto i = static_cast<size_t>(block - 1);
    Tensor y = Gelu(up_[i]->Forward(in.at(kStream), options.context));
    if (in.has(kScale)) y = Mul(y, in.at(kScale));
    const Tensor skip = Add(in.at(kSkip), y);
    in.set(kStream, dropout_[i]->Forward(Gelu(Add(y, skip)), options.context));
    in.set(kSkip, skip);
    return in;
  }

  mutable std::vector<int> runs;

 private:
  const nlohmann::json json_;
  nn::VocabParallelEmbedding table_;
  nn::VocabParallelHead head_;
  std::vector<std::unique_ptr<nn::ReplicatedLinear>> up_;
  std::vector<std::unique_ptr<nn::Dropout>> dropout_;
};

Family MakeFamily() {
  Family family{.model_type = "two_streams"};
  family.build = [](const nlohmann::json& json,
                    const nn::BuildContext& build) -> StatusOr<std::unique_ptr<Model>> {
    return std::make_unique<TwoStreams>(json, build);
  };
  return family;
}
const FamilyRegistration registration(MakeFamily);

Family MakeOneRankFamily() {
  Family family = MakeFamily();
  family.model_type = "one_rank";
  family.splits_layers = family.has_stages = false;
  return family;
}
const FamilyRegistration one_rank_registration(MakeOneRankFamily);

std::unique_ptr<TwoStreams> Build(int layers, const nn::BuildContext& build = {.seed = 3}) {
  auto model = BuildModel({{"model_type", "two_streams"}, {"layers", layers}}, build);
  if (!model.ok()) throw Error("test", Message(model.status()));
  return std::unique_ptr<TwoStreams>(static_cast<TwoStreams*>(model->release()));
}

Bundle Inputs(bool scaled) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 4 * 32; ++i) ids.push_back((7 * i + 3) % kVocab);
  const Tensor tokens = Tensor::FromVector(ids, Shape{4, 32});
  Bundle in = {{keys::kInputIds, tokens}, {keys::kTargets, tokens}};
  if (scaled) in.set(kScale, Full({1}, 0.5));
  return in;
}

struct Trained {
  double loss = 0;
  std::vector<std::vector<float>> gradients;
  int64_t kept = 0;  // bytes, between forward and backward pass
  std::vector<int> runs;
};

Trained Train(int layers, bool recompute, bool scaled) {
  const auto model = Build(layers);
  if (recompute) model->set_checkpoint_activations(true);
  Allocator& cpu = Allocator::For(Device::Cpu());
  const Bundle in = Inputs(scaled);
  const int64_t before = cpu.stats().current_bytes;
  RunOptions options;
  options.context.training = true;
  const Tensor loss = model->Run(in, options).at(keys::kLoss);
  Trained result;
  result.loss = loss.ToVector<double>()[0];
  result.kept = cpu.stats().current_bytes - before;
  Backward(loss);
  for (const nn::Parameter* p : model->Parameters()) {
    result.gradients.push_back(Grad(p->tensor).ToVector<float>());
  }
  result.runs = model->runs;
  return result;
}

TEST(ModelTest, BlocksOfOnesOwnFamilyAreRecomputed) {
  for (const int layers : {1, 2, 5}) {
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(Concat(layers, " layers, ", scaled));
      const Trained once = Train(layers, false, scaled);
      const Trained twice = Train(layers, true, scaled);
      EXPECT_EQ(once.loss, twice.loss);
      EXPECT_EQ(once.gradients, twice.gradients);
      EXPECT_LT(twice.kept, once.kept);
      std::vector<int> runs;
      for (int block = 0; block < layers + 2; ++block) runs.push_back(block);
      EXPECT_EQ(once.runs, runs);
      for (int block = layers; block > 0; --block) runs.push_back(block);
      EXPECT_EQ(twice.runs, runs);
    }
  }
}

TEST(ModelTest, WithoutATapeNothingIsRecomputed) {
  const auto model = Build(3);
  model->set_checkpoint_activations(true);
  const NoGrad no_grad;
  model->Run(Inputs(false), {});
  EXPECT_EQ(model->runs, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(ModelTest, WhatHasNoBlocksBetweenCannotBeRecomputed) {
  const auto model = Build(0);
  model->set_checkpoint_activations(false);
  try {
    model->set_checkpoint_activations(true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no block between its first and its last"),
              std::string::npos)
        << error.what();
  }
}

TEST(ModelTest, FamiliesThatShareNoSequencesAreNotBuiltToDoSo) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& group) {
    nn::BuildContext build = {.seed = 3, .tensor_parallel = group, .sequence_parallel = true};
    const auto model = BuildModel({{"model_type", "two_streams"}, {"layers", 1}}, build);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(Message(model.status()),
              "sequence_parallel: models of two_streams do not share sequences out over "
              "tensor-parallel ranks; leave it out");
    build.sequence_parallel = false;
    EXPECT_TRUE(BuildModel({{"model_type", "two_streams"}, {"layers", 1}}, build).ok());
    const auto whole = BuildModel({{"model_type", "one_rank"}, {"layers", 1}}, build);
    EXPECT_EQ(
        Message(whole.status()),
        "tp: models of one_rank do not split layers over tensor-parallel ranks; leave it out");
  });
}

TEST(ModelTest, FamiliesWithoutStagesAreNotCut) {
  nn::BuildContext build = {.seed = 3};
  EXPECT_TRUE(BuildModel({{"model_type", "one_rank"}, {"layers", 1}}, build).ok());
  build.end_block = 1;
  EXPECT_EQ(Message(BuildModel({{"model_type", "one_rank"}, {"layers", 1}}, build).status()),
            "pp: models of one_rank are not cut into stages; leave it out");
}

}  // namespace
}  // namespace tessera::models
