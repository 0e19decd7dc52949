// SPDX-License-Identifier: Apache-2.0
// Families of one's own: Llama in C, as a shared object (examples/embed/family.c), beside the
// library's Llama of the same weights; one without attention; and what goes wrong in callbacks.
#include "models/family.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "core/safetensors.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "gtest/gtest.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "runtime/tessera.h"
#include "tests/process/shell.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

using Ids = std::vector<int64_t>;
using nlohmann::json;

constexpr int64_t kVocabulary = 257;
// Logits of a few units; the C and the library's norms and rotations round otherwise.
constexpr double kTolerance = 1e-5;

template <typename Options>
Options Sized() {
  Options options = {};
  options.size = sizeof(options);
  return options;
}

// ---- Folders ------------------------------------------------------------------------------------

// A copy of a folder with another config.json.
std::string CopyFolder(const std::string& from, const std::string& name, const json& changes) {
  const std::string to = testing::TempDir() + "/family_" + name;
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  json config = *ReadJsonFile(JoinPath(to, "config.json"));
  config.update(changes);
  for (auto it = config.begin(); it != config.end();) {
    it = it->is_null() ? config.erase(it) : std::next(it);
  }
  EXPECT_TRUE(WriteFileAtomically(JoinPath(to, "config.json"), config.dump()).ok());
  return to;
}

std::string MakeLlama(bool tied) {
  const std::string folder = testing::TempDir() + "/family_llama" + (tied ? "_tied" : "");
  std::filesystem::remove_all(folder);
  const json config = {{"model_type", "llama"},          {"architectures", {"LlamaForCausalLM"}},
                       {"vocab_size", kVocabulary},      {"hidden_size", 24},
                       {"num_hidden_layers", 2},         {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},       {"intermediate_size", 29},
                       {"max_position_embeddings", 600}, {"initializer_range", 0.3},
                       {"hidden_act", "silu"},           {"rms_norm_eps", 1e-5},
                       {"tie_word_embeddings", tied}};
  const auto model = models::BuildModel(config, {.seed = 5});
  EXPECT_TRUE(model.ok()) << model.status();
  const data::ByteTokenizer bytes;
  const Status saved = models::SaveModel(**model, folder, &bytes);
  EXPECT_TRUE(saved.ok()) << saved;
  EXPECT_TRUE(
      WriteFileAtomically(JoinPath(folder, "chat_template.jinja"),
                          "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
          .ok());
  return folder;
}
const std::string& Llama(bool tied = false) {
  static const std::string folders[] = {MakeLlama(false), MakeLlama(true)};
  return folders[tied ? 1 : 0];
}

const json kMine = {{"model_type", "my_llama"}, {"architectures", {"MyLlamaForCausalLM"}}};

// The same as a model of the shared object's, which is registered once.
std::string MyLlama(bool tied = false, const std::string& name = "my_llama",
                    const json& changes = json::object()) {
  static const bool registered = [] {
    const std::string library = testing::TempDir() + "/family.so";
    const ShellRun ran = RunShell(
        "cc -std=c99 -pedantic -O2 -Wall -Wextra -Werror -shared -fPIC -Iruntime "
        "examples/embed/family.c -lm -o " +
        library);
    EXPECT_EQ(ran.code, 0) << ran.output;
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(opened, nullptr) << dlerror();
    if (opened == nullptr) return false;
    const auto add = reinterpret_cast<tsr_status* (*)()>(dlsym(opened, "register_my_llama"));
    std::string message;
    EXPECT_EQ(CodeOf(add(), &message), TSR_OK) << message;
    EXPECT_EQ(CodeOf(add(), &message), TSR_ALREADY_EXISTS);
    EXPECT_EQ(message, "model_type 'my_llama' is registered already");
    return true;
  }();
  EXPECT_TRUE(registered);
  json all = kMine;
  all.update(changes);
  return CopyFolder(Llama(tied), name + (tied ? "_tied" : ""), all);
}

// ---- Calls --------------------------------------------------------------------------------------

Ids Numbers(size_t count, int64_t factor) {
  Ids ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(i + 1) * factor % 251);
  return ids;
}

