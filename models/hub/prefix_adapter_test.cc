// SPDX-License-Identifier: Apache-2.0
// Prefix tuning of every family that takes it: its folder, cut as PEFT cuts it, against models that
// are given the same keys and values as a past; written token by token.
#include "models/hub/prefix_adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json_text.h"
#include "core/safetensors.h"
#include "models/family.h"
#include "models/generation/incremental_decoder.h"
#include "models/hub/adapter.h"
#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/input_check.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int64_t>;

constexpr int64_t kPrefix = 4;

struct Case {
  const char* name;
  json model;
  int64_t layers;
  int64_t heads;     // of keys and values
  int64_t head_dim;  // of those
  int64_t submodules = 1;
  bool takes_positions = true;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

json Llama(const char* type, const json& changes = json::object()) {
  json config = {{"model_type", type},       {"vocab_size", 41},
                 {"hidden_size", 24},        {"intermediate_size", 17},
                 {"num_hidden_layers", 2},   {"num_attention_heads", 6},
                 {"num_key_value_heads", 2}, {"max_position_embeddings", 32},
                 {"initializer_range", 0.3}};
  config.update(changes);
  return config;
}
json T5(int64_t layers, const char* type = "t5") {
  return {{"model_type", type}, {"vocab_size", 41},
          {"d_model", 12},      {"d_kv", 5},
          {"d_ff", 17},         {"num_layers", layers},
          {"num_heads", 2},     {"transformers_version", "5.0.0"}};
}
json Gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 41}, {"n_positions", 16},       {"n_embd", 12},
          {"n_layer", 2},         {"n_head", 3},      {"initializer_range", 0.3}};
}
json Glm() {
  return {{"model_type", "glm"},      {"vocab_size", 41},         {"hidden_size", 24},
          {"num_layers", 2},          {"num_attention_heads", 3}, {"max_sequence_length", 24},
          {"initializer_range", 0.3}, {"sop_token_id", 36},       {"eop_token_id", 37},
          {"mask_token_id", 38},      {"smask_token_id", 39},     {"gmask_token_id", 40}};
}
json ChatGlm() {
  return {{"model_type", "chatglm"},   {"vocab_size", 41},         {"hidden_size", 24},
          {"num_layers", 2},           {"inner_hidden_size", 29},  {"num_attention_heads", 3},
          {"max_sequence_length", 24}, {"initializer_range", 0.3}, {"bos_token_id", 36},
          {"eos_token_id", 37},        {"mask_token_id", 38},      {"gmask_token_id", 39},
          {"pad_token_id", 0}};
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"gpt2", Gpt2(), 2, 3, 4},
      {"llama", Llama("llama"), 2, 2, 4},
      {"mistral", Llama("mistral", {{"sliding_window", 5}}), 2, 2, 4},
      {"qwen2", Llama("qwen2"), 2, 2, 4},
      {"qwen3", Llama("qwen3", {{"head_dim", 6}}), 2, 2, 6},
      {"gemma3",
       Llama("gemma3_text",
             {{"sliding_window", 5}, {"sliding_window_pattern", 2}, {"head_dim", 6}}),
       2, 2, 6},
      {"t5", T5(3), 3, 2, 5, 2},
      {"t5_whose_layers_share", T5(4), 4, 2, 5, 2},
      {"mt5", T5(1, "mt5"), 1, 2, 5, 2},
      {"glm", Glm(), 2, 3, 8, 1, false},
      {"chatglm", ChatGlm(), 2, 3, 8, 1, false},
  };
  return *cases;
}

