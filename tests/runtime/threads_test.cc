// SPDX-License-Identifier: Apache-2.0
// One model, contexts on eight threads: each has the bits that it has alone. For --config=tsan.
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tessera.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 3;

std::string Everything(const ModelHandle& model, const std::string& type, int thread) {
  tsr_context_options own = {};
  own.size = sizeof(own);
  own.threads = 2;
  const ContextHandle context = ContextOf(model, thread % 2 == 0 ? nullptr : &own);
  const NamedTensors in(SmallInputs(type));
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  EXPECT_EQ(CodeOf(tsr_forward(context.get(), in.tensors.data(), in.tensors.size(), &out, &count)),
            TSR_OK);
  const TensorsHandle owner(out);
  std::string text = TextOf(out, count);
  if (type == "gpt2" || type == "t5") {
    tsr_generate_options options = {};
    options.size = sizeof(options);
    options.max_new_tokens = 6;
    options.sampling = TSR_SAMPLING_ON;
    for (const int64_t id : GenerateWith(context.get(), {5, 6, 7}, &options).ids) {
      text += std::to_string(id) + " ";
    }
  }
  if (type == "bert") {
    int64_t ids[16];
    size_t tokens = 0;
    EXPECT_EQ(CodeOf(tsr_tokenize(model.get(), "abc de", 6, nullptr, ids, 16, &tokens)), TSR_OK);
    for (size_t i = 0; i < tokens; ++i) text += std::to_string(ids[i]) + " ";
  }
  return text;
}

class EveryFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(kSmallModels),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EveryFamily, ContextsOnManyThreadsHaveTheBitsTheyHaveAlone) {
  const ModelHandle model = LoadHandle(SmallModelFolder(GetParam()));
  const std::string alone = Everything(model, GetParam(), 0);
  EXPECT_FALSE(alone.empty());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(Everything(model, GetParam(), t), alone);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera
