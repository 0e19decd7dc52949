// SPDX-License-Identifier: Apache-2.0
// Texts that come, go, share, give way and are cancelled, of every kind of model: each becomes what
// it becomes by itself, bit by bit.
#include "models/generation/continuous_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "autograd/autograd.h"
#include "core/execution_context.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/hub/adapter.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

constexpr int64_t kVocabulary = 41;
constexpr int64_t kPrefix = 5;

enum class Adapters { kNone, kLowRank, kPrefix };

struct Case {
  const char* name;
  json config;
  bool shares = true;  // prompts begin with others' keys
  bool scores = true;  // prompts have scores
  Adapters adapters = Adapters::kNone;
  std::optional<QuantType> quantize = std::nullopt;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

json Gpt2(int64_t width = 12) {
  return {{"model_type", "gpt2"},
          {"vocab_size", kVocabulary},
          {"n_positions", 64},
          {"n_embd", width},
          {"n_layer", 2},
          {"n_head", 2},
          {"initializer_range", 0.5}};
}

json Llama(const json& changes = json::object()) {
  json config = {{"model_type", "llama"},
                 {"vocab_size", kVocabulary},
                 {"hidden_size", 12},
                 {"intermediate_size", 17},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 6},
                 {"max_position_embeddings", 64},
                 {"initializer_range", 0.5}};
  config.update(changes);
  return config;
}

json Scaled(const json& scaling) {
  return Llama({{"max_position_embeddings", 64},
                {"original_max_position_embeddings", 16},
                {"rope_parameters", scaling}});
}

json Phi3() {
  return Llama({{"model_type", "phi3"},
                {"original_max_position_embeddings", 16},
                {"pad_token_id", nullptr},
                {"rope_scaling",
                 {{"rope_type", "longrope"},
                  {"short_factor", {1.0, 1.1, 1.2}},
                  {"long_factor", {1.5, 2.0, 3.0}}}}});
}

json Glm(const std::string& type) {
  return {{"model_type", type},        {"vocab_size", kVocabulary}, {"hidden_size", 24},
          {"num_layers", 2},           {"inner_hidden_size", 29},   {"num_attention_heads", 3},
          {"max_sequence_length", 64}, {"initializer_range", 0.5},  {"bos_token_id", 36},
          {"eos_token_id", 37},        {"mask_token_id", 38},       {"gmask_token_id", 39},
          {"sop_token_id", 36},        {"eop_token_id", 37},        {"smask_token_id", 40},
          {"pad_token_id", 0}};
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"gpt2", Gpt2()},
      {"gpt2_int8", Gpt2(64), true, true, Adapters::kNone, QuantType::kInt8},
      {"gpt2_two_adapters", Gpt2(), true, true, Adapters::kLowRank},
      {"gpt2_prefixes", Gpt2(), true, true, Adapters::kPrefix},
      {"llama", Llama()},
      {"mistral", Llama({{"model_type", "mistral"}, {"sliding_window", 5}})},
      {"dynamic_ntk", Llama({{"max_position_embeddings", 16},
                             {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}})},
      {"long_rope", Scaled({{"rope_type", "longrope"},
                            {"short_factor", {1.0, 1.1, 1.2}},
                            {"long_factor", {1.5, 2.0, 3.0}}})},
      {"gemma2", Llama({{"model_type", "gemma2"},
                        {"hidden_activation", "gelu_pytorch_tanh"},
                        {"query_pre_attn_scalar", 6},
                        {"sliding_window", 5},
                        {"attn_logit_softcapping", 1.0},
                        {"final_logit_softcapping", 4.0}})},
      {"olmo2", Llama({{"model_type", "olmo2"}})},
      {"smollm3",
       Llama(
           {{"model_type", "smollm3"}, {"no_rope_layer_interval", 2}, {"pad_token_id", nullptr}})},
      {"phi3_long_rope", Phi3()},
      {"glm4", Llama({{"model_type", "glm4"}, {"head_dim", 8}, {"pad_token_id", nullptr}})},
      {"glm", Glm("glm"), true, false},
      {"chatglm", Glm("chatglm"), true, false},
      {"t5",
       {{"model_type", "t5"},
        {"vocab_size", kVocabulary},
        {"d_model", 24},
        {"d_kv", 5},
        {"d_ff", 29},
        {"num_layers", 2},
        {"num_decoder_layers", 3},
        {"num_heads", 3},
        {"relative_attention_num_buckets", 8},
        {"relative_attention_max_distance", 12},
        {"decoder_start_token_id", 2},
        {"eos_token_id", 1},
        {"initializer_factor", 0.5}},
       false,
       false},
  };
  return *cases;
}

