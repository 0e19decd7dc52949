#include "models/gpt/gpt.h"

#include <cmath>

#include "autograd/recompute.h"
#include "models/language_model.h"
#include "nn/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// B batch, T tokens, C = n_embd, V = vocab_size.

nn::TransformerBlockConfig LayerConfig(const GptConfig& c, int layer) {
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  const nn::Init residual =
      nn::Init::Normal(c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.n_layer)));
  const double head_dim = static_cast<double>(c.n_embd) / static_cast<double>(c.n_head);
  double scale = c.scale_attn_weights ? 1.0 / std::sqrt(head_dim) : 1.0;
  if (c.scale_attn_by_inverse_layer_idx) scale /= layer + 1;
  nn::TransformerBlockConfig config;
  config.attention = {.hidden_size = c.n_embd,
                      .num_heads = c.n_head,
                      .scale = scale,
                      .attention_dropout = c.attn_pdrop,
                      .residual_dropout = c.resid_pdrop,
                      .layout = LinearLayout::kInOut,
                      .weight_init = weight,
                      .output_init = residual};
  config.mlp = {.hidden_size = c.n_embd,
                .inner_size = c.inner_size(),
                .activation = *nn::FindActivation(c.activation_function),
                .dropout = c.resid_pdrop,
                .layout = LinearLayout::kInOut,
                .weight_init = weight,
                .output_init = residual};
  config.norm_eps = c.layer_norm_epsilon;
  return config;
}

// 0 ... T-1 for every row.
Tensor DefaultPositions(const Tensor& ids) {
  const Tensor row = Arange(ids.size(1), ids.device());
  return row.AsStrided(ids.shape(), {0, 1}, 0).ContiguousCopy();
}

}  // namespace

class Gpt::Transformer : public nn::Module {
 public:
  Transformer(const GptConfig& c, const nn::Scope& scope, const Gpt& gpt) : Module(scope) {
    const nn::EmbeddingConfig tokens = {c.vocab_size, c.n_embd,
                                        nn::Init::Normal(c.initializer_range)};
    const int head = gpt.num_blocks() - 1;
    // A stage with the head but not the embedding holds a replica of the tied weight.
    if (gpt.Has(0) || (gpt.Has(head) && c.tie_word_embeddings)) {
      wte = std::make_unique<nn::VocabParallelEmbedding>(tokens, Child("wte"));
    }
    if (gpt.Has(0)) {
      const nn::EmbeddingConfig positions = {c.n_positions, c.n_embd, tokens.init};
      wpe = std::make_unique<nn::ReplicatedEmbedding>(positions, Child("wpe"));
      drop = std::make_unique<nn::Dropout>(c.embd_pdrop, Child("drop"));
    }
    h.resize(static_cast<size_t>(c.n_layer));
    for (int i = 0; i < static_cast<int>(c.n_layer); ++i) {
      if (!gpt.Has(i + 1)) continue;
      h[static_cast<size_t>(i)] =
          std::make_unique<nn::TransformerBlock>(LayerConfig(c, i), Child(Concat("h.", i)));
    }
    if (gpt.Has(head)) {
      ln_f = std::make_unique<nn::LayerNorm>(
          nn::NormConfig{.width = c.n_embd, .eps = c.layer_norm_epsilon}, Child("ln_f"));
    }
  }

  std::unique_ptr<nn::VocabParallelEmbedding> wte;
  std::unique_ptr<nn::ReplicatedEmbedding> wpe;
  std::unique_ptr<nn::Dropout> drop;
  std::vector<std::unique_ptr<nn::TransformerBlock>> h;
  std::unique_ptr<nn::LayerNorm> ln_f;
};

Gpt::Gpt(const GptConfig& config, nlohmann::json json, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(std::move(json)) {
  transformer_ = std::make_unique<Transformer>(config_, Child("transformer"), *this);
  if (!Has(num_blocks() - 1)) return;
  if (config_.tie_word_embeddings) {
    lm_head_ =
        std::make_unique<nn::VocabParallelHead>(transformer_->wte->weight(), Child("lm_head"));
  } else {
    const nn::EmbeddingConfig own = {config_.vocab_size, config_.n_embd,
                                     nn::Init::Normal(config_.initializer_range)};
    lm_head_ = std::make_unique<nn::VocabParallelHead>(own, Child("lm_head"));
  }
}

Gpt::~Gpt() = default;

bool Gpt::Has(int block) const {
  const auto [first, end] = block_range();
  return block >= first && block < end;
}

Bundle Gpt::RunBlock(int block, Bundle in, const RunOptions& options) {
  TESSERA_CHECK(Has(block), "gpt", "block ", block, " is not part of this model");
  if (block == 0) return Embed(std::move(in), options);
  if (block + 1 == num_blocks()) return RunHead(std::move(in), options);
  return RunLayer(block - 1, std::move(in), options);
}

// The length of the sequence travels with the bundle, since under sequence parallelism the hidden
// states show a share of it only.
nn::ForwardContext Gpt::ContextFor(const Bundle& in, const RunOptions& options) const {
  nn::ForwardContext context = options.context;
  context.sequence_length = in.at("position_ids").size(1);
  return context;
}

Bundle Gpt::Embed(Bundle in, const RunOptions& options) {
  const Tensor ids_BT = in.at("input_ids");
  TESSERA_CHECK(ids_BT.ndim() == 2 && ids_BT.dtype() == DType::kInt64, "gpt",
                "input_ids must be int64 [batch, tokens], got ", ids_BT);
  if (!in.has("position_ids")) in.set("position_ids", DefaultPositions(ids_BT));
  const nn::ForwardContext context = ContextFor(in, options);
  Tensor x_BTC = Add(transformer_->wte->Forward(ids_BT, context),
                     transformer_->wpe->Forward(in.at("position_ids")));
  if (build().sequence_parallel) x_BTC = ScatterToGroup(x_BTC, 1, build().tensor_parallel);
  in.erase("input_ids");
  in.set("hidden", transformer_->drop->Forward(x_BTC, context));
  return in;
}

Bundle Gpt::RunLayer(int layer, Bundle in, const RunOptions& options) {
  nn::TransformerBlock& block = *transformer_->h[static_cast<size_t>(layer)];
  const nn::ForwardContext context = ContextFor(in, options);
  nn::AttentionMasks masks;
  masks.document = in.get("document_ids");
  if (in.has("attention_mask")) {
    masks.key_padding = Compare(in.at("attention_mask"), 0.0, Comparison::kNotEqual);
  }
  const auto run = [&block, masks, context, cache = options.cache, layer](const Tensor& x) {
    return block.Forward(x, masks, context, cache, layer);
  };
  const Tensor x_BTC = in.at("hidden");
  in.set("hidden",
         checkpoint_activations()
             ? Recompute([run](const std::vector<Tensor>& x) { return run(x[0]); }, {x_BTC})
             : run(x_BTC));
  return in;
}

Bundle Gpt::RunHead(Bundle in, const RunOptions& options) {
  const Tensor h_BTC = transformer_->ln_f->Forward(in.at("hidden"));
  return LanguageModelOutputs(*lm_head_, h_BTC, ShiftedTargets(in), in, options);
}

}  // namespace tessera::models
