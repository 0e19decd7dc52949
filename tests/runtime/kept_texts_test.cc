// SPDX-License-Identifier: Apache-2.0
// What a context keeps of its texts: nothing is computed twice, the bits are those of a context
// that keeps nothing, and what is saved is restored by the model that it is of, and by no other.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "gtest/gtest.h"
#include "runtime/tessera.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

using Ids = std::vector<int64_t>;

ContextHandle Keeping(const ModelHandle& model, int64_t texts, uint64_t memory_limit = 0) {
  tsr_context_options options = {};
  options.size = sizeof(options);
  options.kept_texts = texts;
  options.memory_limit = memory_limit;
  return ContextOf(model, &options);
}

tsr_context_info InfoOf(const ContextHandle& context) {
  tsr_context_info info = {};
  info.size = sizeof(info);
  EXPECT_EQ(CodeOf(tsr_context_describe(context.get(), &info)), TSR_OK);
  return info;
}

// So many new tokens, the likeliest or samples.
Ids Write(const ContextHandle& context, const Ids& prompt, int64_t tokens, double temperature = 0) {
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = tokens;
  options.temperature = temperature;
  return GenerateWith(context.get(), prompt, &options).ids;
}

Ids Numbers(size_t count, int64_t factor) {
  Ids ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(i + 1) * factor % 251);
  return ids;
}

Ids Joined(const Ids& a, const Ids& b) {
  Ids both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

std::string SavedBytes(const ContextHandle& context) {
  size_t size = 0;
  EXPECT_EQ(CodeOf(tsr_context_save_memory(context.get(), nullptr, 0, &size)), TSR_OK);
  std::string bytes(size, '\0');
  std::string message;
  EXPECT_EQ(CodeOf(tsr_context_save_memory(context.get(), bytes.data(), size, &size), &message),
            TSR_OK)
      << message;
  EXPECT_EQ(size, bytes.size());
  return bytes;
}

int Restore(const ContextHandle& context, const std::string& bytes,
            std::string* message = nullptr) {
  return CodeOf(tsr_context_restore_memory(context.get(), bytes.data(), bytes.size()), message);
}

TEST(KeptTextsTest, ATurnComputesItsNewTokensAlone) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  for (const double temperature : {0.0, 0.9}) {
    const ContextHandle plain = ContextOf(model);
    const ContextHandle keeping = Keeping(model, 1);
    Ids text = Numbers(100, 7);
    int64_t read = 0;
    int64_t reused = 0;
    int64_t written = 0;
    int64_t all = 0;
    for (const size_t turn : {size_t{0}, size_t{400}, size_t{3}}) {
      text = Joined(text, Numbers(turn, 11));
      const Ids answer = Write(keeping, text, 20, temperature);
      EXPECT_EQ(answer, Write(plain, text, 20, temperature)) << turn;
      const int64_t now = InfoOf(keeping).tokens_read;
      // The last token of an answer was not read yet.
      const int64_t fresh = turn == 0 ? 100 : static_cast<int64_t>(turn) + 1;
      EXPECT_EQ(now - read, fresh);
      read = now;
      reused += std::ssize(text) - fresh;
      written += std::ssize(answer);
      all += std::ssize(text);
      text = Joined(text, answer);
    }
    EXPECT_EQ(InfoOf(keeping).kept_texts, 1);
    EXPECT_EQ(InfoOf(keeping).kept_tokens, std::ssize(text) - 1);
    EXPECT_EQ(InfoOf(keeping).tokens_written, written);
    EXPECT_EQ(InfoOf(keeping).tokens_reused, reused);
    EXPECT_GT(InfoOf(keeping).cache_bytes, 0u);
    EXPECT_EQ(InfoOf(plain).kept_texts, 0);
    EXPECT_EQ(InfoOf(plain).tokens_reused, 0);
    EXPECT_EQ(InfoOf(plain).tokens_read, all);
  }
}