class PrefixFamiliesTest : public testing::TestWithParam<Case> {
 protected:
  PrefixFamiliesTest() : root_(testing::TempDir() + "/prefix_" + std::string(GetParam().name)) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    auto model = BuildModel(GetParam().model, {.dtype = DType::kFloat64, .seed = 3});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    const Status saved = SaveModel(**model, Path("base"));
    EXPECT_TRUE(saved.ok()) << Message(saved);
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::unique_ptr<Model> Load(const std::vector<std::string>& adapters = {}) const {
    auto model = LoadModel(Path("base"), {.build = {.dtype = DType::kFloat64, .seed = 7},
                                          .require_weights = true,
                                          .adapters = adapters});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return *std::move(model);
  }
  static AdapterConfig Config(bool projected = false) {
    json keys = {{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", kPrefix}};
    if (projected) keys.update({{"prefix_projection", true}, {"encoder_hidden_size", 7}});
    const auto config = AdapterConfig::FromJson(keys, "here");
    EXPECT_TRUE(config.ok()) << Message(config.status());
    return *config;
  }
  // As ranks gather them: what a call gave is gone with the next one.
  void ExpectSameWhereNumbersPass(Model& model, const AdapterConfig& config,
                                  const AttachedAdapter& attached) const {
    Tensor last;
    const auto gather = [&](nn::Parameter& p) -> StatusOr<Tensor> {
      if (last.defined()) Fill(last, -1);
      last = CastCopy(p.tensor.Detach(), p.tensor.dtype());
      return last;
    };
    const Status saved = SaveAdapter(model, config, attached, Path("gathered"), {.gather = gather});
    ASSERT_TRUE(saved.ok()) << Message(saved);
    const std::string file = "/adapter_model.safetensors";
    EXPECT_EQ(*ReadFile(Path("gathered") + file), *ReadFile(Path("adapter") + file));
  }
  // A folder of random numbers, or of what a random encoder gives.
  std::string SaveRandom(bool projected, Tensor* logits = nullptr) const {
    const auto model = Load();
    const AdapterConfig config = Config(projected);
    const auto attached = AttachAdapter(*model, config);
    EXPECT_TRUE(attached.ok()) << Message(attached.status());
    if (logits != nullptr) *logits = Logits(*model, {Row(0), Row(1)});
    const Status saved = SaveAdapter(*model, config, *attached, Path("adapter"));
    EXPECT_TRUE(saved.ok()) << Message(saved);
    ExpectSameWhereNumbersPass(*model, config, *attached);
    return Path("adapter");
  }

  static bool Encodes(const Model& model) { return model.encoder_decoder() != nullptr; }
  // A text as the family has it, eight tokens; a decoder's begins with its start.
  static Ids Row(int64_t number) {
    const Ids rest = number == 0 ? Ids{5, 9, 17, 3, 11} : Ids{8, 2, 30, 21, 7};
    const std::string type = GetParam().model.at("model_type");
    Ids row = {rest[0], rest[1]};
    if (type == "glm") row.insert(row.end(), {40, 36});
    if (type == "chatglm") row.insert(row.end(), {39, 36});
    if (GetParam().submodules == 2) row.insert(row.begin(), 0);
    while (row.size() < 8) row.push_back(rest[row.size() % rest.size()]);
    return row;
  }
  static Ids Source() { return {4, 6, 33, 1}; }

  // All inputs of a pass over the rows. `before`: places that a past takes.
  static Bundle Inputs(const Model& model, const std::vector<Ids>& rows, int64_t before = 0) {
    const auto batch = std::ssize(rows), tokens = std::ssize(rows[0]);
    Ids ids, sources;
    for (const Ids& row : rows) {
      ids.insert(ids.end(), row.begin(), row.end());
      for (const int64_t id : Source()) sources.push_back(id);
    }
    const Tensor ids_BT = Tensor::FromVector(ids, {batch, tokens});
    if (Encodes(model)) {
      return {{keys::kInputIds, Tensor::FromVector(sources, {batch, std::ssize(Source())})},
              {keys::kDecoderInputIds, ids_BT}};
    }
    Bundle in = {{keys::kInputIds, ids_BT}};
    const bool shifts = GetParam().takes_positions;
    Ids positions;
    std::vector<int32_t> prefix;
    int64_t coordinates = 1;
    for (const Ids& row : rows) {
      if (model.text_format() == nullptr) {
        for (int64_t t = 0; t < tokens; ++t) positions.push_back(t + (shifts ? before : 0));
        continue;
      }
      const auto layout = model.text_format()->LayoutOf(row);
      EXPECT_TRUE(layout.ok()) << Message(layout.status());
      coordinates = std::ssize(layout->positions);
      for (const auto& places : layout->positions) {
        positions.insert(positions.end(), places.begin(), places.end());
      }
      prefix.push_back(static_cast<int32_t>(layout->prefix_length + before));
    }
    const bool plain = prefix.empty();
    in.set(keys::kPositionIds,
           Tensor::FromVector(positions,
                              plain ? Shape{batch, tokens} : Shape{batch, coordinates, tokens}));
    if (!plain) in.set(keys::kPrefixLength, Tensor::FromVector(prefix, {batch}));
    return in;
  }
  static Tensor Logits(const Model& model, const std::vector<Ids>& rows, int adapter = 0) {
    const NoGrad no_grad;
    return model.Run(Inputs(model, rows), {.context = {.adapter = adapter}}).at(keys::kLogits);
  }

  const std::string root_;
};

std::vector<double> Numbers(const std::string& folder, std::vector<int64_t>* shape = nullptr) {
  const auto file = SafetensorsFile::Open(folder + "/adapter_model.safetensors");
  EXPECT_TRUE(file.ok()) << Message(file.status());
  EXPECT_EQ(file->entries().size(), 1u);
  const auto* const entry = file->Find("prompt_embeddings");
  EXPECT_NE(entry, nullptr);
  if (shape != nullptr) *shape = entry->shape;
  const auto view = file->Get("prompt_embeddings");
  EXPECT_TRUE(view.ok());
  const Tensor t = Empty(Shape(view->shape), view->dtype);
  std::copy_n(view->data, view->nbytes, static_cast<std::byte*>(t.raw_data()));
  return t.ToVector<double>();
}

// PEFT: view(n, 2 layers, heads, head_dim), doubled along the second for an encoder and decoder,
// permuted to [slots, heads, n, head_dim], and cut into pieces of two slots for each submodule; a
// layer's keys and values are the first two of its piece.
Tensor PastOf(const std::vector<double>& numbers, const Case& c, int64_t layer, int64_t which,
              int64_t rows) {
  const int64_t slot = (layer * 2 * c.submodules + which) % (2 * c.layers);
  const Tensor past = Empty({1, c.heads, kPrefix, c.head_dim}, DType::kFloat64);
  double* to = past.data<double>();
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t t = 0; t < kPrefix; ++t) {
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const int64_t at = ((t * 2 * c.layers + slot) * c.heads + h) * c.head_dim + d;
        *to++ = numbers[static_cast<size_t>(at)];
      }
    }
  }
  return BroadcastTo(past, {rows, c.heads, kPrefix, c.head_dim}).ContiguousCopy();
}