std::unique_ptr<Model> Quantised(const Case& c) {
  const std::string folder = testing::TempDir() + "/continuous_batch_" + c.name;
  std::filesystem::create_directories(folder);
  const auto model = BuildModel(c.config, {.seed = 3}).value();
  EXPECT_TRUE(SaveModel(*model, folder).ok());
  auto loaded = LoadModel(folder, {.require_weights = true, .quantize = c.quantize});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

std::unique_ptr<Model> Build(const Case& c) {
  if (c.quantize) return Quantised(c);
  auto model = BuildModel(c.config, {.seed = 3});
  EXPECT_TRUE(model.ok()) << model.status();
  AdapterConfig config{.r = 2};
  if (c.adapters == Adapters::kPrefix) config.prefix.emplace().num_virtual_tokens = kPrefix;
  for (int adapter = 0; adapter < 2 && c.adapters != Adapters::kNone; ++adapter) {
    const auto attached = AttachAdapter(**model, config, adapter);
    EXPECT_TRUE(attached.ok()) << attached.status();
    uint64_t seed = 100 * static_cast<uint64_t>(adapter);
    for (nn::Parameter* p : ParametersOf(*attached)) {
      const NoGrad no_grad;
      const Tensor numbers = RandomTensor(p->tensor.shape(), ++seed);
      CopyInto(p->tensor, CastCopy(numbers, p->tensor.dtype()));
    }
  }
  return *std::move(model);
}

const data::Tokenizer& Bytes() {
  static const auto* const tokenizer = new data::ByteTokenizer;
  return *tokenizer;
}

// What became of a text.
struct Written {
  Ids ids;
  std::string text;
  std::vector<double> scores;         // flat, of new tokens
  std::vector<double> prompt_scores;  // flat
  StatusCode ended = StatusCode::kUnknown;
  bool operator==(const Written&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Written& w) {
  out << static_cast<int>(w.ended) << ":";
  for (const int64_t id : w.ids) out << " " << id;
  return out << " (" << w.scores.size() << " and " << w.prompt_scores.size() << " scores)";
}

void Flatten(const TokenScores& scores, std::vector<double>* flat) {
  flat->push_back(static_cast<double>(scores.id));
  flat->push_back(scores.log_p);
  for (const auto& [id, log_p] : scores.likeliest) {
    flat->push_back(static_cast<double>(id));
    flat->push_back(log_p);
  }
}

TextRequest Recorded(TextRequest request, Written* written) {
  request.on_token = [written](int64_t id, std::string_view text, const TokenScores* scores) {
    written->ids.push_back(id);
    written->text += text;
    if (scores != nullptr) Flatten(*scores, &written->scores);
    return OkStatus();
  };
  request.on_prompt_scores = [written](const std::vector<TokenScores>& scores) {
    EXPECT_TRUE(written->ids.empty() && written->prompt_scores.empty());
    for (const TokenScores& of : scores) Flatten(of, &written->prompt_scores);
    return OkStatus();
  };
  request.on_end = [written](const StatusOr<GenerationResult>& result) {
    EXPECT_EQ(written->ended, StatusCode::kUnknown) << "a second end";
    written->ended = result.status().code();
    if (!result.ok()) return;
    EXPECT_EQ(result->ids, written->ids);
    EXPECT_EQ(result->text, written->text);
  };
  return request;
}

// By itself: the prompt in one pass, then token by token. Where a model reads texts again, every
// token is chosen by a pass over the whole text.
Written Alone(const Model& model, const TextRequest& request) {
  Written written;
  auto text = WrittenText::Of(model, Recorded(request, &written), &Bytes());
  EXPECT_TRUE(text.ok()) << text.status();
  IncrementalDecoder decoder(model);
  if (model.encoder_decoder() != nullptr) {
    decoder.Encode(std::vector<Ids>{(*text)->prompt()}, request.adapter);
  }
  std::vector<Ids> tokens = {(*text)->ids()};
  Scores scores =
      decoder.Feed(tokens, {.adapter = request.adapter, .every_token = request.score_prompt});
  if (request.score_prompt) {
    for (int64_t t = 0; t + 1 < (*text)->begin_size(); ++t)
      (*text)->ScorePrompt(scores.After(0, t));
    EXPECT_TRUE((*text)->TellPromptScores().ok());
  }
  while (!(*text)->done()) {
    EXPECT_TRUE((*text)->Choose(scores[0]).ok());
    tokens = {{(*text)->ids().back()}};
    if (model.rereads_at_length_kind()) {
      decoder.Keep({});
      tokens = {(*text)->ids()};
    }
    if (!(*text)->done()) scores = decoder.Feed(tokens, {.adapter = request.adapter});
  }
  written.ended = StatusCode::kOk;
  return written;
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(std::ssize(values))];
  }

 private:
  std::mt19937 random_;
};