TEST(KeptTextsTest, AnotherEndIsReadFromWhereItDiffers) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const ContextHandle plain = ContextOf(model);
  const ContextHandle keeping = Keeping(model, 2);
  const Ids text = Numbers(90, 7);
  const Ids other(text.begin(), text.begin() + 70);
  EXPECT_EQ(Write(keeping, text, 9), Write(plain, text, 9));
  EXPECT_EQ(Write(keeping, Joined(other, {5, 6}), 9), Write(plain, Joined(other, {5, 6}), 9));
  EXPECT_EQ(InfoOf(keeping).tokens_reused, 70);
  EXPECT_EQ(InfoOf(keeping).kept_texts, 2);
  // Both are there still; a third takes the place of the first.
  EXPECT_EQ(Write(keeping, text, 9), Write(plain, text, 9));
  EXPECT_EQ(InfoOf(keeping).tokens_reused, 70 + 89);
  EXPECT_EQ(Write(keeping, Numbers(50, 3), 9), Write(plain, Numbers(50, 3), 9));
  EXPECT_EQ(InfoOf(keeping).kept_texts, 2);
  ASSERT_EQ(CodeOf(tsr_context_clear(keeping.get())), TSR_OK);
  EXPECT_EQ(InfoOf(keeping).kept_texts, 0);
  EXPECT_EQ(InfoOf(keeping).cache_bytes, 0u);
  EXPECT_EQ(Write(keeping, text, 9), Write(plain, text, 9));
  EXPECT_EQ(InfoOf(keeping).tokens_reused, 70 + 89);
}

TEST(KeptTextsTest, ATextThatItsCallbackEndsIsKept) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const ContextHandle keeping = Keeping(model, 1);
  const Ids text = Numbers(60, 7);
  int calls = 0;
  const auto third = [](void* user, const tsr_token*) {
    return ++*static_cast<int*>(user) == 3 ? 1 : 0;
  };
  ASSERT_EQ(CodeOf(tsr_generate(keeping.get(), text.data(), text.size(), nullptr, third, &calls)),
            TSR_OK);
  EXPECT_EQ(InfoOf(keeping).kept_tokens, 62);
  EXPECT_EQ(Write(keeping, text, 9), Write(ContextOf(model), text, 9));
  EXPECT_EQ(InfoOf(keeping).tokens_reused, 59);
}

TEST(KeptTextsTest, AForkContinuesByItself) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  ContextHandle first = Keeping(model, 2, 64 << 20);
  const Ids a = Numbers(80, 7);
  const Ids b = Numbers(45, 3);
  Write(first, a, 9);
  Write(first, b, 9);
  tsr_context* made = nullptr;
  std::string message;
  ASSERT_EQ(CodeOf(tsr_context_fork(first.get(), &made), &message), TSR_OK) << message;
  const ContextHandle fork(made);
  EXPECT_EQ(InfoOf(fork).kept_texts, 2);
  EXPECT_EQ(InfoOf(fork).kept_tokens, InfoOf(first).kept_tokens);
  EXPECT_GT(InfoOf(fork).memory_bytes, 0u);
  // Each its own way, and after the other has gone.
  const Ids plain_a = Write(ContextOf(model), Joined(a, {1}), 9);
  EXPECT_EQ(Write(fork, Joined(a, {2}), 9), Write(ContextOf(model), Joined(a, {2}), 9));
  EXPECT_EQ(Write(first, Joined(a, {1}), 9), plain_a);
  first.reset();
  EXPECT_EQ(Write(fork, Joined(b, {2}), 9), Write(ContextOf(model), Joined(b, {2}), 9));
  EXPECT_EQ(InfoOf(fork).tokens_reused, 80 + 45);
}

