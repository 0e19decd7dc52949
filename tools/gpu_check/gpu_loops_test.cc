// SPDX-License-Identifier: Apache-2.0
// Engines of a configuration on cuda:0: micro-batches by hand, captured steps, and both in turns.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/device.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/loop/initialize.h"

namespace tessera::train {
namespace {

constexpr int64_t kSteps = 9;

StatusOr<std::unique_ptr<models::Model>> BuildGpt(const nn::BuildContext& build) {
  return models::BuildModel({{"model_type", "gpt2"},
                             {"vocab_size", 61},
                             {"n_positions", 12},
                             {"n_embd", 16},
                             {"n_layer", 2},
                             {"n_head", 2}},
                            build);
}

data::Batch BatchOf(int64_t step, int64_t micro_batch) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 24; ++i) ids.push_back((i * i + micro_batch * 31 + step * 17) % 61);
  const Tensor tensor = Tensor::FromVector(ids, {2, 12});
  return {.rows = 2,
          .tokens = 24,
          .targets = 22,
          .tensors = {{keys::kInputIds, tensor}, {keys::kLabels, tensor}}};
}

using Weights = std::map<std::string, std::vector<float>>;

// `by_hand`: which steps are taken micro-batch by micro-batch.
Weights Train(const std::string& dtype, const std::function<bool(int64_t step)>& by_hand,
              const std::string& save = "") {
  RunConfig config;
  config.device = "cuda:0";
  config.dtype = dtype;
  config.gradient_accumulation_steps = 2;
  config.max_steps = kSteps;
  const auto engine = Initialize(BuildGpt, config);
  EXPECT_TRUE(engine.ok()) << Message(engine.status());
  if (!engine.ok()) return {};
  for (int64_t step = 0; step < kSteps; ++step) {
    if (by_hand(step)) {
      for (int64_t m = 0; m < 2; ++m) {
        (*engine)->Backward((**engine)(BatchOf(step, m).tensors));
        (*engine)->Step();
      }
    } else {
      int64_t m = 0;
      EXPECT_TRUE((*engine)
                      ->TrainBatch([&]() -> StatusOr<data::Batch> { return BatchOf(step, m++); })
                      .ok());
    }
  }
  EXPECT_EQ((*engine)->global_steps(), kSteps);
  if (!save.empty()) {
    EXPECT_TRUE((*engine)->SaveCheckpoint(save).ok());
  }
  Weights weights;
  for (const auto& [name, tensor] : (*engine)->model().StateDict()) {
    weights[name] = CopyTo(tensor, Device::Cpu()).ToVector<float>();
  }
  return weights;
}

TEST(GpuLoopsTest, PassesByHandAndCapturedStepsGiveTheSameBits) {
  const Status status = CheckDeviceAvailable(Device::Cuda(0));
  if (!status.ok()) GTEST_SKIP() << Message(status);
  for (const char* dtype : {"float32", "float16"}) {
    const Weights by_hand = Train(dtype, [](int64_t) { return true; });
    EXPECT_TRUE(Train(dtype, [](int64_t) { return false; }) == by_hand) << dtype;
    // A captured step continues after passes by hand.
    EXPECT_TRUE(Train(dtype, [](int64_t step) { return step % 5 == 4; }) == by_hand) << dtype;
  }
}

TEST(GpuLoopsTest, ACheckpointGoesOnOnTheCpu) {
  const Status status = CheckDeviceAvailable(Device::Cuda(0));
  if (!status.ok()) GTEST_SKIP() << Message(status);
  const std::string folder = testing::TempDir() + "/gpu_loops";
  std::filesystem::remove_all(folder);
  const Weights saved = Train(
      "float32", [](int64_t step) { return step == 0; }, folder);
  RunConfig config;
  config.max_steps = kSteps;
  const auto engine = Initialize(BuildGpt, config);
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  ASSERT_TRUE((*engine)->LoadCheckpoint(folder).ok());
  EXPECT_EQ((*engine)->global_steps(), kSteps);
  Weights loaded;
  for (const auto& [name, tensor] : (*engine)->model().StateDict()) {
    loaded[name] = tensor.ToVector<float>();
  }
  EXPECT_TRUE(loaded == saved);
}

}  // namespace
}  // namespace tessera::train
