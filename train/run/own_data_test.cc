// SPDX-License-Identifier: Apache-2.0
// A program's own data, sample by sample or as a stream, beside the built-in data of the same
// samples: the same run on every layout, stopped or not; what fails in a program's function is one
// line with the sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/batch_keys.h"
#include "core/thread_communicator.h"
#include "data/dataset/map_dataset.h"
#include "data/dataset/stream_dataset.h"
#include "data/dataset/subset.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

using data::MapDataset;
using data::Sample;
using data::StreamDataset;
using data::StreamReader;

// One sample as a program might have it: tensors without rows.
Bundle SampleOf(const data::Dataset& rows, int64_t index) {
  const data::Batch batch = *rows.MakeBatch(std::vector<Sample>{{.index = index, .position = 0}});
  Bundle sample;
  for (const auto& [name, t] : batch.tensors.entries()) {
    sample.SetNamed(name, Tensor::FromVector(t.ToVector<int64_t>(), {t.numel()}));
  }
  return sample;
}

using Replace = std::function<std::shared_ptr<const data::Dataset>(
    const std::shared_ptr<const data::Dataset>& builtin)>;

class OwnDataTest : public SmallRuns {
 protected:
  RunConfig Usual(const std::string& out) const {
    RunConfig config = Config(out);
    config.batch_size = 2;
    config.gradient_accumulation_steps = 4;
    config.log_interval = 1;
    config.deterministic = true;
    config.eval_strategy = "no";
    return config;
  }
  // Trains with other training data than the configuration's; what goes wrong, in words.
  static std::string Run(const RunConfig& config, int ranks, const Replace& replace,
                         bool resume = false, int64_t stop_after = 0) {
    std::string failure;
    std::mutex mutex;
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      EXPECT_TRUE(mesh.ok()) << Message(mesh.status());
      auto setup = PrepareRun(config, *mesh);
      EXPECT_TRUE(setup.ok()) << Message(setup.status());
      if (replace != nullptr) setup->data.train = replace(setup->data.train);
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
      StopAt stop(stop_after);
      trainer.AddCallback(&stop);
      const auto result = trainer.Train({.resume = resume, .output = nullptr});
      const std::lock_guard<std::mutex> lock(mutex);
      if (!result.ok()) failure = Message(result.status());
    });
    return failure;
  }
  // The same run, with the step's micro-batches on other ranks.
  struct Layout {
    const char* name;
    int ranks;
    std::function<void(RunConfig&)> change;
  };
  static std::vector<Layout> Layouts() {
    return {{"one", 1, [](RunConfig&) {}},
            {"dp", 2, [](RunConfig& c) { c.gradient_accumulation_steps = 2; }},
            {"zero3", 2,
             [](RunConfig& c) {
               c.gradient_accumulation_steps = 2;
               c.zero = 3;
             }},
            {"pp", 2, [](RunConfig& c) { c.pp = 2; }},
            {"dp_pp", 4, [](RunConfig& c) {
               c.pp = 2;
               c.gradient_accumulation_steps = 2;
             }}};
  }
};

TEST_F(OwnDataTest, SamplesByNumberAreTheBuiltInRun) {
  const RunConfig plain = Usual("plain");
  EXPECT_EQ(Run(plain, 1, nullptr), "");
  const Replace map = [](const std::shared_ptr<const data::Dataset>& rows) {
    return std::make_shared<MapDataset<Bundle>>(
        rows->size(), [rows](int64_t index) -> StatusOr<Bundle> { return SampleOf(*rows, index); },
        data::StackSamples);
  };
  for (const Layout& layout : Layouts()) {
    RunConfig config = Usual(layout.name);
    layout.change(config);
    EXPECT_EQ(Run(config, layout.ranks, map), "") << layout.name;
    EXPECT_EQ(Losses(config), Losses(plain)) << layout.name;
  }
}

// In the order of the built-in data without shuffling: over and over, `samples` of them.
Replace Stream(int64_t samples, int64_t shuffle_buffer, std::atomic<int>* collated = nullptr) {
  return [=](const std::shared_ptr<const data::Dataset>& rows) {
    return std::make_shared<StreamDataset<Bundle>>(data::StreamOptions<Bundle>{
        .open = [=](int64_t) -> StatusOr<StreamReader<Bundle>> {
          return [=, next = int64_t{0}]() mutable -> StatusOr<std::optional<Bundle>> {
            if (next == samples) return std::optional<Bundle>();
            return std::optional(SampleOf(*rows, next++));
          };
        },
        .collate = [=](std::span<const Bundle> items) -> StatusOr<data::Batch> {
          if (collated != nullptr) *collated += static_cast<int>(items.size());
          return data::StackSamples(items);
        },
        .shuffle_buffer = shuffle_buffer,
        .seed = 5});
  };
}

TEST_F(OwnDataTest, AStreamIsTheBuiltInRunInOrder) {
  RunConfig plain = Usual("plain");
  plain.shuffle = false;
  EXPECT_EQ(Run(plain, 1,
                [](const std::shared_ptr<const data::Dataset>& rows) {
                  return std::make_shared<data::Subset>(rows, 0, 23);  // less than three steps
                }),
            "");
  for (const Layout& layout : Layouts()) {
    RunConfig config = Usual(layout.name);
    layout.change(config);
    EXPECT_EQ(Run(config, layout.ranks, Stream(23, 0)), "") << layout.name;
    EXPECT_EQ(Losses(config), Losses(plain)) << layout.name;
  }
}