TEST(KeptTextsTest, AFileIsRestoredByAnotherContext) {
  const std::string path = testing::TempDir() + "/kept.safetensors";
  const Ids a = Numbers(300, 7);
  const Ids b = Numbers(45, 3);
  Ids answer;
  int64_t length_of_b = 0;
  std::string bytes;
  {
    const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
    const ContextHandle context = Keeping(model, 2);
    answer = Write(context, a, 30);
    length_of_b = std::ssize(b) + std::ssize(Write(context, b, 30)) - 1;
    std::string message;
    ASSERT_EQ(CodeOf(tsr_context_save(context.get(), path.c_str()), &message), TSR_OK) << message;
    bytes = SavedBytes(context);
    EXPECT_EQ(bytes, *ReadFile(path));
    // What was saved stays kept.
    EXPECT_EQ(InfoOf(context).kept_texts, 2);
    size_t size = 0;
    EXPECT_EQ(CodeOf(tsr_context_save_memory(context.get(), bytes.data(), 10, &size)),
              TSR_OUT_OF_RANGE);
    EXPECT_EQ(size, bytes.size());
  }
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const Ids more = Joined(Joined(a, answer), Numbers(400, 11));
  const Ids expected = Write(ContextOf(model), more, 20);
  for (const bool file : {true, false}) {
    const ContextHandle context = Keeping(model, 2);
    std::string message;
    if (file) {
      ASSERT_EQ(CodeOf(tsr_context_restore(context.get(), path.c_str()), &message), TSR_OK)
          << message;
    } else {
      ASSERT_EQ(Restore(context, bytes, &message), TSR_OK) << message;
    }
    EXPECT_EQ(InfoOf(context).kept_tokens, 299 + std::ssize(answer) + length_of_b);
    EXPECT_EQ(SavedBytes(context), bytes);
    EXPECT_EQ(Write(context, more, 20), expected);
    EXPECT_EQ(InfoOf(context).tokens_read, 401);
  }
  // A context that keeps fewer texts restores the last ones.
  const ContextHandle one = Keeping(model, 1);
  ASSERT_EQ(Restore(one, bytes), TSR_OK);
  EXPECT_EQ(InfoOf(one).kept_tokens, length_of_b);
}

TEST(KeptTextsTest, EveryDTypeIsRestored) {
  for (const tsr_dtype dtype : {TSR_FLOAT32, TSR_BFLOAT16, TSR_FLOAT16}) {
    tsr_load_options load = {};
    load.size = sizeof(load);
    load.dtype = dtype;
    const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt), &load);
    const ContextHandle context = Keeping(model, 1);
    const Ids text = Numbers(70, 7);
    const Ids answer = Write(context, text, 9);
    const ContextHandle other = Keeping(model, 1);
    std::string message;
    ASSERT_EQ(Restore(other, SavedBytes(context), &message), TSR_OK) << message;
    const Ids more = Joined(Joined(text, answer), {1, 2});
    EXPECT_EQ(Write(other, more, 9), Write(ContextOf(model), more, 9)) << dtype;
    EXPECT_EQ(InfoOf(other).tokens_read, 3);
  }
}

// Wrong files are refused, and the context keeps what it kept.
TEST(KeptTextsTest, WhatIsNotOfTheModelIsRefused) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const ContextHandle source = Keeping(model, 1);
  const Ids text = Numbers(40, 7);
  Write(source, text, 5);
  const std::string bytes = SavedBytes(source);
  const ContextHandle context = Keeping(model, 1);
  Write(context, Numbers(20, 3), 5);
  const auto refused = [&](const ContextHandle& by, const std::string& wrong) {
    std::string message;
    EXPECT_NE(Restore(by, wrong, &message), TSR_OK);
    return message;
  };
  const auto has = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  has(refused(ContextOf(model), bytes), "kept_texts");
  const ModelHandle small = LoadHandle(SmallModelFolder("gpt2"));
  has(refused(Keeping(small, 1), bytes), "of another model");
  tsr_load_options load = {};
  load.size = sizeof(load);
  load.dtype = TSR_BFLOAT16;
  const ModelHandle rounded = LoadHandle(SmallModelFolder(kLongGpt), &load);
  has(refused(Keeping(rounded, 1), bytes), "of another model");
  // Other weights of the same configuration: the keys tell.
  const std::string folder = testing::TempDir() + "/other_weights";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(SmallModelFolder(kLongGpt), folder);
  std::string weights = *ReadFile(folder + "/model.safetensors");
  for (size_t i = weights.size() / 2; i + 4 <= weights.size(); i += 4) {
    weights[i + 3] = static_cast<char>(weights[i + 3] ^ 0x80);
  }
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << weights;
  const ModelHandle changed = LoadHandle(folder);
  has(refused(Keeping(changed, 1), bytes), "weights");
  for (const size_t at : {size_t{0}, size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    refused(context, damaged);
  }
  std::string renamed = bytes;
  renamed.replace(renamed.find("text.0.keys.0"), 13, "text.0.kays.0");
  std::string lacks;
  EXPECT_EQ(Restore(context, renamed, &lacks), TSR_DATA_LOSS);
  has(lacks, "text.0.keys.0");
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, bytes.size() - 1}) {
    refused(context, bytes.substr(0, size));
  }
  std::string message;
  EXPECT_EQ(CodeOf(tsr_context_restore(context.get(), "/no/such"), &message), TSR_NOT_FOUND);
  EXPECT_EQ(CodeOf(tsr_context_save(context.get(), "/no/such/file"), &message), TSR_NOT_FOUND);
  EXPECT_EQ(InfoOf(context).kept_tokens, 24);
  EXPECT_EQ(Restore(context, bytes), TSR_OK);
  EXPECT_EQ(InfoOf(context).kept_tokens, 44);
}