// Prompts of some beginnings, others' texts and chance.
std::vector<TextRequest> Requests(const Case& c, Dice& dice, int count) {
  std::vector<TextRequest> requests;
  const int64_t longest = dice.OneOf<int64_t>({2, 22});
  for (int i = 0; i < count; ++i) {
    TextRequest request;
    const int64_t beginning = dice.Below(3), length = dice.Below(longest);
    for (int64_t t = 0; t < length; ++t) request.prompt.Own().push_back((7 * t + beginning) % 30);
    for (int64_t t = dice.Below(6); t >= 0; --t) request.prompt.Own().push_back(dice.Below(30));
    if (i > 0 && dice.Below(4) == 0) request.prompt = requests.back().prompt;
    GenerationConfig& config = request.config.Own();
    config.max_new_tokens = 1 + dice.Below(dice.OneOf<int64_t>({3, 20}));
    config.do_sample = dice.Below(2) == 0;
    config.temperature = 1.5;
    config.seed = static_cast<uint64_t>(dice.Below(3));
    config.repetition_penalty = dice.OneOf({1.0, 1.3});
    config.presence_penalty = dice.OneOf({0.0, 0.7});
    config.frequency_penalty = dice.OneOf({0.0, 0.4});
    if (dice.Below(4) == 0) config.logit_bias = {{3, 2.0}, {9, -100.0}};
    if (dice.Below(3) > 0) config.eos_token_ids = {7, 11};
    request.row = dice.Below(4);
    request.adapter = c.adapters == Adapters::kNone ? 0 : static_cast<int>(dice.Below(3)) - 1;
    request.top_scores = dice.OneOf<int64_t>({-1, 0, 3, 100});
    request.score_prompt = c.scores && dice.Below(4) == 0;
    if (request.score_prompt && dice.Below(2) == 0) config.max_new_tokens = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Pages that the greatest of the texts takes, at most.
int64_t PagesOfGreatest(const Model& model, const std::vector<TextRequest>& requests,
                        int64_t page_size) {
  int64_t most = 0;
  for (const TextRequest& request : requests) {
    int64_t prompt = std::ssize(*request.prompt);
    if (model.text_format() != nullptr) prompt += 2;
    const int64_t before = model.prefix(request.adapter).tokens;
    const bool encodes = model.encoder_decoder() != nullptr;
    const int64_t tokens = before + (encodes ? 1 : prompt) + *request.config->max_new_tokens;
    const int64_t of_source = encodes ? (prompt + page_size - 1) / page_size : 0;
    most = std::max(most, of_source + (tokens + page_size - 1) / page_size);
  }
  return most;
}

class ContinuousBatchTest : public testing::TestWithParam<Case> {};

TEST_P(ContinuousBatchTest, WhatATextBecomesIsItsRequestsAlone) {
  const auto model = Build(GetParam());
  ContinuousBatchCounts all;
  int64_t cancelled = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    Dice dice(seed);
    const std::vector<TextRequest> requests = Requests(GetParam(), dice, 10);
    ContinuousBatchOptions options;
    options.tokenizer = &Bytes();
    options.slots = dice.OneOf<int64_t>({0, 1, 2, 3, 8});
    options.tokens_in_pass = dice.OneOf<int64_t>({0, 1, 3, 64});
    options.cache.page_size = dice.OneOf<int64_t>({1, 2, 4, 32});
    const int64_t greatest = PagesOfGreatest(*model, requests, options.cache.page_size);
    options.cache.max_pages = dice.Below(3) > 0 ? greatest + dice.Below(4) : 0;
    options.resting = dice.OneOf<int64_t>({0, 2, 8});
    SCOPED_TRACE(Concat("seed ", seed, ": ", options.slots, " slots, pieces of ",
                        options.tokens_in_pass, ", ", options.cache.max_pages, " pages of ",
                        options.cache.page_size, ", ", options.resting, " rest"));
    ContinuousBatch batch(*model, options);
    std::vector<Written> written(requests.size());
    std::vector<bool> gone(requests.size());
    size_t added = 0;
    while (batch.Step() || added < requests.size()) {
      for (; added < requests.size() && dice.Below(3) > 0; ++added) {
        const auto id = batch.Add(Recorded(requests[added], &written[added]));
        ASSERT_TRUE(id.ok()) << id.status();
        EXPECT_EQ(*id, static_cast<int64_t>(added));
      }
      if (dice.Below(8) == 0) {
        const auto victim = static_cast<size_t>(dice.Below(std::ssize(requests)));
        const bool there =
            victim < added && !gone[victim] && written[victim].ended == StatusCode::kUnknown;
        EXPECT_EQ(batch.Cancel(static_cast<int64_t>(victim)), there);
        gone[victim] = gone[victim] || there;
      }
      if (dice.Below(8) == 0) batch.set_tokens_in_pass(dice.OneOf<int64_t>({0, 2, 5}));
      if (dice.Below(8) == 0) {  // a step that comes to nothing
        std::atomic<bool> stop{dice.Below(2) == 0};
        const ExecutionModeScope<&ExecutionContext::cancelled> scope(&stop);
        // At any moment of it.
        const std::chrono::microseconds later(dice.Below(300));
        const std::jthread stops([&stop, later] {
          std::this_thread::sleep_for(later);
          stop = true;
        });
        try {
          batch.Step();
        } catch (const CancelledError&) {
        }
      }
      const ContinuousBatchCounts now = batch.counts();
      EXPECT_TRUE(options.slots == 0 || now.running <= options.slots);
      EXPECT_TRUE(options.cache.max_pages == 0 || now.pages_in_use <= options.cache.max_pages);
      EXPECT_LE(now.resting, options.resting);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Written expected = Alone(*model, requests[i]);
      if (gone[i]) {
        ++cancelled;
        const Ids begin(expected.ids.begin(), expected.ids.begin() + std::ssize(written[i].ids));
        EXPECT_EQ(written[i].ids, begin) << "text " << i;
        EXPECT_EQ(written[i].ended, StatusCode::kUnknown) << "text " << i;
      } else {
        EXPECT_EQ(written[i], expected) << "text " << i;
      }
    }
    const ContinuousBatchCounts counts = batch.counts();
    EXPECT_EQ(counts.running + counts.waiting, 0);
    EXPECT_TRUE(counts.resting > 0 || counts.pages_in_use == 0);
    all.tokens_taken += counts.tokens_taken;
    all.gave_way += counts.gave_way;
  }
  EXPECT_GT(cancelled, 50);
  EXPECT_GT(all.gave_way, 10);
  if (GetParam().shares) {
    EXPECT_GT(all.tokens_taken, 100);
  } else {
    EXPECT_EQ(all.tokens_taken, 0);
  }
}

TEST_P(ContinuousBatchTest, GenerateWritesTheSame) {
  const auto model = Build(GetParam());
  Dice dice(1);
  std::vector<TextRequest> requests = Requests(GetParam(), dice, 6);
  GenerationConfig config = *requests[0].config;
  config.max_new_tokens = 7;
  config.do_sample = true;
  std::vector<Ids> prompts;
  for (const TextRequest& request : requests) prompts.push_back(*request.prompt);
  for (const int64_t slots : {0, 2}) {
    const auto results = Generate(*model, prompts, config, {.tokenizer = &Bytes(), .slots = slots});
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t i = 0; i < prompts.size(); ++i) {
      TextRequest request{.prompt = prompts[i], .config = config};
      request.row = static_cast<int64_t>(i);
      EXPECT_EQ((*results)[i].ids, Alone(*model, request).ids) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContinuousBatchTest, testing::ValuesIn(Cases()),
                         testing::PrintToStringParamName());

// Runs until nothing is left to do.
std::vector<Written> WriteAll(ContinuousBatch& batch, const std::vector<TextRequest>& requests) {
  std::vector<Written> written(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = batch.Add(Recorded(requests[i], &written[i]));
    EXPECT_TRUE(id.ok()) << id.status();
  }
  while (batch.Step()) {
  }
  return written;
}

TextRequest Asked(Ids prompt, int64_t new_tokens) {
  TextRequest request{.prompt = std::move(prompt)};
  request.config.Own().max_new_tokens = new_tokens;
  return request;
}

Ids Counting(int64_t first, int64_t count) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((first + i) % 30);
  return ids;
}

// Log-probabilities of a whole text in one plain pass, whatever penalties say.
TEST(ScoresTest, AreThoseOfAPlainPass) {
  for (const char* name : {"gpt2", "gpt2_int8", "llama", "mistral"}) {
    const Case& c = *std::find_if(Cases().begin(), Cases().end(), [&](const Case& other) {
      return other.name == std::string(name);
    });
    const auto model = Build(c);
    TextRequest request = Asked(Counting(3, 9), 8);
    request.config.Own().presence_penalty = 2;
    request.config.Own().logit_bias = {{4, 3.0}};
    request.score_prompt = true;
    request.top_scores = 2;
    ContinuousBatch batch(*model, {.tokens_in_pass = 4, .tokenizer = &Bytes()});
    const Written written = WriteAll(batch, {request})[0];
    Ids text = *request.prompt;
    text.insert(text.end(), written.ids.begin(), written.ids.end());
    const NoGrad no_grad;
    const Tensor ids = Tensor::FromVector(text, {1, std::ssize(text)});
    const Tensor logits = model->Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits);
    std::vector<double> expected;
    for (int64_t t = 0; t + 1 < std::ssize(text); ++t) {
      std::vector<double> log_p = Select(Select(logits, 0, 0), 0, t).ToVector<double>();
      LogSoftmaxInPlace(log_p);
      const int64_t id = text[static_cast<size_t>(t + 1)];
      expected.push_back(static_cast<double>(id));
      expected.push_back(log_p[static_cast<size_t>(id)]);
      const int64_t best = std::max_element(log_p.begin(), log_p.end()) - log_p.begin();
      expected.push_back(static_cast<double>(best));
      expected.push_back(log_p[static_cast<size_t>(best)]);
      log_p[static_cast<size_t>(best)] = -std::numeric_limits<double>::infinity();
      const int64_t second = std::max_element(log_p.begin(), log_p.end()) - log_p.begin();
      expected.push_back(static_cast<double>(second));
      expected.push_back(log_p[static_cast<size_t>(second)]);
    }
    std::vector<double> got = written.prompt_scores;
    got.insert(got.end(), written.scores.begin(), written.scores.end());
    EXPECT_EQ(got, expected) << name;
  }
}