TEST_F(OwnDataTest, AShuffledStreamIsAFunctionOfThePosition) {
  RunConfig ordered = Usual("ordered");
  EXPECT_EQ(Run(ordered, 1, Stream(200, 0)), "");
  RunConfig whole = Usual("whole");
  std::atomic<int> collated = 0;
  EXPECT_EQ(Run(whole, 1, Stream(200, 16, &collated)), "");
  EXPECT_NE(Losses(whole), Losses(ordered));
  for (const Layout& layout : Layouts()) {
    RunConfig config = Usual(layout.name);
    layout.change(config);
    EXPECT_EQ(Run(config, layout.ranks, Stream(200, 16)), "") << layout.name;
    EXPECT_EQ(Losses(config), Losses(whole)) << layout.name;
  }
  RunConfig stopped = Usual("stopped");
  EXPECT_EQ(Run(stopped, 1, Stream(200, 16), false, /*stop_after=*/5), "");
  collated = 0;
  EXPECT_EQ(Run(stopped, 1, Stream(200, 16, &collated), /*resume=*/true), "");
  EXPECT_EQ(Losses(stopped), Losses(whole));
  EXPECT_LT(collated, 3 * 8 + 5 * 2 + 1) << "what was trained on is read again, not collated";
}

// Every sample is drawn once in each pass, near its place in the stream.
TEST(StreamDatasetTest, ABufferShufflesWithoutLosingAnything) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t buffer = 1 + static_cast<int64_t>(seed) % 9;
    const StreamDataset<int64_t> stream(
        {.open = [](int64_t pass) -> StatusOr<StreamReader<int64_t>> {
           return [pass, next = int64_t{0}]() mutable -> StatusOr<std::optional<int64_t>> {
             if (next == 40) return std::optional<int64_t>();
             return 40 * pass + next++;
           };
         },
         .collate = [](std::span<const int64_t> items) -> StatusOr<data::Batch> {
           return data::BatchOf(
               {{keys::kInputIds,
                 Tensor::FromVector(std::vector<int64_t>(items.begin(), items.end()),
                                    {std::ssize(items), 1})}});
         },
         .shuffle_buffer = buffer,
         .seed = seed});
    std::vector<Sample> line;
    for (int64_t p = 0; p < 200; ++p) line.push_back({.index = 0, .position = p});
    const std::vector<int64_t> drawn =
        stream.MakeBatch(line)->at(keys::kInputIds).ToVector<int64_t>();
    std::vector<int64_t> sorted = drawn;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    for (int64_t p = 0; p < 200; ++p) EXPECT_LT(drawn[static_cast<size_t>(p)], p + buffer);
    // Backwards, and some of them only.
    const std::vector<Sample> some = {line[150], line[3], line[4], line[151]};
    EXPECT_EQ(stream.MakeBatch(some)->at(keys::kInputIds).ToVector<int64_t>(),
              (std::vector<int64_t>{drawn[150], drawn[3], drawn[4], drawn[151]}));
  }
}

TEST_F(OwnDataTest, WhatFailsIsOneLineWithTheSample) {
  const auto fails = [&](const Replace& replace, const std::string& part) {
    RunConfig config = Usual("fails");
    config.overwrite = true;
    const std::string line = Run(config, 1, replace);
    EXPECT_NE(line.find(part), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  };
  const auto map = [](int64_t size, auto get, auto collate) -> Replace {
    return [=](const std::shared_ptr<const data::Dataset>&) {
      return std::make_shared<MapDataset<int64_t>>(size, get, collate);
    };
  };
  const auto number = [](int64_t index) -> StatusOr<int64_t> { return index; };
  const auto none = [](std::span<const int64_t>) -> StatusOr<data::Batch> {
    return InvalidArgument("no table");
  };
  fails(map(
            1, [](int64_t) -> StatusOr<int64_t> { throw std::runtime_error("gone"); }, none),
        "sample 0: gone");
  fails(map(
            1, [](int64_t) -> StatusOr<int64_t> { return NotFound("no file x"); }, none),
        "sample 0: no file x");
  fails(map(1, number, none), "the batch of sample 0: no table");
  fails(map(1, number,
            [](std::span<const int64_t>) -> StatusOr<data::Batch> { throw std::bad_alloc(); }),
        "the batch of sample 0: std::bad_alloc");
  fails(Stream(0, 0), "sample 0 of the stream: the stream has no samples in pass 0");
  fails(
      [](const std::shared_ptr<const data::Dataset>& rows) {
        return std::make_shared<MapDataset<Bundle>>(
            2,
            [rows](int64_t index) -> StatusOr<Bundle> {
              Bundle sample = SampleOf(*rows, 0);
              if (index == 1) sample.set(keys::kTargets, Zeros({3}, DType::kInt64));
              return sample;
            },
            data::StackSamples);
      },
      "'targets' is ");
  RunConfig config = Usual("fails");
  config.max_steps.reset();
  EXPECT_EQ(Run(config, 1, Stream(9, 0)),
            "max_steps is missing: the training data do not say how many samples they have");
  config.max_steps = 3;
  config.save_strategy = "epoch";
  EXPECT_EQ(Run(config, 1, Stream(9, 0)),
            "save_strategy is epoch, but the training data do not say how many samples they have");
}

}  // namespace
}  // namespace tessera::train
