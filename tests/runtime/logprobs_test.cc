// SPDX-License-Identifier: Apache-2.0
// Log-probabilities beside those of the logits that tsr_forward gives, the callback that changes
// logits, and settings that change which token is taken.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tessera.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

using Ids = std::vector<int64_t>;

constexpr size_t kVocabulary = 257;
constexpr double kTolerance = 1e-4;  // float32 logits of a few units

// Of each token that may follow each of `ids`, by tsr_forward.
std::vector<std::vector<double>> LogSoftmax(const ContextHandle& context, const Ids& ids) {
  const int64_t shape[] = {1, std::ssize(ids)};
  const tsr_named_tensor in = {"input_ids", TSR_INT64, 2, shape, ids.data(), 8 * ids.size()};
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  EXPECT_EQ(CodeOf(tsr_forward(context.get(), &in, 1, &out, &count)), TSR_OK);
  const TensorsHandle owner(out);
  const auto* const logits = std::find_if(
      out, out + count, [](const tsr_named_tensor& t) { return t.name == std::string("logits"); });
  const auto* const values = static_cast<const float*>(logits->data);
  std::vector<std::vector<double>> all;
  for (size_t t = 0; t < ids.size(); ++t) {
    std::vector<double> row(values + t * kVocabulary, values + (t + 1) * kVocabulary);
    double sum = 0;
    for (const double x : row) sum += std::exp(x);
    for (double& x : row) x -= std::log(sum);
    all.push_back(row);
  }
  return all;
}

TEST(LogprobsTest, AreThoseOfGivenTokens) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  const Ids ids = {72, 101, 108, 108, 111, 32, 9, 200};
  const auto expected = LogSoftmax(context, ids);
  constexpr size_t kTop = 5;
  std::vector<double> logprobs(ids.size());
  std::vector<tsr_logprob> likeliest(ids.size() * kTop);
  std::string message;
  ASSERT_EQ(CodeOf(tsr_logprobs(context.get(), ids.data(), ids.size(), kTop, logprobs.data(),
                                likeliest.data()),
                   &message),
            TSR_OK)
      << message;
  EXPECT_TRUE(std::isnan(logprobs[0]));
  EXPECT_EQ(likeliest[0].id, -1);
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<double>& row = expected[i - 1];
    EXPECT_NEAR(logprobs[i], row[static_cast<size_t>(ids[i])], kTolerance);
    std::vector<double> sorted = row;
    std::sort(sorted.rbegin(), sorted.rend());
    for (size_t k = 0; k < kTop; ++k) {
      const tsr_logprob& one = likeliest[i * kTop + k];
      EXPECT_NEAR(one.logprob, sorted[k], kTolerance);
      EXPECT_NEAR(one.logprob, row[static_cast<size_t>(one.id)], kTolerance);
    }
  }
  double first = 0;
  EXPECT_EQ(CodeOf(tsr_logprobs(context.get(), ids.data(), 1, 0, &first, nullptr)), TSR_OK);
  EXPECT_TRUE(std::isnan(first));
  EXPECT_EQ(CodeOf(tsr_logprobs(context.get(), ids.data(), 0, 0, &first, nullptr)),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_logprobs(context.get(), ids.data(), 2, 3, logprobs.data(), nullptr)),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(tsr_logprobs(ContextOf(LoadHandle(SmallModelFolder("t5"))).get(), ids.data(), 1,
                                0, &first, nullptr)),
            TSR_INVALID_ARGUMENT);
}

struct Scored {
  Ids ids;
  std::vector<double> logprobs;
  std::vector<std::vector<tsr_logprob>> top;
};
int Score(void* user, const tsr_token* token) {
  auto* const scored = static_cast<Scored*>(user);
  if (token->id < 0) return 0;
  scored->ids.push_back(token->id);
  scored->logprobs.push_back(token->logprob);
  scored->top.emplace_back(token->top, token->top + token->num_top);
  return 0;
}