TEST(PrefixesTest, APromptTakesTheLongestBeginningThatIsThere) {
  const auto model = Build({"gpt2", Gpt2()});
  ContinuousBatch batch(*model, {.tokenizer = &Bytes(), .resting = 2});
  const auto taken = [&](const TextRequest& request) {
    const int64_t before = batch.counts().tokens_taken;
    EXPECT_EQ(WriteAll(batch, {request})[0], Alone(*model, request));
    return batch.counts().tokens_taken - before;
  };
  const Ids prompt = Counting(0, 20);
  EXPECT_EQ(taken(Asked(prompt, 4)), 0);
  EXPECT_EQ(taken(Asked(prompt, 4)), 19);  // the last token is read
  EXPECT_EQ(batch.counts().resting, 1);    // the same text
  // Turn by turn: what was written is there, but for the last token.
  Ids next = prompt;
  const Ids answer = Alone(*model, Asked(prompt, 4)).ids;
  next.insert(next.end(), answer.begin(), answer.end());
  next.push_back(5);
  EXPECT_EQ(taken(Asked(next, 4)), 23);
  EXPECT_EQ(batch.counts().resting, 1);
  Ids other = Counting(0, 7);
  other.push_back(29);
  EXPECT_EQ(taken(Asked(other, 4)), 7);
  EXPECT_EQ(batch.counts().resting, 2);
  EXPECT_EQ(taken(Asked(Counting(20, 9), 4)), 0);  // and the first goes
  EXPECT_EQ(taken(Asked(next, 4)), 7);
  TextRequest scored = Asked(next, 1);
  scored.score_prompt = true;
  EXPECT_EQ(taken(scored), 0);
}

