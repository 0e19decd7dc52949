// SPDX-License-Identifier: Apache-2.0
// A model family of one's own: an embedding, residual layers, a head over the vocabulary. Its
// blocks are declared and it registers itself, so that trainer, loops, layouts over ranks and every
// command know it where it is linked.
#include <memory>
#include <utility>
#include <vector>

#include <tessera/models/config_reader.h>
#include <tessera/models/family.h>
#include <tessera/models/language_model.h>
#include <tessera/models/transformer_stack.h>
#include <tessera/nn/embedding.h>
#include <tessera/nn/linear.h>
#include <tessera/ops/elementwise/elementwise.h>

#include "nlohmann/json.hpp"

namespace {

using namespace tessera;
using models::BlockKeys;
using models::RunOptions;

struct MyConfig {
  int64_t vocab_size = 0;
  int64_t width = 64;
  int64_t layers = 2;

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<MyConfig>("my model")
                            .Add("vocab_size", &MyConfig::vocab_size, "tokens", {.least = 1})
                            .Add("width", &MyConfig::width, "features of a token", {.least = 1})
                            .Add("layers", &MyConfig::layers, "residual layers", {.least = 0}));
    return *table;
  }
};

// x + down(gelu(up(x))), whose inner features are shared out over tensor-parallel ranks.
class Residual : public nn::Module {
 public:
  Residual(int64_t width, const nn::Scope& scope)
      : Module(scope),
        up_({.in_features = width, .out_features = 4 * width}, Child("up")),
        down_({.in_features = 4 * width, .out_features = width}, Child("down")) {}

  Tensor Forward(const Tensor& x_BTC, const nn::ForwardContext& context) const {
    return Call(x_BTC,
                [&] { return Add(x_BTC, down_.Forward(GeluTanh(up_.Forward(x_BTC, context)))); });
  }

 private:
  nn::ColumnParallelLinear up_;
  nn::RowParallelLinear down_;
};

// Blocks: 0 the embedding, then the layers, then the head; a pipeline's stage builds some of them.
// B batch, T tokens, C width.
class MyModel : public models::Model {
 public:
  MyModel(const MyConfig& config, const nlohmann::json& json, const nn::BuildContext& build)
      : Model(nn::Scope::Root(build)), config_(config), json_(json) {
    const nn::EmbeddingConfig table = {.rows = config.vocab_size, .width = config.width};
    if (HasBlock(0)) {
      embedding_ = std::make_unique<nn::VocabParallelEmbedding>(table, Child("embedding"));
    }
    layers_.resize(static_cast<size_t>(config.layers));
    for (int block = 1; block <= static_cast<int>(config.layers); ++block) {
      if (!HasBlock(block)) continue;
      LayerOf(block) =
          std::make_unique<Residual>(config.width, Child(Concat("layers.", block - 1)));
    }
    if (HasBlock(num_blocks() - 1)) {
      head_ = std::make_unique<nn::VocabParallelHead>(table, Child("head"));
    }
  }

  int num_blocks() const override { return static_cast<int>(config_.layers) + 2; }
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }  // unlimited
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t hidden_size() const override { return config_.width; }

  BlockKeys keys_of_block(int block) const override {
    if (block == 0) {
      return {.takes = {keys::kInputIds},
              .may_take = {keys::kPositionIds},
              .gives = {keys::kHidden, keys::kPositionIds},
              .drops = {keys::kInputIds}};
    }
    if (block + 1 == num_blocks()) return models::LanguageModelKeys();
    return {.takes = {keys::kHidden, keys::kPositionIds}, .gives = {keys::kHidden}};
  }

  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override {
    if (block == 0) return Embed(std::move(in), options);
    if (block + 1 == num_blocks()) {
      return models::LanguageModelOutputs(*head_, in.at(keys::kHidden), models::ShiftedTargets(in),
                                          in, options);
    }
    in.set(keys::kHidden, LayerOf(block)->Forward(in.at(keys::kHidden), ContextFor(in, options)));
    return in;
  }

 private:
  // Positions are passed on for their number: under sequence parallelism `hidden` has a share of
  // it.
  Bundle Embed(Bundle in, const RunOptions& options) const {
    const Tensor ids_BT = in.at(keys::kInputIds);
    if (!in.has(keys::kPositionIds)) {
      in.set(keys::kPositionIds,
             models::CountingPositions(ids_BT.size(0), ids_BT.size(1), ids_BT.device()));
    }
    Tensor x_BTC = embedding_->Forward(ids_BT, ContextFor(in, options));
    if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
    in.erase(keys::kInputIds);
    in.set(keys::kHidden, x_BTC);
    return in;
  }

  std::unique_ptr<Residual>& LayerOf(int block) { return layers_[static_cast<size_t>(block - 1)]; }
  const std::unique_ptr<Residual>& LayerOf(int block) const {
    return layers_[static_cast<size_t>(block - 1)];
  }

  const MyConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<nn::VocabParallelEmbedding> embedding_;
  std::vector<std::unique_ptr<Residual>> layers_;
  std::unique_ptr<nn::VocabParallelHead> head_;
};

StatusOr<std::unique_ptr<models::Model>> Build(const nlohmann::json& json,
                                               const nn::BuildContext& build) {
  MyConfig config;
  models::ConfigReader reader(json, "my_model");
  reader.Read(&config);
  reader.Require(config.vocab_size > 0, "'vocab_size' is missing");
  TESSERA_RETURN_IF_ERROR(reader.status());
  return std::make_unique<MyModel>(config, json, build);
}

models::Family MakeFamily() {
  return {
      .model_type = "my_model",
      .architectures = {{"MyModelForCausalLM", {models::Capability::kNextToken}}},
      // 256 bytes and the end of a text, as the tokenizer `byte` counts them.
      .presets = {{"my-model", "byte", {{"model_type", "my_model"}, {"vocab_size", 257}}}},
      .build = Build,
      .inputs = {keys::kInputIds, keys::kTargets},
      .shares_sequences = true,
  };
}
const models::FamilyRegistration registration(MakeFamily);

}  // namespace
