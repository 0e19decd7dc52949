// SPDX-License-Identifier: Apache-2.0
#include "models/vit/vit.h"

#include <vector>

#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "models/vit/position_table.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/norm.h"
#include "nn/transformer_block.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, N patches, T = N + 1 tokens, C = hidden_size, L labels.

nn::Init WeightInit(const VitConfig& c) { return nn::Init::Normal(c.initializer_range); }

nn::LinearConfig Dense(const VitConfig& c, int64_t out_features) {
  return {.in_features = c.hidden_size, .out_features = out_features, .weight_init = WeightInit(c)};
}

nn::TransformerBlockConfig LayerConfig(const VitConfig& c) {
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.hidden_size,
                      .num_heads = c.num_attention_heads,
                      .causal = false,
                      .attention_dropout = c.attention_probs_dropout_prob,
                      .residual_dropout = c.hidden_dropout_prob,
                      .weight_init = WeightInit(c),
                      .output_init = WeightInit(c),
                      .qkv_bias = c.qkv_bias,
                      .qkv_names = {"attention.query", "attention.key", "attention.value"},
                      .output_name = "output.dense"};
  config.mlp = {.hidden_size = c.hidden_size,
                .inner_size = c.intermediate_size,
                .activation = *nn::FindActivation(c.hidden_act),
                .dropout = c.hidden_dropout_prob,
                .weight_init = WeightInit(c),
                .output_init = WeightInit(c),
                .up_name = "intermediate.dense",
                .down_name = "output.dense"};
  config.norm_eps = c.layer_norm_eps;
  config.attention_norm_name = "layernorm_before";
  config.mlp_norm_name = "layernorm_after";
  config.attention_name = "attention";
  config.mlp_name = "";
  return config;
}

// [B, channels, H, W] to [B, N, channels * p * p], patches row by row.
Tensor CutIntoPatches(const Tensor& pixels, int64_t p) {
  const int64_t b = pixels.size(0);
  const int64_t channels = pixels.size(1);
  const int64_t rows = pixels.size(2) / p;
  const int64_t columns = pixels.size(3) / p;
  const Tensor split = Reshape(Contiguous(pixels), {b, channels, rows, p, columns, p});
  return Reshape(Permute(split, {0, 2, 4, 1, 3, 5}), {b, rows * columns, channels * p * p});
}

}  // namespace

class Vit::Embeddings : public nn::Module {
 public:
  Embeddings(const VitConfig& c, const nn::Scope& scope)
      : Module(scope),
        config_(c),
        cls_token_(
            AddParameter("cls_token", Placement::Whole({1, 1, c.hidden_size}), WeightInit(c))),
        positions_(AddParameter("position_embeddings",
                                Placement::Whole({1, c.grid() * c.grid() + 1, c.hidden_size}),
                                WeightInit(c))),
        projection_(AddParameter(
            "patch_embeddings.projection.weight",
            Placement::Whole({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
            WeightInit(c))),
        projection_bias_(AddParameter("patch_embeddings.projection.bias",
                                      Placement::Whole({c.hidden_size}), nn::Init::Zeros())),
        dropout_(c.hidden_dropout_prob, Child("dropout")) {}

  // [B, channels, H, W] to [B, T, C], this rank's share of T under sequence parallelism.
  Tensor Forward(const Tensor& pixels, const nn::ForwardContext& context) const {
    return Call(pixels, [&] {
      const int64_t b = pixels.size(0);
      const int64_t width = config_.hidden_size;
      // Pictures come in float32, whatever the weights are.
      const Tensor patches =
          CutIntoPatches(Cast(pixels, projection_.tensor.dtype()), config_.patch_size);
      const Tensor weight = Reshape(projection_.tensor, {width, patches.size(2)});
      const Tensor x_BNC = Linear(patches, weight, projection_bias_.tensor, LinearLayout::kOutIn);
      const Tensor cls_B1C = BroadcastTo(cls_token_.tensor, {b, 1, width});
      const Tensor positions_1TC =
          ResizePositions(positions_.tensor, config_.grid(), pixels.size(2) / config_.patch_size,
                          pixels.size(3) / config_.patch_size);
      Tensor x_BTC = Add(Cat({cls_B1C, x_BNC}, 1), positions_1TC);
      if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
      return dropout_.Forward(x_BTC, context);
    });
  }

 private:
  const VitConfig config_;
  nn::Parameter& cls_token_;
  nn::Parameter& positions_;
  nn::Parameter& projection_;
  nn::Parameter& projection_bias_;
  nn::Dropout dropout_;
};

class Vit::Encoder : public nn::Module {
 public:
  Encoder(const VitConfig& c, const nn::Scope& scope, const Vit& vit) : Module(scope) {
    if (vit.HasBlock(0)) embeddings = std::make_unique<Embeddings>(c, Child("embeddings"));
    layers.resize(static_cast<size_t>(c.num_hidden_layers));
    for (int i = 0; i < static_cast<int>(c.num_hidden_layers); ++i) {
      if (!vit.HasBlock(i + 1)) continue;
      layers[static_cast<size_t>(i)] = std::make_unique<nn::TransformerBlock>(
          LayerConfig(c), Child(Concat("encoder.layer.", i)));
    }
    if (!vit.HasBlock(vit.num_blocks() - 1)) return;
    layernorm = std::make_unique<nn::LayerNorm>(
        nn::NormConfig{.width = c.hidden_size, .eps = c.layer_norm_eps}, Child("layernorm"));
    if (c.has_pooler) {
      pooler = std::make_unique<nn::ReplicatedLinear>(Dense(c, c.pooler_output_size),
                                                      Child("pooler.dense"));
    }
  }

  std::unique_ptr<Embeddings> embeddings;
  std::vector<std::unique_ptr<nn::TransformerBlock>> layers;
  std::unique_ptr<nn::LayerNorm> layernorm;
  std::unique_ptr<nn::ReplicatedLinear> pooler;
};

Vit::Vit(const VitConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  // A bare encoder's file has no prefix.
  encoder_ = std::make_unique<Encoder>(config_, Child(config_.classifies ? "vit" : ""), *this);
  if (!config_.classifies || !HasBlock(num_blocks() - 1)) return;
  classifier_ = std::make_unique<nn::ReplicatedLinear>(Dense(config_, config_.labels.count),
                                                       Child("classifier"));
}

Vit::~Vit() = default;

BlockKeys Vit::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kPixelValues},
            .gives = {keys::kHidden, keys::kPositionIds},
            .drops = {keys::kPixelValues}};
  }
  if (block + 1 < num_blocks()) return TransformerBlockKeys({});
  if (!config_.classifies) {
    BlockKeys head = {.takes = {keys::kHidden, keys::kPositionIds},
                      .gives = {keys::kLastHiddenState}};
    if (config_.has_pooler) head.gives.Add(keys::kPoolerOutput);
    return head;
  }
  return {.takes = {keys::kHidden, keys::kPositionIds},
          .may_take = {keys::kLabels, keys::kTargets},
          .gives = {keys::kLoss, keys::kLogits, keys::kLastHiddenState}};
}