TEST_P(PrefixFamiliesTest, IsAPastOfTheFoldersKeysAndValues) {
  const Case& c = GetParam();
  const std::vector<Ids> rows = {Row(0), Row(1)};
  for (const bool projected : {false, true}) {
    SCOPED_TRACE(projected);
    Tensor trained;
    const std::string folder = SaveRandom(projected, &trained);
    const auto model = Load({folder});
    const Tensor logits = Logits(*model, rows);
    if (projected) {
      ExpectClose(logits, trained, 1e-12, "what an encoder gave");
    } else {
      EXPECT_EQ(logits.ToVector<double>(), trained.ToVector<double>());
    }
    const auto plain = Load();
    EXPECT_EQ(Logits(*model, rows, nn::ForwardContext::kNoAdapter).ToVector<double>(),
              Logits(*plain, rows).ToVector<double>());

    std::vector<int64_t> shape;
    const std::vector<double> numbers = Numbers(folder, &shape);
    EXPECT_EQ(shape, (std::vector<int64_t>{kPrefix, 2 * c.layers * c.heads * c.head_dim}));
    nn::KeyValueCache cache(plain->num_cache_layers());
    cache.BeginStep({kPrefix, kPrefix});
    for (int layer = 0; layer < static_cast<int>(c.layers); ++layer) {
      cache.Append(layer, PastOf(numbers, c, layer, 0, 2), PastOf(numbers, c, layer, 1, 2));
    }
    cache.EndStep();
    cache.BeginStep({8, 8});
    const NoGrad no_grad;
    const Bundle out = plain->Run(Inputs(*plain, rows, kPrefix), {.cache = &cache});
    ExpectClose(logits, out.at(keys::kLogits), 1e-11, "a past");
  }
}

