// SPDX-License-Identifier: Apache-2.0
// A host's allocator: all memory is its own, and whatever it refuses is a status.
#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/tessera.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

// Refuses the requests from number `first` on (counted from 0; < 0: none), `many` of them.
struct HostMemory {
  std::atomic<int64_t> requests = 0;
  std::atomic<int64_t> live = 0;
  int64_t first = -1;
  int64_t many = 0;

  static void* Allocate(void* user, size_t bytes, size_t alignment) {
    auto* const self = static_cast<HostMemory*>(user);
    const int64_t number = self->requests++;
    if (self->first >= 0 && number >= self->first && number - self->first < self->many) {
      return nullptr;
    }
    void* const memory =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory != nullptr) ++self->live;
    return memory;
  }
  static void Release(void* user, void* memory) {
    --static_cast<HostMemory*>(user)->live;
    std::free(memory);
  }
};

// Never destroyed: what the library keeps for good it keeps here.
HostMemory& Host() {
  static auto* const host = new HostMemory;
  return *host;
}

void UseHostMemory() {
  static const tsr_allocator allocator = {HostMemory::Allocate, HostMemory::Release, &Host()};
  tsr_configuration configuration = {};
  configuration.size = sizeof(configuration);
  configuration.allocator = &allocator;
  configuration.threads = 2;
  ASSERT_EQ(CodeOf(tsr_configure(&configuration)), TSR_OK);
}

// Texts that a context keeps, saves, restores and forks, and single steps.
int UseKeptTexts(const tsr_model* model) {
  tsr_context_options options = {};
  options.size = sizeof(options);
  options.kept_texts = 2;
  tsr_context* context = nullptr;
  tsr_context* fork = nullptr;
  int64_t ids[] = {5, 6, 7, 8, 9, 10};
  double logprobs[6];
  std::string bytes;
  size_t size = 0;
  int code = CodeOf(tsr_context_create(model, &options, &context));
  for (size_t n = 3; n < 6 && code == TSR_OK; ++n) {
    code = CodeOf(tsr_step(context, ids, n, nullptr, &ids[n], nullptr, 0));
  }
  if (code == TSR_OK) code = CodeOf(tsr_logprobs(context, ids, 6, 0, logprobs, nullptr));
  if (code == TSR_OK) code = CodeOf(tsr_context_save_memory(context, nullptr, 0, &size));
  bytes.resize(size);
  if (code == TSR_OK) code = CodeOf(tsr_context_save_memory(context, bytes.data(), size, &size));
  if (code == TSR_OK) code = CodeOf(tsr_context_restore_memory(context, bytes.data(), size));
  if (code == TSR_OK) code = CodeOf(tsr_context_fork(context, &fork));
  if (code == TSR_OK) code = CodeOf(tsr_step(fork, ids, 6, nullptr, &ids[0], nullptr, 0));
  EXPECT_EQ(CodeOf(tsr_context_release(fork)), TSR_OK);
  // Whatever has failed, the context works when there is memory again.
  const int64_t first = std::exchange(Host().first, -1);
  if (code != TSR_OK && context != nullptr) {
    EXPECT_EQ(CodeOf(tsr_step(context, ids, 6, nullptr, &ids[0], nullptr, 0)), TSR_OK);
  }
  Host().first = first;
  EXPECT_EQ(CodeOf(tsr_context_release(context)), TSR_OK);
  return code;
}

// All that a host does with a model; the code of what failed first.
int UseModel(const std::string& type) {
  tsr_model* model = nullptr;
  tsr_context* context = nullptr;
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  const NamedTensors in(SmallInputs(type));
  int code = CodeOf(tsr_model_load(SmallModelArchive(type).c_str(), nullptr, &model));
  if (code == TSR_OK) code = CodeOf(tsr_context_create(model, nullptr, &context));
  if (code == TSR_OK) {
    code = CodeOf(tsr_forward(context, in.tensors.data(), in.tensors.size(), &out, &count));
  }
  if (code == TSR_OK && type == "gpt2") {
    tsr_generate_options options = {};
    options.size = sizeof(options);
    options.max_new_tokens = 3;
    const auto go_on = [](void*, const tsr_token*) { return 0; };
    code = CodeOf(tsr_generate_text(context, "Hello", 5, &options, go_on, nullptr));
    if (code == TSR_OK) code = UseKeptTexts(model);
  }
  if (code == TSR_OK && type == "bert") {
    int64_t ids[8];
    size_t tokens = 0;
    float vector[24];
    code = CodeOf(tsr_tokenize(model, "ab c", 4, nullptr, ids, 8, &tokens));
    if (code == TSR_OK) code = CodeOf(tsr_embed(context, ids, tokens, nullptr, vector, 24));
  }
  EXPECT_EQ(CodeOf(tsr_tensors_release(out)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_context_release(context)), TSR_OK);
  EXPECT_EQ(CodeOf(tsr_model_release(model)), TSR_OK);
  return code;
}

class EveryFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(kSmallModels),
                         [](const auto& family) { return std::string(family.param); });

// One request fails, each in turn; then all from that one on. A stride keeps the suite short;
// TESSERA_EVERY_ALLOCATION=1 leaves out none.
TEST_P(EveryFamily, WhatTheHostRefusesIsAStatus) {
  HostMemory& host = Host();
  host.first = -1;
  UseHostMemory();
  ASSERT_EQ(UseModel(GetParam()), TSR_OK);  // what is made once is there
  host.requests = 0;
  ASSERT_EQ(UseModel(GetParam()), TSR_OK);
  const int64_t requests = host.requests;
  EXPECT_GT(requests, 100);
  const int64_t live = host.live;
  const int64_t stride = std::getenv("TESSERA_EVERY_ALLOCATION") != nullptr ? 1 : 97;
  int64_t refused = 0;
  for (const int64_t many : {int64_t{1}, INT64_MAX}) {
    for (int64_t first = 0; first < requests; first += stride) {
      host.requests = 0;
      host.many = many;
      host.first = first;
      const int code = UseModel(GetParam());
      host.first = -1;
      // Some requests can be done without (a cache); none gives anything but these two.
      EXPECT_TRUE(code == TSR_RESOURCE_EXHAUSTED || (code == TSR_OK && many == 1))
          << "request " << first << ": " << code;
      refused += code == TSR_RESOURCE_EXHAUSTED ? 1 : 0;
    }
  }
  EXPECT_GT(refused, requests / stride);
  ASSERT_EQ(UseModel(GetParam()), TSR_OK);
  EXPECT_NEAR(static_cast<double>(host.live), static_cast<double>(live), 200);  // no leak
  ASSERT_EQ(CodeOf(tsr_configure(nullptr)), TSR_OK);
}

TEST(HostMemoryTest, AnAllocatorNeedsBothFunctions) {
  const tsr_allocator half = {HostMemory::Allocate, nullptr, nullptr};
  tsr_configuration configuration = {};
  configuration.size = sizeof(configuration);
  configuration.allocator = &half;
  EXPECT_EQ(CodeOf(tsr_configure(&configuration)), TSR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tessera