TEST(LogprobsTest, AreThoseOfNewTokens) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  const Ids prompt = {72, 101, 108};
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 8;
  options.temperature = 3;  // changes what is taken, not what it is given for
  const auto write = [&](int64_t logprobs) {
    options.logprobs = logprobs;
    Scored scored;
    EXPECT_EQ(
        CodeOf(tsr_generate(context.get(), prompt.data(), prompt.size(), &options, Score, &scored)),
        TSR_OK);
    return scored;
  };
  const Scored three = write(3);
  Ids text = prompt;
  text.insert(text.end(), three.ids.begin(), three.ids.end());
  const auto expected = LogSoftmax(context, text);
  for (size_t i = 0; i < three.ids.size(); ++i) {
    const std::vector<double>& row = expected[prompt.size() - 1 + i];
    EXPECT_NEAR(three.logprobs[i], row[static_cast<size_t>(three.ids[i])], kTolerance);
    ASSERT_EQ(three.top[i].size(), 3u);
    EXPECT_NEAR(three.top[i][0].logprob, *std::max_element(row.begin(), row.end()), kTolerance);
    EXPECT_GE(three.top[i][1].logprob, three.top[i][2].logprob);
  }
  const Scored own = write(-1);
  EXPECT_EQ(own.logprobs, three.logprobs);
  EXPECT_TRUE(own.top[0].empty());
  const Scored none = write(0);
  EXPECT_EQ(none.ids, three.ids);
  EXPECT_EQ(none.logprobs[0], 0);
  Scored ignored;
  options.logprobs = -2;
  EXPECT_EQ(CodeOf(tsr_generate(context.get(), prompt.data(), 3, &options, Score, &ignored)),
            TSR_INVALID_ARGUMENT);
  options = {};
  options.size = sizeof(options);
  options.num_beams = 2;
  options.logprobs = 1;
  EXPECT_EQ(CodeOf(tsr_generate(context.get(), prompt.data(), 3, &options, Score, &ignored)),
            TSR_INVALID_ARGUMENT);
}

// What a callback sees and does.
struct Changes {
  int calls = 0;
  int ends_at = -1;
  size_t num_ids = 0;
  int64_t wanted = -1;  // the only token that is allowed
  double value = 0;     // that it gets
};
int Change(void* user, const tsr_logits* logits) {
  auto* const changes = static_cast<Changes*>(user);
  changes->num_ids = logits->num_ids;
  if (changes->wanted >= 0) {
    std::fill_n(logits->logits, logits->num_logits, -INFINITY);
    logits->logits[changes->wanted] = changes->value;
  }
  return changes->calls++ == changes->ends_at ? 1 : 0;
}

TEST(LogitsTest, ACallbackChangesThem) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  Changes changes;
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 4;
  const Ids plain = GenerateWith(context.get(), {5, 6, 7}, &options).ids;
  options.logits = Change;
  options.logits_user = &changes;
  EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &options).ids, plain);
  EXPECT_EQ(changes.calls, 4);
  EXPECT_EQ(changes.num_ids, 6u);
  changes = {.wanted = 42};
  for (const double temperature : {0.0, 0.7}) {
    options.temperature = temperature;
    EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &options).ids, Ids(4, 42));
  }
  changes = {.ends_at = 2};
  EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &options).ids.size(), 2u);
  EXPECT_EQ(changes.calls, 3);
  // A step likewise.
  int64_t next = -1;
  const int64_t ids[] = {5, 6, 7};
  changes = {.wanted = 42};
  EXPECT_EQ(CodeOf(tsr_step(context.get(), ids, 3, &options, &next, nullptr, 0)), TSR_OK);
  EXPECT_EQ(next, 42);
  changes = {.ends_at = 0};
  EXPECT_EQ(CodeOf(tsr_step(context.get(), ids, 3, &options, &next, nullptr, 0)), TSR_CANCELLED);
  for (const double wrong :
       {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    changes = {.wanted = 1, .value = wrong};
    Generated generated;
    std::string message;
    EXPECT_EQ(CodeOf(tsr_generate(context.get(), ids, 3, &options, Collect, &generated), &message),
              TSR_INVALID_ARGUMENT);
    EXPECT_NE(message.find("logits callback"), std::string::npos) << message;
  }
  options.num_beams = 2;
  options.temperature = 0;
  Generated generated;
  EXPECT_EQ(CodeOf(tsr_generate(context.get(), ids, 3, &options, Collect, &generated)),
            TSR_INVALID_ARGUMENT);
}

// A folder that asks for sampling is answered by the likeliest tokens where the temperature is 0.
TEST(SettingsTest, ATemperatureOfZeroTakesTheLikeliestToken) {
  const ModelHandle model = LoadHandle(SmallModelFolder("gpt2"));
  const ContextHandle context = ContextOf(model);
  tsr_generate_options options = {};
  options.size = sizeof(options);
  options.max_new_tokens = 9;
  options.sampling = TSR_SAMPLING_OFF;
  const Ids likeliest = GenerateWith(context.get(), {5, 6, 7}, &options).ids;
  options.sampling = TSR_SAMPLING_DEFAULT;
  options.top_k = 50;
  EXPECT_NE(GenerateWith(context.get(), {5, 6, 7}, &options).ids, likeliest);
  ASSERT_EQ(CodeOf(tsr_generate_options_set(&options, "temperature", "0")), TSR_OK);
  EXPECT_EQ(GenerateWith(context.get(), {5, 6, 7}, &options).ids, likeliest);
  int64_t next = -1;
  const int64_t ids[] = {5, 6, 7};
  EXPECT_EQ(CodeOf(tsr_step(context.get(), ids, 3, &options, &next, nullptr, 0)), TSR_OK);
  EXPECT_EQ(next, likeliest[0]);
  tsr_generate_options_clear(&options);
}

}  // namespace
}  // namespace tessera