TEST_P(PrefixFamiliesTest, TheFolderIsPefts) {
  const Case& c = GetParam();
  const auto config = ReadJsonFile(SaveRandom(true) + "/adapter_config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->at("peft_type"), "PREFIX_TUNING");
  EXPECT_EQ(config->at("task_type"), c.submodules == 2 ? "SEQ_2_SEQ_LM" : "CAUSAL_LM");
  EXPECT_EQ(config->at("num_virtual_tokens"), kPrefix);
  EXPECT_EQ(config->at("num_layers"), c.layers);
  EXPECT_EQ(config->at("num_attention_heads"), c.heads);
  EXPECT_EQ(config->at("token_dim"), c.heads * c.head_dim);
  EXPECT_EQ(config->at("num_transformer_submodules"), c.submodules);
  EXPECT_EQ(config->at("prefix_projection"), true);
  EXPECT_EQ(config->at("encoder_hidden_size"), 7);
  EXPECT_EQ(config->at("inference_mode"), true);
}

// The first step brings the prefix; rows end when they do.
TEST_P(PrefixFamiliesTest, TokenByTokenIsTheWholeText) {
  const auto model = Load({SaveRandom(false)});
  const auto expect_last = [&](std::span<const double> scores, const Ids& row, size_t count) {
    const Tensor whole = Logits(*model, {Ids(row.begin(), row.begin() + static_cast<int>(count))});
    const std::vector<double> logits = whole.ToVector<double>();
    const std::vector<double> last(logits.end() - std::ssize(scores), logits.end());
    for (size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(scores[i], last[i], 1e-11) << count;
  };
  IncrementalDecoder decoder(*model);
  if (Encodes(*model)) decoder.Encode({Source(), Source()});
  const std::vector<Ids> rows = {Row(0), Row(1)};
  const auto part = [&](size_t row, size_t begin, size_t end) {
    return Ids(rows[row].begin() + static_cast<int>(begin),
               rows[row].begin() + static_cast<int>(end));
  };
  Scores scores = decoder.Feed({part(0, 0, 5), part(1, 0, 4)});
  expect_last(scores[0], rows[0], 5);
  expect_last(scores[1], rows[1], 4);
  scores = decoder.Feed({part(0, 5, 6), part(1, 4, 5)});
  expect_last(scores[0], rows[0], 6);
  expect_last(scores[1], rows[1], 5);
  decoder.Keep({1});
  scores = decoder.Feed(std::vector<Ids>{part(1, 5, 8)});
  expect_last(scores[0], rows[1], 8);
}

TEST_P(PrefixFamiliesTest, OnlyThePrefixTrains) {
  const Case& c = GetParam();
  const int64_t features = c.heads * c.head_dim;
  const int64_t own_slots = c.submodules == 2 && c.layers % 2 == 0 ? c.layers / 2 : c.layers;
  for (const bool projected : {false, true}) {
    const auto model = Load();
    const auto attached = AttachAdapter(*model, Config(projected));
    ASSERT_TRUE(attached.ok()) << Message(attached.status());
    TrainOnly(*model, *attached);
    const int64_t encoder = kPrefix * features + 7 * features + 7;
    const int64_t own = projected ? encoder + 2 * own_slots * (features * 7 + features)
                                  : 2 * own_slots * features * kPrefix;
    EXPECT_EQ(model->ParameterCount(/*trainable_only=*/true), own);
    Bundle in = Inputs(*model, {Row(0), Row(1)});
    in.set(keys::kLabels, in.at(Encodes(*model) ? keys::kDecoderInputIds : keys::kInputIds));
    for (const bool recompute : {false, true}) {
      model->set_checkpoint_activations(recompute);
      model->ZeroGrad();
      Backward(model->Run(in, {.context = {.training = true}}).at(keys::kLoss));
      for (const nn::Parameter* p : ParametersOf(*attached)) {
        EXPECT_TRUE(Grad(p->tensor).defined()) << p->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixFamiliesTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class PrefixRefusalsTest : public testing::Test {
 protected:
  static std::string Problem(const json& changes) {
    json keys = {{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", 4}};
    keys.update(changes);
    return Message(AdapterConfig::FromJson(keys, "a.json").status());
  }
  static std::string AttachProblem(const json& model, const json& changes) {
    json keys = {{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", 4}};
    keys.update(changes);
    const auto config = AdapterConfig::FromJson(keys, "a.json");
    EXPECT_TRUE(config.ok()) << Message(config.status());
    const auto built = BuildModel(model, {.seed = 3});
    EXPECT_TRUE(built.ok()) << Message(built.status());
    return Message(AttachAdapter(**built, *config).status());
  }
};

TEST_F(PrefixRefusalsTest, OfConfigurations) {
  EXPECT_EQ(Problem({{"num_virtual_tokens", 0}}),
            "a.json: 'num_virtual_tokens' must be at least 1, not 0");
  EXPECT_EQ(Problem({{"num_virtual_tokens", nullptr}}), "a.json: 'num_virtual_tokens' is missing");
  EXPECT_EQ(Problem({{"modules_to_save", {"lm_head"}}}),
            "a.json: 'modules_to_save': [\"lm_head\"] is not supported");
  EXPECT_EQ(Problem({{"prefix_projection", 1}}),
            "a.json: 'prefix_projection' must be true or false, not 1");
  for (const std::string type : {"PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING"}) {
    EXPECT_EQ(Problem({{"peft_type", type}}),
              "a.json: 'peft_type' is '" + type + "'; supported are LORA and PREFIX_TUNING");
  }
  EXPECT_EQ(AttachProblem(Llama("llama"), {{"num_layers", 3}}),
            "'num_layers' is 3; of this model it must be 2");
  EXPECT_EQ(AttachProblem(Llama("llama"), {{"num_attention_heads", 6}}),
            "'num_attention_heads' is 6; of this model it must be 2");
  EXPECT_EQ(AttachProblem(Llama("llama"), {{"token_dim", 24}}),
            "'token_dim' is 24; of this model it must be 8");
  EXPECT_EQ(AttachProblem(Gpt2(), {{"num_transformer_submodules", 2}}),
            "'num_transformer_submodules' is 2; of this model it must be 1");
  EXPECT_EQ(AttachProblem(Gpt2(), {{"num_virtual_tokens", 16}}),
            "'num_virtual_tokens' is 16, which leaves none of the model's 16 positions");
  const json bert = {{"model_type", "bert"},        {"vocab_size", 41},
                     {"hidden_size", 12},           {"num_hidden_layers", 1},
                     {"num_attention_heads", 2},    {"intermediate_size", 17},
                     {"max_position_embeddings", 8}};
  EXPECT_EQ(AttachProblem(bert, json::object()), "prefix tuning is not for a 'bert' model");
  json uneven = T5(3);
  uneven["num_decoder_layers"] = 2;
  EXPECT_EQ(AttachProblem(uneven, json::object()),
            "prefix tuning needs as many layers in the encoder as in the decoder, not 3 and 2");
}

TEST_F(PrefixRefusalsTest, OfInputs) {
  const auto model = BuildModel(Gpt2(), {.seed = 3});
  const auto config =
      AdapterConfig::FromJson({{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", 4}}, "here");
  ASSERT_TRUE(model.ok() && config.ok() && AttachAdapter(**model, *config).ok());
  const auto problem = [&](const std::vector<Bundle::Entry>& named, int adapter = 0) {
    return Message(InputsFromNamed("in", **model, named, adapter).status());
  };
  const auto row = [](int64_t tokens) { return Zeros({1, tokens}, DType::kInt64); };
  EXPECT_EQ(problem({{"input_ids", row(12)}}), "");
  EXPECT_EQ(problem({{"input_ids", row(13)}}),
            "in: behind a prefix: 'input_ids' has 13 tokens a row; the model has 12 positions");
  EXPECT_EQ(problem({{"input_ids", row(16)}}, nn::ForwardContext::kNoAdapter), "");
  EXPECT_EQ(problem({{"input_ids", row(1)}, {"position_ids", Full({1, 1}, 12, DType::kInt64)}}),
            "in: behind a prefix: 'position_ids': 12 (row 0, position 0) is beyond the model's "
            "positions of 12");
}

TEST_F(PrefixRefusalsTest, OfFolders) {
  const std::string root = testing::TempDir() + "/prefix_refusals";
  fs::remove_all(root);
  fs::create_directories(root);
  const std::string base = root + "/base", adapter = root + "/adapter";
  const auto model = BuildModel(Llama("llama"), {.seed = 3});
  ASSERT_TRUE(model.ok() && SaveModel(**model, base).ok());
  const auto config =
      AdapterConfig::FromJson({{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", 4}}, "here");
  const auto attached = AttachAdapter(**model, *config);
  ASSERT_TRUE(attached.ok() && SaveAdapter(**model, *config, *attached, adapter).ok());
  EXPECT_EQ(
      Message(ConvertModel(base, root + "/merged", {.adapter = adapter})),
      adapter + ": prefix tuning changes no weight of the model, and cannot be merged with it");
  EXPECT_FALSE(fs::exists(root + "/merged"));

  const auto failure = [&] {
    const auto loaded = LoadModel(base, {.adapters = {adapter}});
    EXPECT_FALSE(loaded.ok());
    return Message(loaded.status());
  };
  const auto rewrite = [&](const json& changes) {
    auto object = ReadJsonFile(adapter + "/adapter_config.json");
    object->update(changes);
    std::ofstream(adapter + "/adapter_config.json") << object->dump();
  };
  rewrite({{"num_virtual_tokens", 5}});
  EXPECT_EQ(failure(), adapter +
                           "/adapter_model.safetensors: 'prompt_embeddings' is F32 [4, 32]; for "
                           "this model it must be a floating [5, 32]");
  rewrite({{"num_virtual_tokens", 4}, {"num_layers", 7}});
  EXPECT_EQ(failure(), adapter + ": 'num_layers' is 7; of this model it must be 2");
  rewrite({{"num_layers", 2}});
  const std::string weights = adapter + "/adapter_model.safetensors";
  const auto write = [&](const std::vector<SafetensorsEntry>& entries) {
    auto writer = SafetensorsWriter::Create(weights, entries, {});
    ASSERT_TRUE(writer.ok()) << Message(writer.status());
    for (const SafetensorsEntry& entry : entries) {
      const Tensor zeros = Zeros(Shape(entry.shape), entry.dtype);
      ASSERT_TRUE(writer->Append(zeros.raw_data(), zeros.nbytes()).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  };
  write({{"prompt", DType::kFloat32, {4, 32}}});
  EXPECT_EQ(failure(), weights + ": missing is 'prompt_embeddings'");
  write({{"prompt_embeddings", DType::kFloat32, {4, 32}}, {"other", DType::kFloat32, {1}}});
  EXPECT_EQ(failure(),
            weights + ": this model has no place for 'other'; the adapter is for another one");
  write({{"prompt_embeddings", DType::kInt32, {4, 32}}});
  EXPECT_EQ(failure(), weights +
                           ": 'prompt_embeddings' is I32 [4, 32]; for this model it must be a "
                           "floating [4, 32]");
  fs::remove(weights);
  EXPECT_EQ(failure(),
            "'" + adapter + "' holds no weights of an adapter (adapter_model.safetensors)");
}

}  // namespace
}  // namespace tessera::models
