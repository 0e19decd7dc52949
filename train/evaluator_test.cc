// SPDX-License-Identifier: Apache-2.0
#include "train/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "core/thread_communicator.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

const nlohmann::json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 5}, {"n_positions", 4},
                             {"n_embd", 4},          {"n_layer", 1},    {"n_head", 1}};

// Sample i is a row whose only token is i % 5 and which has i + 1 targets.
class Counting : public data::Dataset {
 public:
  explicit Counting(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    data::Batch batch;
    std::vector<int64_t> ids;
    for (const data::Sample& sample : samples) {
      if (sample.index == broken_) return DataLoss("sample ", broken_, " is broken");
      ids.push_back(sample.index % 5);
      batch.targets += sample.index + 1;
    }
    batch.rows = std::ssize(samples);
    batch.tensors.set(keys::kInputIds, Tensor::FromVector(ids, {batch.rows, 1}));
    return batch;
  }

 private:
  const int64_t size_;
  const int64_t broken_;
};

// Half of all tokens, how often it was asked, and every token.
class Halves : public EvaluationMetrics {
 public:
  size_t num_counts() const override { return 2; }
  StatusOr<std::vector<double>> Count(const data::Batch& batch, const BatchResult&) const override {
    std::vector<double> counts = {0, 1};
    for (const int64_t id : batch.at(keys::kInputIds).ToVector<int64_t>()) {
      counts[0] += 0.5 * static_cast<double>(id);
      counts.push_back(static_cast<double>(id));
    }
    return counts;
  }
  Reads reads() const override { return Reads::kTexts; }  // no logits
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    return {{"halves", sums[0]},
            {"batches", sums[1]},
            {"tokens", std::vector<double>(sums.begin() + 2, sums.end())}};
  }
};

struct Found {
  StatusOr<EvaluationResult> result = EvaluationResult();
  std::vector<int> passes;  // of each rank
};

// The loss of a batch is the sum of its tokens.
Found Evaluate(int ranks, const data::Dataset& dataset, int64_t max_batches = 0,
               bool collective = false) {
  Found found;
  found.passes.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
    const auto model = models::BuildModel(kGpt, {.seed = 1});
    EXPECT_TRUE(model.ok());
    int passes = 0;
    EvaluatorOptions options = {.objective = {.metrics = std::make_shared<Halves>()},
                                .forward_is_collective = collective};
    options.prediction_step = [&](const models::Bundle& batch, const models::RunOptions& run) {
      ++passes;
      EXPECT_FALSE(run.keep_logits);
      EXPECT_FALSE(run.context.training);
      double sum = 0;
      for (const int64_t id : batch.at(keys::kInputIds).ToVector<int64_t>()) {
        sum += static_cast<double>(id);
      }
      return models::Bundle{{keys::kLoss, Full({}, sum)}};
    };
    const Evaluator evaluator(**model, dist::Mesh(world, {}), options);
    auto result = evaluator.Run(BatchesOf(dataset, 2, max_batches));
    const std::lock_guard<std::mutex> lock(mutex);
    found.passes[static_cast<size_t>(world->rank())] = passes;
    if (world->rank() == 0) found.result = std::move(result);
  });
  return found;
}

TEST(EvaluatorTest, SharesBatchesOutAndFindsTheSame) {
  const Counting dataset(9);  // batches of 2, the fifth of 1
  for (const int ranks : {1, 2, 3}) {
    const Found found = Evaluate(ranks, dataset);
    ASSERT_TRUE(found.result.ok());
    EXPECT_EQ(found.result->loss, 16.0 / 45.0) << ranks;
    EXPECT_EQ(found.result->metrics->at("halves"), 8.0) << ranks;
    EXPECT_EQ(found.result->metrics->at("batches"), 5.0) << ranks;
    EXPECT_EQ(found.result->metrics->at("tokens").get<std::vector<double>>(),
              (std::vector<double>{0, 1, 2, 3, 4, 0, 1, 2, 3}))
        << ranks;
  }
  EXPECT_EQ(Evaluate(3, dataset).passes, (std::vector<int>{2, 2, 1}));
  // What a rank computes so that others can continue does not count.
  const Found together = Evaluate(3, dataset, 0, /*collective=*/true);
  EXPECT_EQ(together.passes, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(together.result->loss, 16.0 / 45.0);
  EXPECT_EQ(together.result->metrics->at("tokens").size(), 9U);
}

TEST(EvaluatorTest, TakesSoManyBatchesAtMost) {
  const Counting dataset(9);
  EXPECT_EQ(BatchesOf(dataset, 2).size, 5);
  EXPECT_EQ(BatchesOf(dataset, 2, 3).size, 3);
  EXPECT_EQ(BatchesOf(dataset, 2, 7).size, 5);
  const Found found = Evaluate(2, dataset, 2);
  EXPECT_EQ(found.result->loss, 6.0 / 10.0);
  EXPECT_EQ(found.passes, (std::vector<int>{1, 1}));
}

TEST(EvaluatorTest, WithoutATargetThereIsNoLoss) {
  class Unlabelled : public Counting {
   public:
    using Counting::Counting;
    StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
      TESSERA_ASSIGN_OR_RETURN(data::Batch batch, Counting::MakeBatch(samples));
      batch.targets = 0;
      return batch;
    }
  };
  for (const int ranks : {1, 2}) {
    const Found found = Evaluate(ranks, Unlabelled(5));
    ASSERT_TRUE(found.result.ok());
    EXPECT_EQ(found.result->targets, 0);
    EXPECT_TRUE(std::isnan(found.result->loss));
  }
  EXPECT_EQ(Evaluate(2, Counting(9)).result->targets, 45);
}

TEST(EvaluatorTest, ABatchThatCannotBeMadeIsEveryRanksFailure) {
  const Found found = Evaluate(2, Counting(9, /*broken=*/3));
  EXPECT_EQ(Message(found.result.status()), "rank 1: sample 3 is broken");
  EXPECT_EQ(found.passes, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace tessera::train