Bundle Vit::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "vit", "block ", block, " is not part of this model");
  if (block + 1 == num_blocks()) return RunHead(in, options);
  if (block > 0) {
    return RunTransformerBlock(*encoder_->layers[static_cast<size_t>(block - 1)], std::move(in),
                               options);
  }
  const Tensor pixels = in.at(keys::kPixelValues);
  const int64_t p = config_.patch_size;
  TESSERA_CHECK(pixels.ndim() == 4 && pixels.size(1) == config_.num_channels &&
                    pixels.size(2) % p == 0 && pixels.size(3) % p == 0 && pixels.numel() > 0,
                "vit", "pixel_values must be [batch, ", config_.num_channels,
                ", height, width], sizes multiples of ", p, ", got ", pixels);
  // One row of positions: what ContextFor and later stages know the length of a sequence by.
  in.set(keys::kPositionIds,
         CountingPositions(1, (pixels.size(2) / p) * (pixels.size(3) / p) + 1, pixels.device()));
  in.erase(keys::kPixelValues);
  in.set(keys::kHidden, encoder_->embeddings->Forward(pixels, ContextFor(in, options)));
  return in;
}

Bundle Vit::RunHead(const Bundle& in, const RunOptions& options) const {
  const nn::ForwardContext context = ContextFor(in, options);
  const Tensor whole_BTC =
      WholeSequence(encoder_->layernorm->Forward(in.at(keys::kHidden)), build(), context);
  const Tensor first_BC = FirstToken(whole_BTC);
  Bundle out;
  if (encoder_->pooler != nullptr) {
    out.set(keys::kPoolerOutput, (*nn::FindActivation(config_.pooler_act))(
                                     encoder_->pooler->Forward(first_BC, context)));
  }
  const bool hidden_only = WantsHiddenOnly(in, options);
  if (options.keep_logits || hidden_only) out.set(keys::kLastHiddenState, whole_BTC);
  if (classifier_ != nullptr && !hidden_only) {
    const Tensor pooled_BC =
        config_.mean_pooling ? Mean(Slice(whole_BTC, 1, 1, whole_BTC.size(1) - 1), {1}) : first_BC;
    const Tensor logits_BL =
        static_cast<nn::ReplicatedLinear&>(*classifier_).Forward(pooled_BC, context);
    if (options.keep_logits) out.set(keys::kLogits, logits_BL);
    const Tensor labels = in.has(keys::kTargets) ? in.at(keys::kTargets) : in.get(keys::kLabels);
    if (labels.defined()) {
      out.set(keys::kLoss, ClassificationLoss(logits_BL, labels, config_.labels, options));
    }
  }
  return out;
}

}  // namespace tessera::models