// One reads, the others wait for it.
TEST(PrefixesTest, EqualPromptsAreReadOnce) {
  const auto model = Build({"llama", Llama()});
  for (const int64_t piece : {0, 8}) {
    ContinuousBatch batch(
        *model,
        {.tokens_in_pass = piece, .tokenizer = &Bytes(), .cache = {.page_size = 4}, .resting = 4});
    std::vector<TextRequest> requests(4, Asked(Counting(0, 30), 5));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].config.Own().do_sample = true;
      requests[i].row = static_cast<int64_t>(i);
    }
    const std::vector<Written> written = WriteAll(batch, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(written[i], Alone(*model, requests[i])) << i;
    }
    EXPECT_EQ(batch.counts().tokens_taken, 3 * 29);
    EXPECT_EQ(batch.counts().tokens_read, 33);
  }
}

// Keys that were rotated for short texts serve short texts alone.
TEST(PrefixesTest, ATextThatIsReadAgainTakesKeysOfItsKind) {
  const auto model = Build({"phi3", Phi3()});
  ContinuousBatch batch(*model, {.tokens_in_pass = 3, .tokenizer = &Bytes(), .resting = 8});
  const auto text_of = [&](const Ids& prompt, int64_t new_tokens) {
    Ids text = prompt;
    const Ids more = Alone(*model, Asked(prompt, new_tokens)).ids;
    text.insert(text.end(), more.begin(), more.end());
    return text;
  };
  const auto counts_of = [&](const Ids& prompt, int64_t new_tokens) {
    const ContinuousBatchCounts before = batch.counts();
    const TextRequest request = Asked(prompt, new_tokens);
    EXPECT_EQ(WriteAll(batch, {request})[0], Alone(*model, request));
    const ContinuousBatchCounts now = batch.counts();
    return std::pair(now.tokens_taken - before.tokens_taken, now.tokens_read - before.tokens_read);
  };
  using Counts = std::pair<int64_t, int64_t>;  // taken, read
  const Ids prompt = Counting(0, 10);
  EXPECT_EQ(counts_of(prompt, 7), Counts(0, 10));  // 16 tokens were read
  EXPECT_EQ(counts_of(text_of(prompt, 4), 2), Counts(13, 1));
  EXPECT_EQ(counts_of(text_of(prompt, 8), 4), Counts(0, 18));       // 18 tokens are a long text
  EXPECT_EQ(counts_of(text_of(prompt, 12), 2), Counts(21, 1));      // which the next one continues
  EXPECT_EQ(counts_of(text_of(prompt, 4), 5), Counts(13 + 16, 2));  // both kinds, one by one
  EXPECT_EQ(counts_of(Counting(5, 12), 9), Counts(0, 12 + 17));     // of no text that is there
  // A context that an earlier version kept: 10 tokens and 10 new ones, the last 4 of them long.
  ContinuousBatch other(*model, {.tokenizer = &Bytes(), .resting = 8});
  IncrementalDecoder decoder(*model);
  const Ids kept = text_of(prompt, 10);
  for (int64_t t = 0; t < std::ssize(kept); ++t) {
    decoder.Feed(std::vector<Ids>{{kept[static_cast<size_t>(t)]}});
  }
  ASSERT_TRUE(other.AddResting({.ids = kept, .begin_size = 10, .keys = decoder.KeysOf(0)}).ok());
  EXPECT_EQ(WriteAll(other, {Asked(kept, 3)})[0], Alone(*model, Asked(kept, 3)));
  EXPECT_EQ(other.counts().tokens_taken, 0);
  EXPECT_EQ(WriteAll(other, {Asked(text_of(prompt, 5), 1)})[0],
            Alone(*model, Asked(text_of(prompt, 5), 1)));
  EXPECT_EQ(other.counts().tokens_taken, 14);
}