TEST(KeptTextsTest, ModelsWithoutCacheKeepNothing) {
  const ModelHandle model = LoadHandle(SmallModelFolder("t5"));
  const ContextHandle context = Keeping(model, 3);
  EXPECT_EQ(Write(context, {5, 6, 7}, 5), Write(ContextOf(model), {5, 6, 7}, 5));
  EXPECT_EQ(InfoOf(context).kept_texts, 0);
  const std::string bytes = SavedBytes(context);
  EXPECT_EQ(Restore(context, bytes), TSR_OK);
  EXPECT_EQ(InfoOf(context).kept_texts, 0);
}

TEST(KeptTextsTest, AFullMemoryLeavesTheContextUsable) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const Ids text = Numbers(900, 7);
  const uint64_t enough = [&] {
    const ContextHandle context = Keeping(model, 1, uint64_t{1} << 30);
    Write(context, text, 5);
    EXPECT_GE(InfoOf(context).memory_peak, InfoOf(context).memory_bytes);
    return InfoOf(context).memory_peak;
  }();
  const ContextHandle context = Keeping(model, 1, enough / 2);
  Write(context, Numbers(30, 3), 5);
  Generated generated;
  EXPECT_EQ(
      CodeOf(tsr_generate(context.get(), text.data(), text.size(), nullptr, Collect, &generated)),
      TSR_RESOURCE_EXHAUSTED);
  EXPECT_EQ(Write(context, Numbers(31, 3), 5), Write(ContextOf(model), Numbers(31, 3), 5));
}

TEST(StepTest, GivesWhatGenerateWrites) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const ContextHandle keeping = Keeping(model, 1);
  const Ids prompt = Numbers(40, 7);
  const Ids expected = Write(ContextOf(model), prompt, 30);
  Ids text = prompt;
  std::vector<double> logits(257);
  for (const int64_t wanted : expected) {
    int64_t next = -1;
    ASSERT_EQ(CodeOf(tsr_step(keeping.get(), text.data(), text.size(), nullptr, &next,
                              logits.data(), logits.size())),
              TSR_OK);
    EXPECT_EQ(next, wanted);
    EXPECT_EQ(next, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(next);
  }
  EXPECT_EQ(InfoOf(keeping).tokens_read, 40 + 29);
  // Sampled tokens follow from the seed and the place.
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.temperature = 5;
  options.sampling = TSR_SAMPLING_ON;
  const auto sampled = [&](const ContextHandle& context, size_t n) {
    int64_t next = -1;
    EXPECT_EQ(CodeOf(tsr_step(context.get(), text.data(), n, &options, &next, nullptr, 0)), TSR_OK);
    return next;
  };
  Ids with, without;
  for (size_t n = 30; n < 50; ++n) with.push_back(sampled(keeping, n));
  for (size_t n = 30; n < 50; ++n) without.push_back(sampled(ContextOf(model), n));
  EXPECT_EQ(with, without);
  int64_t next = -1;
  EXPECT_EQ(
      CodeOf(tsr_step(keeping.get(), text.data(), text.size(), nullptr, &next, logits.data(), 256)),
      TSR_OUT_OF_RANGE);
  options.json_schema = "{}";
  EXPECT_EQ(CodeOf(tsr_step(keeping.get(), text.data(), 5, &options, &next, nullptr, 0)),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_step(ContextOf(LoadHandle(SmallModelFolder("t5"))).get(), text.data(), 0,
                            nullptr, &next, nullptr, 0)),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(next, -1);
}

