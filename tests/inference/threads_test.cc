// SPDX-License-Identifier: Apache-2.0
// Many threads at once with one model of each kind and one tokenizer, each in an execution context
// of its own: what comes out is what comes out alone. For ThreadSanitizer (--config=tsan) as well.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/execution_context.h"
#include "core/thread_pool.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/inference/small_models.h"

namespace tessera {
namespace {

using models::Model;

constexpr int kThreads = 8;

// What all threads share.
struct Shared {
  std::vector<std::unique_ptr<Model>> models;  // of kSmallModels
  std::vector<Bundle> inputs;
  std::vector<std::unique_ptr<data::Tokenizer>> tokenizers;
};

Shared MakeShared() {
  Shared shared;
  for (const char* model_type : kSmallModels) {
    shared.models.push_back(models::BuildModel(SmallConfig(model_type), {.seed = 3}).value());
    shared.inputs.push_back(SmallInputs(model_type));
  }
  for (const char* folder : {"transformers5/gpt2", "word_piece/uncased", "sentence_piece/llama",
                             "sentence_piece/t5", "tokenizer_json/bert"}) {
    shared.tokenizers.push_back(
        data::LoadTokenizer(std::string("data/tokenizer/testdata/") + folder).value());
  }
  return shared;
}

std::string Generated(const Model& gpt, uint64_t seed) {
  const data::ByteTokenizer bytes;
  models::GenerationConfig config{
      .max_new_tokens = 4, .do_sample = true, .seed = static_cast<int64_t>(seed)};
  models::GenerateOptions options{.tokenizer = &bytes};
  std::string told;
  options.on_token = [&](int64_t row, int64_t id, std::string_view text) {
    told += Concat(row, ":", id, " ", text, " ");
    return OkStatus();
  };
  const auto results = models::Generate(gpt, {{5, 8, 40}, {7}}, config, options).value();
  config.do_sample = false;
  config.num_beams = 2;
  const auto beams = models::Generate(gpt, {{9, 3}}, config).value();
  for (const int64_t id : beams[0].ids) told += Concat(id, " ");
  return told;
}

// The work of one thread; `seed` tells threads apart.
std::string Everything(const Shared& shared, uint64_t seed) {
  const ExecutionModeScope<&ExecutionContext::records> no_tape(false);
  std::string told;
  for (size_t i = 0; i < shared.models.size(); ++i) {
    told += FingerprintOf(shared.models[i]->Run(shared.inputs[i], {}));
  }
  told += Generated(*shared.models[0], seed);
  for (const auto& tokenizer : shared.tokenizers) {
    const auto ids = tokenizer->Encode(Concat("The naïve fox's ", seed, "th 漢字 test."));
    for (const int32_t id : ids) told += Concat(id, " ");
    told += tokenizer->Decode(ids);
  }
  return told;
}

TEST(ThreadsTest, EachHasWhatItWouldHaveAlone) {
  const Shared shared = MakeShared();
  std::vector<std::string> alone;
  for (int i = 0; i < kThreads; ++i) alone.push_back(Everything(shared, i));
  ASSERT_NE(alone[0], alone[1]);

  const Shared fresh = MakeShared();  // nothing of it is remembered from before
  std::vector<std::string> together(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ThreadPool own(2);
      const auto allocator = Allocator::MakeCpu("a thread's allocator");
      ExecutionContext context;
      if (i % 2 == 0) context.threads = &own;  // the others share the process's
      if (i % 3 == 0) context.cpu_allocator = allocator.get();
      const ExecutionScope scope(context);
      together[i] = Everything(fresh, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(together[i], alone[i]) << "thread " << i;
}

// A host starts and ends threads of its own while others compute.
TEST(ThreadsTest, ThreadsComeAndGoWhileThePoolWorks) {
  const Shared shared = MakeShared();
  const std::string alone = Everything(shared, 1);
  ThreadPool::OfProcess().SetNumThreads(3);
  std::atomic<bool> done{false};
  std::thread steady([&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Everything(shared, 1), alone);
    done = true;
  });
  int turns = 0;
  for (; !done || turns < 3; ++turns) {
    std::vector<std::thread> passing;
    for (int i = 0; i < 4; ++i) {
      passing.emplace_back([&] { EXPECT_EQ(Everything(shared, 1), alone); });
    }
    for (std::thread& thread : passing) thread.join();
  }
  steady.join();
  ThreadPool::OfProcess().SetNumThreads(AvailableCores());
}

// The time that this process has computed, on all its threads.
std::chrono::nanoseconds TimeComputed() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(ThreadsTest, IdleThreadsSleep) {
  ThreadPool pool(4);
  ExecutionContext context;
  context.threads = &pool;
  const ExecutionScope scope(context);
  std::atomic<int64_t> sum{0};
  ParallelFor(1000, 1, [&](int64_t begin, int64_t) { sum += begin; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = TimeComputed();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(TimeComputed() - before, std::chrono::milliseconds(30));
}

}  // namespace
}  // namespace tessera