// Tokens of the context see one another: all of it is the same, or nothing is.
TEST(PrefixesTest, AContextThatSeesItselfIsTakenWholeOrNotAtAll) {
  const auto model = Build({"chatglm", Glm("chatglm")});
  ContinuousBatch batch(*model, {.tokens_in_pass = 2, .tokenizer = &Bytes(), .resting = 4});
  const auto taken = [&](const Ids& prompt) {
    const int64_t before = batch.counts().tokens_taken;
    const TextRequest request = Asked(prompt, 3);
    EXPECT_EQ(WriteAll(batch, {request})[0], Alone(*model, request));
    return batch.counts().tokens_taken - before;
  };
  EXPECT_EQ(taken(Counting(0, 10)), 0);
  EXPECT_EQ(taken(Counting(0, 12)), 0);
  EXPECT_EQ(taken(Counting(0, 10)), 11);  // with [gMASK]; the start is read
}

TEST(StepsTest, OthersGoOnWhileALongPromptIsRead) {
  const auto model = Build({"gpt2", Gpt2()});
  ContinuousBatch batch(*model, {.slots = 2, .tokens_in_pass = 4});
  std::string order;
  const auto add = [&](char name, const Ids& prompt, int64_t tokens) {
    TextRequest request = Asked(prompt, tokens);
    request.on_token = [&order, name](int64_t, std::string_view, const TokenScores*) {
      order += name;
      return OkStatus();
    };
    return batch.Add(std::move(request)).value();
  };
  add('a', {1, 2, 3}, 8);
  add('b', Counting(0, 20), 2);
  add('c', {4}, 1);
  while (batch.Step()) {
  }
  // Five pieces of b, each behind a token of a; c takes b's place.
  EXPECT_EQ(order, "aaaaaababca");
}