TEST(BatchTest, EachTextIsTheOneThatItsPromptGets) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const std::vector<Ids> prompts = {Numbers(40, 7), Numbers(3, 5), Numbers(41, 7), {9}};
  std::vector<const int64_t*> ids;
  std::vector<size_t> lengths;
  for (const Ids& prompt : prompts) {
    ids.push_back(prompt.data());
    lengths.push_back(prompt.size());
  }
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 12;
  for (const int64_t kept : {0, 4}) {
    const ContextHandle context = Keeping(model, kept);
    Generated all;
    ASSERT_EQ(CodeOf(tsr_generate_batch(context.get(), ids.data(), lengths.data(), ids.size(),
                                        &options, Collect, &all)),
              TSR_OK);
    ASSERT_EQ(all.sequences.size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(all.sequences[static_cast<int64_t>(i)], Write(ContextOf(model), prompts[i], 12));
    }
  }
  Generated none;
  EXPECT_EQ(CodeOf(tsr_generate_batch(ContextOf(model).get(), nullptr, nullptr, 0, &options,
                                      Collect, &none)),
            TSR_OK);
  EXPECT_TRUE(none.sequences.empty());
  ids[1] = nullptr;
  EXPECT_EQ(CodeOf(tsr_generate_batch(ContextOf(model).get(), ids.data(), lengths.data(),
                                      ids.size(), &options, Collect, &none)),
            TSR_INVALID_ARGUMENT);
}

// Counts calls; the second one ends the batch, and a later one would not.
int EndAtTheSecond(void* user, const tsr_token* token) {
  static_cast<void>(token);
  return ++*static_cast<int*>(user) == 2 ? 1 : 0;
}

int EndAtTheSecondLogits(void* user, const tsr_logits* logits) {
  static_cast<void>(logits);
  return ++*static_cast<int*>(user) == 2 ? 1 : 0;
}

TEST(BatchTest, NoCallFollowsTheOneThatEndsIt) {
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const std::vector<Ids> prompts = {Numbers(4, 7), Numbers(4, 5), Numbers(4, 3)};
  std::vector<const int64_t*> ids;
  std::vector<size_t> lengths;
  for (const Ids& prompt : prompts) {
    ids.push_back(prompt.data());
    lengths.push_back(prompt.size());
  }
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 5;
  int calls = 0;
  EXPECT_EQ(CodeOf(tsr_generate_batch(ContextOf(model).get(), ids.data(), lengths.data(),
                                      ids.size(), &options, EndAtTheSecond, &calls)),
            TSR_OK);
  EXPECT_EQ(calls, 2);

  int logits_calls = 0;
  options.logits = EndAtTheSecondLogits;
  options.logits_user = &logits_calls;
  Generated written;
  EXPECT_EQ(CodeOf(tsr_generate_batch(ContextOf(model).get(), ids.data(), lengths.data(),
                                      ids.size(), &options, Collect, &written)),
            TSR_OK);
  EXPECT_EQ(logits_calls, 2);
}

TEST(MemoryTest, TheProcessTellsWhatItHolds) {
  tsr_memory_info info = {};
  info.size = sizeof(info);
  ASSERT_EQ(CodeOf(tsr_memory(&info)), TSR_OK);
  const uint64_t before = info.bytes;
  const ModelHandle model = LoadHandle(SmallModelFolder(kLongGpt));
  const ContextHandle context = Keeping(model, 1);
  Write(context, Numbers(200, 7), 5);
  ASSERT_EQ(CodeOf(tsr_memory(&info)), TSR_OK);
  EXPECT_GE(info.bytes, before + InfoOf(context).cache_bytes);
  EXPECT_GE(info.peak, info.bytes);
  EXPECT_GE(info.reserved, info.bytes);
  info.size = 3;
  EXPECT_EQ(CodeOf(tsr_memory(&info)), TSR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tessera