// The logits of rows of equal length.
std::vector<float> Logits(const ContextHandle& context, const Ids& ids, int64_t rows) {
  const int64_t shape[] = {rows, std::ssize(ids) / rows};
  const tsr_named_tensor in = {"input_ids", TSR_INT64, 2, shape, ids.data(), 8 * ids.size()};
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  std::string message;
  EXPECT_EQ(CodeOf(tsr_forward(context.get(), &in, 1, &out, &count), &message), TSR_OK) << message;
  const TensorsHandle owner(out);
  for (size_t i = 0; i < count; ++i) {
    if (std::strcmp(out[i].name, "logits") != 0) continue;
    EXPECT_EQ(out[i].rank, 3u);
    const auto* const data = static_cast<const float*>(out[i].data);
    return {data, data + out[i].bytes / sizeof(float)};
  }
  return {};
}

double Furthest(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double furthest = a.empty() ? INFINITY : 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    furthest = std::max(furthest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return furthest;
}

ContextHandle Keeping(const ModelHandle& model, int64_t texts) {
  auto options = Sized<tsr_context_options>();
  options.kept_texts = texts;
  return ContextOf(model, &options);
}

Ids Write(const ContextHandle& context, const Ids& prompt, int64_t tokens, double temperature = 0,
          int64_t beams = 0) {
  auto options = Sized<tsr_generate_options>();
  options.max_new_tokens = tokens;
  options.temperature = temperature;
  options.num_beams = beams;
  options.seed = 3;
  return GenerateWith(context.get(), prompt, &options).ids;
}

tsr_context_info InfoOf(const ContextHandle& context) {
  auto info = Sized<tsr_context_info>();
  EXPECT_EQ(CodeOf(tsr_context_describe(context.get(), &info)), TSR_OK);
  return info;
}

std::string LoadError(const std::string& folder, const tsr_load_options* options = nullptr) {
  tsr_model* model = nullptr;
  std::string message;
  EXPECT_NE(CodeOf(tsr_model_load(folder.c_str(), options, &model), &message), TSR_OK);
  EXPECT_EQ(model, nullptr);
  const size_t path = message.find(folder);
  return path == 0 ? message.substr(folder.size()) : message;
}

// ---- Llama in C ---------------------------------------------------------------------------------

TEST(FamilyTest, ForwardAgreesWithTheLibrarysOwn) {
  for (const bool tied : {false, true}) {
    const ModelHandle theirs = LoadHandle(Llama(tied));
    const ModelHandle mine = LoadHandle(MyLlama(tied));
    const ContextHandle a = ContextOf(theirs);
    const ContextHandle b = ContextOf(mine);
    for (const int64_t rows : {1, 2}) {
      const Ids ids = Numbers(static_cast<size_t>(rows) * 9, 7);
      EXPECT_LT(Furthest(Logits(a, ids, rows), Logits(b, ids, rows)), kTolerance);
    }
    const Ids many = Numbers(500, 13);
    EXPECT_LT(Furthest(Logits(a, many, 1), Logits(b, many, 1)), 10 * kTolerance);
  }
}

TEST(FamilyTest, IsDescribedAsOthersAre) {
  const ModelHandle model = LoadHandle(MyLlama());
  auto info = Sized<tsr_model_info>();
  ASSERT_EQ(CodeOf(tsr_model_describe(model.get(), &info)), TSR_OK);
  EXPECT_STREQ(info.model_type, "my_llama");
  EXPECT_STREQ(info.architecture, "MyLlamaForCausalLM");
  EXPECT_EQ(info.vocab_size, kVocabulary);
  EXPECT_EQ(info.max_positions, 600);
  EXPECT_EQ(info.generates, 1);
  EXPECT_EQ(info.has_tokenizer, 1);
  EXPECT_EQ(info.hidden_size, 0);
  auto theirs = Sized<tsr_model_info>();
  const ModelHandle llama = LoadHandle(Llama());
  ASSERT_EQ(CodeOf(tsr_model_describe(llama.get(), &theirs)), TSR_OK);
  EXPECT_EQ(info.parameters, theirs.parameters);
}

TEST(FamilyTest, WritesWhatTheLibrarysOwnWrites) {
  const ModelHandle llama = LoadHandle(Llama());
  const ModelHandle model = LoadHandle(MyLlama());
  const ContextHandle theirs = ContextOf(llama);
  const ContextHandle mine = ContextOf(model);
  const Ids prompt = Numbers(40, 7);
  for (const double temperature : {0.0, 0.8}) {
    EXPECT_EQ(Write(mine, prompt, 30, temperature), Write(theirs, prompt, 30, temperature));
  }
  EXPECT_EQ(Write(mine, prompt, 10, 0, 3), Write(theirs, prompt, 10, 0, 3));

  // Prompts of several lengths at the same time.
  const Ids prompts[] = {Numbers(5, 3), prompt, Numbers(17, 11)};
  const int64_t* const ids[] = {prompts[0].data(), prompts[1].data(), prompts[2].data()};
  const size_t lengths[] = {5, 40, 17};
  auto options = Sized<tsr_generate_options>();
  options.max_new_tokens = 12;
  options.sampling = TSR_SAMPLING_OFF;
  Generated batch;
  ASSERT_EQ(CodeOf(tsr_generate_batch(mine.get(), ids, lengths, 3, &options, Collect, &batch)),
            TSR_OK);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(batch.sequences[i], Write(mine, prompts[i], 12));

  double of_mine[40];
  double of_theirs[40];
  tsr_logprob likeliest[40 * 3];
  ASSERT_EQ(CodeOf(tsr_logprobs(mine.get(), prompt.data(), 40, 3, of_mine, likeliest)), TSR_OK);
  ASSERT_EQ(CodeOf(tsr_logprobs(theirs.get(), prompt.data(), 40, 3, of_theirs, likeliest)), TSR_OK);
  for (size_t i = 1; i < 40; ++i) EXPECT_NEAR(of_mine[i], of_theirs[i], 2 * kTolerance);

  const std::string messages = R"([{"role": "user", "content": "Will it rain?"}])";
  Generated answers[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(CodeOf(tsr_chat((i == 0 ? mine : theirs).get(), messages.data(), messages.size(),
                              &options, Collect, &answers[i])),
              TSR_OK);
  }
  EXPECT_FALSE(answers[0].ids.empty());
  EXPECT_EQ(answers[0].ids, answers[1].ids);
}

TEST(FamilyTest, KeptTextsChangeNothingAndAreNotReadAgain) {
  const ModelHandle model = LoadHandle(MyLlama());
  const ContextHandle plain = ContextOf(model);
  const ContextHandle keeping = Keeping(model, 1);
  Ids text = Numbers(100, 7);
  int64_t read = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const Ids answer = Write(keeping, text, 20, turn == 1 ? 0.9 : 0);
    EXPECT_EQ(answer, Write(plain, text, 20, turn == 1 ? 0.9 : 0));
    const int64_t now = InfoOf(keeping).tokens_read;
    EXPECT_EQ(now - read, turn == 0 ? 100 : 34);
    read = now;
    text.insert(text.end(), answer.begin(), answer.end());
    const Ids question = Numbers(33, 11 + turn);
    text.insert(text.end(), question.begin(), question.end());
  }
  EXPECT_GT(InfoOf(keeping).cache_bytes, 0u);

  size_t size = 0;
  ASSERT_EQ(CodeOf(tsr_context_save_memory(keeping.get(), nullptr, 0, &size)), TSR_OK);
  std::string bytes(size, '\0');
  ASSERT_EQ(CodeOf(tsr_context_save_memory(keeping.get(), bytes.data(), size, &size)), TSR_OK);
  const ContextHandle restored = Keeping(model, 1);
  ASSERT_EQ(CodeOf(tsr_context_restore_memory(restored.get(), bytes.data(), size)), TSR_OK);
  tsr_context* copy = nullptr;
  ASSERT_EQ(CodeOf(tsr_context_fork(keeping.get(), &copy)), TSR_OK);
  const ContextHandle forked(copy);
  const Ids expected = Write(plain, text, 5);
  for (const ContextHandle* context : {&keeping, &restored, &forked}) {
    const int64_t before = InfoOf(*context).tokens_read;
    EXPECT_EQ(Write(*context, text, 5), expected);
    EXPECT_EQ(InfoOf(*context).tokens_read - before, 34);
  }

  // A step of one token has the bits of the whole text.
  std::vector<double> logits(kVocabulary);
  std::vector<double> whole(kVocabulary);
  int64_t next = 0;
  for (const auto& [context, values] : {std::pair(&keeping, &logits), std::pair(&plain, &whole)}) {
    ASSERT_EQ(CodeOf(tsr_step(context->get(), text.data(), text.size(), nullptr, &next,
                              values->data(), values->size())),
              TSR_OK);
  }
  EXPECT_EQ(logits, whole);
}