TEST(StepsTest, ALeaversPlaceIsFreeAtOnce) {
  const auto model = Build({"gpt2", Gpt2()});
  ContinuousBatch batch(*model, {.slots = 1, .tokenizer = &Bytes(), .cache = {.page_size = 4}});
  const int64_t first = batch.Add(Asked(Counting(0, 9), 20)).value();
  batch.Step();
  batch.Step();
  EXPECT_EQ(batch.counts().running, 1);
  EXPECT_EQ(batch.counts().pages_in_use, 3);
  Written written;
  const TextRequest second = Asked({3, 4}, 3);
  const int64_t id = batch.Add(Recorded(second, &written)).value();
  EXPECT_TRUE(batch.Cancel(first));
  EXPECT_FALSE(batch.Cancel(first));
  EXPECT_EQ(batch.counts().pages_in_use, 0);
  EXPECT_EQ(batch.counts().waiting, 1);
  while (batch.Step()) {
  }
  EXPECT_EQ(written, Alone(*model, second));
  EXPECT_FALSE(batch.Cancel(id));
}

TEST(StepsTest, AFailureIsOfOneTextAlone) {
  const auto model = Build({"llama", Llama()});
  // Token 33 has a row of the table that is no number.
  model->VisitParameters([](nn::Parameter& p) {
    if (p.name.find("embed_tokens") == std::string::npos) return;
    const NoGrad no_grad;
    Fill(Select(p.tensor, 0, 33), std::numeric_limits<double>::quiet_NaN());
  });
  const std::vector<TextRequest> asked = {Asked({6}, 6),    Asked({1, 33, 2}, 6),
                                          Asked({33}, 6),   Asked(Counting(5, 3), 6),
                                          Asked({4, 5}, 6), Asked(Counting(0, 9), 6)};
  std::vector<Written> written(asked.size());
  ContinuousBatch batch(*model, {.tokenizer = &Bytes(), .cache = {.page_size = 4}, .resting = 3});
  for (size_t i = 0; i < asked.size(); ++i) {
    TextRequest request = Recorded(asked[i], &written[i]);
    if (i == 2) request.score_prompt = true;
    const auto record = request.on_token;
    request.on_token = [=](int64_t id, std::string_view text, const TokenScores* scores) {
      const Status status = record(id, text, scores);
      if (i == 4) return Failure(StatusCode::kUnavailable, "gone");
      if (i == 0) throw std::runtime_error("thrown");
      return status;
    };
    ASSERT_TRUE(batch.Add(std::move(request)).ok());
  }
  EXPECT_THROW(batch.Step(), std::runtime_error);
  while (batch.Step()) {
  }
  for (const size_t i : {3, 5}) EXPECT_EQ(written[i], Alone(*model, asked[i]));
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(written[i].ended, StatusCode::kInternal);
    EXPECT_TRUE(written[i].ids.empty());
  }
  EXPECT_EQ(written[4].ended, StatusCode::kUnavailable);
  EXPECT_EQ(written[0].ended, StatusCode::kInternal);
  // Pages that had what is no number harm nobody.
  EXPECT_EQ(WriteAll(batch, {asked[5]})[0], Alone(*model, asked[5]));
  const auto results = Generate(*model, {{1}, {33}}, {.max_new_tokens = 2});
  EXPECT_EQ(Message(results.status()),
            "the model's logits are not finite (row 1, position 0): its weights are damaged or "
            "overflow float32");
}

