// SPDX-License-Identifier: Apache-2.0
// Any model that gives logits generates, whatever else it can do.
#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/autograd.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/language_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

constexpr int64_t kVocab = 11;
constexpr int64_t kWidth = 8;

// What a model of one attention layer does beside giving logits.
enum class Kind {
  kLogitsAlone,
  kTakesLogitPositions,
  kTakesButGivesAll,
  kCaches,
  kCachesAndTakes,
  kForgetsCache,  // says that it keeps keys and values
  kGivesLast,     // without being asked for
};

class Own : public Model {
 public:
  Own(const nlohmann::json& json, const nn::BuildContext& build)
      : Model(nn::Scope::Root(build)),
        json_(json),
        kind_(static_cast<Kind>(json.at("kind").get<int>())),
        table_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("table")),
        attention_({.hidden_size = kWidth, .num_heads = 2, .weight_init = nn::Init::Normal(1)},
                   Child("attention")),
        head_({.rows = kVocab, .width = kWidth, .init = nn::Init::Normal(1)}, Child("head")) {}

  int num_blocks() const override { return 1; }
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }
  int64_t vocab_size() const override { return kVocab; }
  int num_cache_layers() const override {
    return Is({Kind::kCaches, Kind::kCachesAndTakes, Kind::kForgetsCache}) ? 1 : 0;
  }

  BlockKeys keys_of_block(int) const override {
    BlockKeys keys{.takes = {keys::kInputIds}, .gives = {keys::kLogits}};
    if (TakesPositions()) keys.may_take = {keys::kLogitPositions};
    return keys;
  }

  Bundle RunBlock(int, Bundle in, const RunOptions& options) const override {
    const Tensor ids_BT = in.at(keys::kInputIds);
    nn::ForwardContext context = options.context;
    Tensor h_BTC = table_.Forward(ids_BT);
    nn::KeyValueCache* const cache = Is({Kind::kForgetsCache}) ? nullptr : options.cache;
    h_BTC = attention_.Forward(h_BTC, {}, context, cache, 0);
    if (Is({Kind::kTakesLogitPositions, Kind::kCachesAndTakes})) {
      h_BTC = AtLogitPositions(h_BTC, in, build(), &context);
    }
    if (Is({Kind::kGivesLast})) h_BTC = Slice(h_BTC, 1, ids_BT.size(1) - 1, 1);
    return {{keys::kLogits, head_.Gather(head_.Forward(h_BTC, context))}};
  }

 private:
  bool Is(std::initializer_list<Kind> kinds) const {
    return std::find(kinds.begin(), kinds.end(), kind_) != kinds.end();
  }
  bool TakesPositions() const {
    return Is({Kind::kTakesLogitPositions, Kind::kTakesButGivesAll, Kind::kCachesAndTakes});
  }

  const nlohmann::json json_;
  const Kind kind_;
  nn::VocabParallelEmbedding table_;
  nn::SelfAttention attention_;
  nn::VocabParallelHead head_;
};

Family MakeFamily() {
  Family family{.model_type = "own"};
  family.architectures = {{"OwnForCausalLM", {Capability::kNextToken}}};
  family.build = [](const nlohmann::json& json,
                    const nn::BuildContext& build) -> StatusOr<std::unique_ptr<Model>> {
    return std::make_unique<Own>(json, build);
  };
  return family;
}
const FamilyRegistration registration(MakeFamily);

nlohmann::json ConfigOf(Kind kind) {
  return {{"model_type", "own"}, {"kind", static_cast<int>(kind)}};
}

std::vector<Ids> Written(const Model& model, const GenerationConfig& config) {
  const auto results = Generate(model, {{3, 1, 4, 1, 5}, {9}, {2, 6}}, config);
  EXPECT_TRUE(results.ok()) << Message(results.status());
  std::vector<Ids> texts;
  if (!results.ok()) return texts;
  for (const GenerationResult& result : *results) {
    texts.push_back(result.prompt);
    texts.back().insert(texts.back().end(), result.ids.begin(), result.ids.end());
  }
  return texts;
}

// Greedy search by whole passes over one text at a time.
Ids Expected(const Model& model, Ids text, int tokens) {
  const NoGrad no_grad;
  for (int i = 0; i < tokens; ++i) {
    const Tensor ids = Tensor::FromVector<int64_t>(text, {1, std::ssize(text)});
    const auto logits =
        model.Run({{keys::kInputIds, ids}}, {}).at(keys::kLogits).ToVector<double>();
    const auto last = logits.end() - kVocab;
    text.push_back(std::max_element(last, logits.end()) - last);
  }
  return text;
}

class OwnModelTest : public testing::TestWithParam<Kind> {};

TEST_P(OwnModelTest, WritesWhatWholePassesGive) {
  for (const bool by_family : {true, false}) {
    const nlohmann::json config = ConfigOf(GetParam());
    std::unique_ptr<Model> model = std::make_unique<Own>(config, nn::BuildContext{.seed = 3});
    if (by_family) model = BuildModel(config, {.seed = 3}).value();
    const Own plain(ConfigOf(Kind::kLogitsAlone), {.seed = 3});
    EXPECT_EQ(Written(*model, {.max_new_tokens = 7}),
              (std::vector<Ids>{Expected(plain, {3, 1, 4, 1, 5}, 7), Expected(plain, {9}, 7),
                                Expected(plain, {2, 6}, 7)}));
    const GenerationConfig beams{.max_new_tokens = 6, .num_beams = 3};
    EXPECT_EQ(Written(*model, beams), Written(plain, beams));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnModelTest,
                         testing::Values(Kind::kLogitsAlone, Kind::kTakesLogitPositions,
                                         Kind::kTakesButGivesAll, Kind::kCaches,
                                         Kind::kCachesAndTakes));

std::string ErrorOf(Kind kind) {
  const Own model(ConfigOf(kind), {.seed = 3});
  try {
    const auto results = Generate(model, {{3, 1, 4}}, {.max_new_tokens = 2});
    return Message(results.status());
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(OwnModelErrorTest, NamesWhatAModelDoesNotKeepToItsWord) {
  EXPECT_EQ(ErrorOf(Kind::kForgetsCache),
            "model: layer 0 of num_cache_layers() = 1 keeps nothing in RunOptions::cache; a model "
            "without layers that do has num_cache_layers() of 0");
  EXPECT_EQ(ErrorOf(Kind::kGivesLast),
            "decode: the model gave logits float32[1, 1, 11]; of these tokens they are [1, 3, 11]");
}

}  // namespace
}  // namespace tessera::models