TEST(FamilyTest, ContextsOnManyThreadsHaveTheBitsTheyHaveAlone) {
  const ModelHandle model = LoadHandle(MyLlama());
  const Ids prompt = Numbers(50, 7);
  const ContextHandle alone = ContextOf(model);
  const Ids expected = Write(alone, prompt, 16);
  const std::vector<float> logits = Logits(alone, prompt, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const ContextHandle context = t % 2 == 0 ? ContextOf(model) : Keeping(model, 2);
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(Write(context, prompt, 16), expected);
        EXPECT_EQ(Furthest(Logits(context, prompt, 2), logits), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FamilyTest, MemoryCountsInTheContext) {
  const ModelHandle model = LoadHandle(MyLlama());
  auto options = Sized<tsr_context_options>();
  options.memory_limit = 100 << 10;
  const ContextHandle small = ContextOf(model, &options);
  const Ids prompt = Numbers(500, 7);
  std::string message;
  EXPECT_EQ(
      CodeOf(tsr_generate(small.get(), prompt.data(), prompt.size(), nullptr, Collect, nullptr),
             &message),
      TSR_RESOURCE_EXHAUSTED);
  EXPECT_NE(message.find("family 'my_llama': "), std::string::npos) << message;
  EXPECT_EQ(InfoOf(small).memory_bytes, 0u);
}

TEST(FamilyTest, WhatItsModelsDoNotDoIsRefused) {
  const std::string folder = MyLlama();
  auto options = Sized<tsr_load_options>();
  options.dtype = TSR_BFLOAT16;
  EXPECT_EQ(LoadError(folder, &options),
            "/config.json: family 'my_llama': its models compute in float32 alone");
  options = Sized<tsr_load_options>();
  options.weights = TSR_WEIGHTS_Q8_0;
  EXPECT_EQ(LoadError(folder, &options),
            "tsr_load_options: weights: models of family 'my_llama' hold their weights as they are "
            "stored");
  options = Sized<tsr_load_options>();
  const char* const adapters[] = {"no-such-adapter"};
  options.adapters = adapters;
  options.num_adapters = 1;
  EXPECT_EQ(LoadError(folder, &options),
            "tsr_load_options: adapters: models of family 'my_llama' carry no adapters");

  const ModelHandle model = LoadHandle(folder);
  const ContextHandle context = ContextOf(model);
  const Ids ids = {1, 2, 3};
  float vector[24];
  double score = 0;
  const char* const documents[] = {"a"};
  const size_t lengths[] = {1};
  std::string message;
  EXPECT_EQ(CodeOf(tsr_embed(context.get(), ids.data(), 3, nullptr, vector, 24), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_embed: models of family 'my_llama' give no vectors of texts");
  EXPECT_EQ(CodeOf(tsr_embed_text(context.get(), "a", 1, nullptr, vector, 24), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_embed: models of family 'my_llama' give no vectors of texts");
  EXPECT_EQ(CodeOf(tsr_rerank(context.get(), "a", 1, documents, lengths, 1, &score), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "tsr_rerank: models of family 'my_llama' give no scores of texts");

  const int64_t shape[] = {1, 3};
  tsr_named_tensor in[] = {{"input_ids", TSR_INT64, 2, shape, ids.data(), 24},
                           {"labels", TSR_INT64, 2, shape, ids.data(), 24}};
  tsr_named_tensor* out = nullptr;
  size_t count = 0;
  EXPECT_EQ(CodeOf(tsr_forward(context.get(), in, 2, &out, &count), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message,
            "tsr_forward: 'labels' is no input of my_llama; inputs are input_ids, position_ids");
  auto all = Sized<tsr_forward_options>();
  all.all_hidden_states = 1;
  EXPECT_EQ(CodeOf(tsr_forward_with(context.get(), in, 1, &all, &out, &count), &message),
            TSR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "family 'my_llama': its models give no hidden states");
}

TEST(FamilyTest, FoldersThatDoNotFitAreRefused) {
  struct Case {
    const char* name;
    json changes;
    const char* message;
  };
  const Case cases[] = {
      {"architecture",
       {{"architectures", {"LlamaForCausalLM"}}},
       "/config.json: family 'my_llama': 'architectures' does not begin with "
       "'MyLlamaForCausalLM'"},
      {"activation",
       {{"hidden_act", "gelu"}},
       "/config.json: family 'my_llama': 'hidden_act' is not silu"},
      {"kind",
       {{"hidden_size", "wide"}},
       "/config.json: family 'my_llama': config.json: 'hidden_size' must be an integer, not "
       "\"wide\""},
      {"flag",
       {{"tie_word_embeddings", 3}},
       "/config.json: family 'my_llama': config.json: 'tie_word_embeddings' must be true or false, "
       "not 3"},
      {"number",
       {{"rope_theta", json::array()}},
       "/config.json: family 'my_llama': config.json: 'rope_theta' must be a number, not []"},
      {"vocabulary",
       {{"vocab_size", 0}},
       "/config.json: family 'my_llama': parameter 'model.embed_tokens.weight': its shape of 2 "
       "dimensions (1 to 8, each at least 1), or its name, cannot be"},
      {"shape",
       {{"intermediate_size", 30}},
       "/model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight' has shape [29, 24]; the "
       "configuration asks for [30, 24]"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(LoadError(MyLlama(false, c.name, c.changes)), c.message) << c.name;
  }
  EXPECT_NE(LoadError(MyLlama(false, "missing", {{"num_hidden_layers", 3}}))
                .find("model.layers.2.input_layernorm.weight"),
            std::string::npos);
  EXPECT_NE(LoadError(CopyFolder(Llama(), "unknown", {{"model_type", "no_llama"}}))
                .find("model_type 'no_llama' is not known"),
            std::string::npos);
}

// ---- A family without attention -----------------------------------------------------------------

// logits of token t: the sum of the embeddings of tokens 0 ... t.
struct Bag {
  std::atomic<int> models = 0;
  std::atomic<int> passes = 0;
};
Bag bag;

tsr_status* BuildBag(void* user, tsr_blueprint* blueprint, void** model) {
  ++static_cast<Bag*>(user)->models;
  blueprint->vocab_size = kVocabulary;
  const int64_t shape[] = {kVocabulary, kVocabulary};
  *model = user;
  return tsr_blueprint_parameter(blueprint, "table", shape, 2, nullptr);
}
tsr_status* RunBag(void* user, void* model, const tsr_pass* pass) {
  EXPECT_EQ(model, user);
  ++static_cast<Bag*>(user)->passes;
  EXPECT_EQ(pass->size, sizeof(tsr_pass));
  for (int64_t i = 0; i < pass->num_wanted; ++i) {
    const int64_t last = pass->wanted[i];
    float* const logits = pass->logits + i * kVocabulary;
    std::fill_n(logits, kVocabulary, 0.0f);
    for (int64_t at = last / pass->tokens * pass->tokens; at <= last; ++at) {
      EXPECT_EQ(pass->positions[at], at % pass->tokens);
      const float* const row = pass->parameters[0] + pass->ids[at] * kVocabulary;
      for (int64_t v = 0; v < kVocabulary; ++v) logits[v] += row[v];
    }
  }
  return nullptr;
}
void ReleaseBag(void* user, void* model) {
  EXPECT_EQ(model, user);
  --static_cast<Bag*>(user)->models;
}

float BagWeight(int64_t row, int64_t column) {
  return static_cast<float>((row * 31 + column * 17) % 101) / 64;
}

// A folder whose weights are one tensor; its configuration has no "architectures".
std::string TableFolder(const std::string& model_type, const json& changes) {
  const std::string folder = CopyFolder(Llama(), model_type, {{"architectures", nullptr}});
  const std::string weights = JoinPath(folder, "model.safetensors");
  std::vector<float> table;
  for (int64_t i = 0; i < kVocabulary * kVocabulary; ++i) {
    table.push_back(BagWeight(i / kVocabulary, i % kVocabulary));
  }
  const Bundle::Entry entry = {"table", Tensor::FromVector(table, {kVocabulary, kVocabulary})};
  const TensorView view = {.dtype = DType::kFloat32,
                           .shape = {kVocabulary, kVocabulary},
                           .data = static_cast<const std::byte*>(entry.second.raw_data()),
                           .nbytes = entry.second.nbytes()};
  EXPECT_TRUE(WriteSafetensors(weights, {{"table", view}}).ok());
  json config = {{"model_type", model_type}};
  config.update(changes);
  EXPECT_TRUE(WriteFileAtomically(JoinPath(folder, "config.json"), config.dump()).ok());
  return folder;
}

TEST(FamilyTest, OneWithoutAttentionReadsItsTextAnew) {
  auto family = Sized<tsr_family>();
  family.model_type = "bag";
  family.architecture = "BagForCausalLM";
  family.build = BuildBag;
  family.forward = RunBag;
  family.release = ReleaseBag;
  family.user = &bag;
  ASSERT_EQ(CodeOf(tsr_register_family(&family)), TSR_OK);
  {
    const ModelHandle model = LoadHandle(TableFolder("bag", json::object()));
    EXPECT_EQ(bag.models, 1);
    const ContextHandle plain = ContextOf(model);
    const ContextHandle keeping = Keeping(model, 2);
    Ids text = {5, 80, 3};
    std::vector<float> sums(kVocabulary);
    Ids expected;
    for (size_t i = 0; i < text.size() || expected.size() < 8; ++i) {
      if (i == text.size()) {
        expected.push_back(std::max_element(sums.begin(), sums.end()) - sums.begin());
        text.push_back(expected.back());
      }
      for (int64_t v = 0; v < kVocabulary; ++v) sums[v] += BagWeight(text[i], v);
    }
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(Write(plain, {5, 80, 3}, 8), expected);
      EXPECT_EQ(Write(keeping, {5, 80, 3}, 8), expected);
    }
    EXPECT_EQ(InfoOf(keeping).kept_texts, 0);
    EXPECT_GE(bag.passes, 4 * 8);
  }
  EXPECT_EQ(bag.models, 0);
}

// ---- What goes wrong in callbacks ---------------------------------------------------------------

struct Fault {
  std::string name;  // of what goes wrong
  tsr_context* context = nullptr;
  const tsr_pass* stale = nullptr;
};
Fault fault;

tsr_status* Fail(const char* message) { return tsr_status_create(TSR_DATA_LOSS, message); }

tsr_status* BuildFaulty(void*, tsr_blueprint* blueprint, void**) {
  const std::string& name = fault.name;
  blueprint->vocab_size = kVocabulary;
  blueprint->attention_layers = name.starts_with("layer") ? 1 : 0;
  const int64_t shape[] = {kVocabulary, kVocabulary};
  if (name == "build") return Fail("a bad config");
  if (name == "no status") return reinterpret_cast<tsr_status*>(&fault);
  if (name == "no vocabulary") blueprint->vocab_size = 0;
  if (name == "positions") blueprint->max_positions = -1;
  if (name == "layers") blueprint->attention_layers = 1 << 20;
  if (name == "no key") return tsr_blueprint_integer(blueprint, nullptr, nullptr);
  if (name == "no name") return tsr_blueprint_parameter(blueprint, nullptr, shape, 2, nullptr);
  if (name == "rank") return tsr_blueprint_parameter(blueprint, "table", shape, 9, nullptr);
  if (name == "no blueprint") return tsr_blueprint_parameter(nullptr, "table", shape, 2, nullptr);
  if (name == "twice") {
    tsr_status_release(tsr_blueprint_parameter(blueprint, "table", shape, 2, nullptr));
  }
  return tsr_blueprint_parameter(blueprint, "table", shape, 2, nullptr);
}

tsr_status* RunFaulty(void*, void*, const tsr_pass* pass) {
  const std::string& name = fault.name;
  fault.stale = pass;
  std::fill_n(pass->logits, pass->num_wanted * kVocabulary, 1.0f);
  std::vector<float> x(static_cast<size_t>(pass->rows * pass->tokens * kVocabulary));
  const int64_t n = pass->rows * pass->tokens;
  auto a = Sized<tsr_attention>();
  a.heads = 1;
  a.head_dim = 4;
  a.q = a.k = a.v = a.out = x.data();
  if (name == "forward") return Fail("a bad day");
  if (name == "code") return tsr_status_create(99, nullptr);
  if (name == "unwritten") pass->logits[kVocabulary - 1] = NAN;
  if (name == "weight") return tsr_pass_linear(pass, 1, -1, x.data(), n, x.data());
  if (name == "bias") return tsr_pass_linear(pass, 0, 0, x.data(), n, x.data());
  if (name == "rows") return tsr_pass_linear(pass, 0, -1, x.data(), -1, x.data());
  if (name == "no x") return tsr_pass_linear(pass, 0, -1, nullptr, n, x.data());
  if (name == "memory") return tsr_pass_memory(pass, SIZE_MAX, &a.out);
  if (name == "layer: beyond") return tsr_pass_attention(pass, 1, &a);
  if (name == "layer: none") return tsr_pass_attention(pass, 0, nullptr);
  if (name == "layer: size") a.size = 3;
  if (name == "layer: heads") a.key_value_heads = 2;
  if (name == "layer: head_dim") a.head_dim = 0;
  if (name == "layer: scale") a.scale = NAN;
  if (name == "layer: large") a.head_dim = int64_t{1} << 60;
  if (name == "layer: no q") a.q = nullptr;
  if (name == "layer: twice") tsr_status_release(tsr_pass_attention(pass, 0, &a));
  if (name == "layer: width" && pass->tokens == 1) a.head_dim = 2;
  if (name.starts_with("layer") && name != "layer: left out") {
    return tsr_pass_attention(pass, 0, &a);
  }
  if (name == "busy") return tsr_context_clear(fault.context);
  if (name == "cancel") {
    tsr_status_release(tsr_context_cancel(fault.context));
    return tsr_pass_linear(pass, 0, -1, x.data(), n, x.data());
  }
  return nullptr;
}

TEST(FamilyTest, FailuresOfCallbacksAreTheCalls) {
  auto family = Sized<tsr_family>();
  family.model_type = "faulty";
  family.architecture = "Faulty";
  family.build = BuildFaulty;
  family.forward = RunFaulty;
  ASSERT_EQ(CodeOf(tsr_register_family(&family)), TSR_OK);
  const std::string folder = TableFolder("faulty", json::object());
  struct Case {
    const char* name;
    const char* message;
    int code = TSR_INVALID_ARGUMENT;
  };
  const Case builds[] = {
      {"build", "a bad config", TSR_DATA_LOSS},
      {"no status", "what a callback returned is not a status, or was released"},
      {"no vocabulary", "build set vocab_size to 0; it is 1 to 2147483648"},
      {"positions", "build set max_positions to -1; it is 0 to 2147483648"},
      {"layers", "build set attention_layers to 1048576; it is 0 to 10000"},
      {"no key", "key is NULL"},
      {"no name", "name is NULL"},
      {"rank",
       "parameter 'table': its shape of 9 dimensions (1 to 8, each at least 1), or its name, "
       "cannot be"},
      {"no blueprint", "NULL is not a blueprint"},
      {"twice", "parameter 'table' is declared twice"},
  };
  for (const Case& c : builds) {
    fault.name = c.name;
    tsr_model* model = nullptr;
    std::string message;
    EXPECT_EQ(CodeOf(tsr_model_load(folder.c_str(), nullptr, &model), &message), c.code) << c.name;
    EXPECT_EQ(message, folder + "/config.json: family 'faulty': " + c.message);
  }
  const Case passes[] = {
      {"forward", "a bad day", TSR_DATA_LOSS},
      {"code", "", TSR_UNKNOWN},
      {"unwritten", "forward left logit 256 of wanted token 0 unwritten, or made it NaN"},
      {"weight",
       "tsr_pass_linear: weight is 1 and bias -1; they are numbers of parameters [out, in] and "
       "[out], or -1 of no bias"},
      {"bias",
       "tsr_pass_linear: weight is 0 and bias 0; they are numbers of parameters [out, in] and "
       "[out], or -1 of no bias"},
      {"rows", "-1 times 257 floats cannot be"},
      {"no x", "tsr_pass_linear: x is NULL"},
      {"memory", "tsr_pass_memory: 18446744073709551615 floats"},
      {"layer: beyond", "tsr_pass_attention: layer 1 of attention_layers 1"},
      {"layer: none", "attention is NULL"},
      {"layer: size", "tsr_attention: size is 3; set it to sizeof(tsr_attention)"},
      {"layer: heads", "tsr_pass_attention: 1 heads cannot share 2 of keys and values"},
      {"layer: head_dim",
       "tsr_pass_attention: a head_dim of 0 with a window of 0, or the scale, cannot be"},
      {"layer: scale",
       "tsr_pass_attention: a head_dim of 4 with a window of 0, or the scale, cannot be"},
      {"layer: large", "1 times 1152921504606846976 floats cannot be"},
      {"layer: no q", "tsr_attention: q, k, v or out is NULL"},
      {"layer: twice", "tsr_pass_attention: layer 0 of 1 is computed twice in a pass"},
      {"layer: left out", "forward did not call tsr_pass_attention for layer 0 of 1"},
      {"busy", "a context runs one call at a time", TSR_BUSY},
      {"cancel", "cancelled", TSR_CANCELLED},
      {"layer: width", "pages"},
  };
  for (const Case& c : passes) {
    fault.name = c.name;
    const ModelHandle model = LoadHandle(folder);
    const ContextHandle context = Keeping(model, 1);
    fault.context = context.get();
    const Ids prompt = {1, 2, 3};
    Generated generated;
    std::string message;
    auto options = Sized<tsr_generate_options>();
    options.max_new_tokens = 3;
    EXPECT_EQ(CodeOf(tsr_generate(context.get(), prompt.data(), 3, &options, Collect, &generated),
                     &message),
              c.code)
        << c.name;
    if (std::strcmp(c.name, "layer: width") == 0) {
      EXPECT_NE(message.find("family 'faulty': write_pages: "), std::string::npos) << message;
    } else if (c.code == TSR_CANCELLED) {
      EXPECT_EQ(message, c.message);
    } else {
      EXPECT_EQ(message, std::string("family 'faulty': ") + c.message);
    }
    float* memory = nullptr;
    EXPECT_EQ(CodeOf(tsr_pass_memory(fault.stale, 1, &memory), &message), TSR_INVALID_ARGUMENT);
    EXPECT_EQ(message, "the pointer is not a pass, or was released");
    // The context is as good as before.
    fault.name = std::string_view(c.name).starts_with("layer") ? "layer" : "";
    EXPECT_EQ(Write(context, prompt, 3).size(), 3u) << c.name;
  }
}

TEST(FamilyTest, RegistrationsThatCannotBeAreRefused) {
  const auto error_of = [](const tsr_family* family) {
    std::string message;
    EXPECT_NE(CodeOf(tsr_register_family(family), &message), TSR_OK);
    return message;
  };
  EXPECT_EQ(error_of(nullptr), "family is NULL");
  auto family = Sized<tsr_family>();
  family.model_type = "new";
  family.architecture = "New";
  family.build = BuildBag;
  family.forward = RunBag;
  tsr_family wrong = family;
  wrong.size = 0;
  EXPECT_EQ(error_of(&wrong), "tsr_family: size is 0; set it to sizeof(tsr_family)");
  wrong = family;
  wrong.model_type = nullptr;
  EXPECT_EQ(error_of(&wrong), "tsr_family: model_type is NULL");
  wrong = family;
  wrong.architecture = nullptr;
  EXPECT_EQ(error_of(&wrong), "tsr_family: architecture is NULL");
  wrong.architecture = "";
  EXPECT_EQ(error_of(&wrong), "tsr_family: model_type and architecture are not empty");
  wrong = family;
  wrong.build = nullptr;
  EXPECT_EQ(error_of(&wrong), "family 'new': build or forward is NULL");
  wrong = family;
  wrong.forward = nullptr;
  EXPECT_EQ(error_of(&wrong), "family 'new': build or forward is NULL");
  wrong = family;
  wrong.model_type = "gpt2";
  EXPECT_EQ(error_of(&wrong), "model_type 'gpt2' is built in");

  // Of many at the same time one is the first.
  std::atomic<int> added = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { added += CodeOf(tsr_register_family(&family)) == TSR_OK ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(added, 1);
}

TEST(FamilyTest, StatusesOfOnesOwn) {
  EXPECT_EQ(tsr_status_create(TSR_OK, "fine"), nullptr);
  std::string message;
  EXPECT_EQ(CodeOf(tsr_status_create(TSR_NOT_FOUND, "no such place"), &message), TSR_NOT_FOUND);
  EXPECT_EQ(message, "no such place");
  EXPECT_EQ(CodeOf(tsr_status_create(-3, nullptr), &message), TSR_UNKNOWN);
  EXPECT_EQ(message, "");
}

}  // namespace
}  // namespace tessera