std::string Refusal(const Case& c, const TextRequest& request,
                    const ContinuousBatchOptions& options = {}) {
  const auto model = Build(c);
  ContinuousBatch batch(*model, options);
  const auto id = batch.Add(request);
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(batch.Step());
  return Message(id.status());
}

TEST(RefusalsTest, ComeAtOnce) {
  const Case gpt2 = {"gpt2", Gpt2()};
  EXPECT_EQ(Refusal(gpt2, Asked({99}, 3)),
            "token id 99 (row 0, position 0) is beyond the model's vocabulary of 41");
  EXPECT_EQ(Refusal(gpt2, Asked({1}, 0)), "max_new_tokens must be at least 1, not 0");
  TextRequest request = Asked({1}, 3);
  request.config.Own().num_beams = 2;
  EXPECT_EQ(Refusal(gpt2, request),
            "num_beams above 1 is searched text by text, not in a batch of them");
  request = Asked({1}, 3);
  request.config.Own().logit_bias = {{41, 1.0}};
  EXPECT_EQ(Refusal(gpt2, request),
            "token id 41 (logit_bias) is beyond the model's vocabulary of 41");
  // The last token is not read: eight tokens in two pages.
  ContinuousBatchOptions two_pages;
  two_pages.cache = {.page_size = 4, .max_pages = 2};
  EXPECT_EQ(
      Refusal(gpt2, Asked({1, 2, 3, 4, 5}, 5), two_pages),
      "the prompt of row 0 has 5 tokens; with 5 new ones it takes 3 pages of the cache, which "
      "has 2");
  const auto model = Build(gpt2);
  ContinuousBatch batch(*model, two_pages);
  EXPECT_EQ(WriteAll(batch, {Asked({1, 2, 3, 4, 5}, 4)})[0].ids.size(), 4u);
  TextRequest scored = Asked({1, 2}, 1);
  scored.score_prompt = true;
  EXPECT_EQ(Refusal(Cases().back(), scored),
            "the prompt is an encoder's: its tokens have no log-probabilities");
  EXPECT_EQ(Refusal({"glm", Glm("glm")}, scored),
            "tokens of this model's prompts see those behind them and have no log-probabilities");
}

}  // namespace
}  // namespace tessera::models
