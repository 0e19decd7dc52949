// SPDX-License-Identifier: Apache-2.0
#include "nn/attention.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "nn/weight.h"
#include "ops/attention/ring_attention.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rearrange/rearrange.h"
#include "ops/rotary/rotary.h"
#include "ops/view/view.h"

namespace tessera::nn {

// B batch, T tokens, C hidden size, H this rank's query heads, G its key/value heads, D head size,
// F features.

namespace {

int RanksOf(const Group& group) { return group == nullptr ? 1 : group->size(); }
int RankOf(const Group& group) { return group == nullptr ? 0 : group->rank(); }

int64_t KeyValueHeads(const SelfAttentionConfig& config) {
  return config.num_key_value_heads > 0 ? config.num_key_value_heads : config.num_heads;
}

// Query heads that share a key/value head.
int64_t HeadsPerGroup(const SelfAttentionConfig& config) {
  return config.num_heads / KeyValueHeads(config);
}

// Whether groups of heads have to be divided, for want of as many as there are ranks.
bool GathersKeyValues(const SelfAttentionConfig& config, const Group& group) {
  return KeyValueHeads(config) < std::min<int64_t>(RanksOf(group), config.num_heads);
}

// Query heads that stay together.
int64_t QueryUnit(const SelfAttentionConfig& config, const Group& group) {
  return GathersKeyValues(config, group) ? 1 : HeadsPerGroup(config);
}

// Whether a sum's leaves divide groups of heads, as so many ranks would.
bool LeavesDivideGroups(const SelfAttentionConfig& config) {
  return KeyValueHeads(config) < std::min<int64_t>(kSumLeaves, config.num_heads);
}

FeatureBlock QueryBlock(const SelfAttentionConfig& config, const Group& group) {
  const int64_t unit = QueryUnit(config, group) * HeadDim(config);
  return {.features = config.num_heads * HeadDim(config),
          .unit = unit,
          .leaf = LeavesDivideGroups(config) ? HeadDim(config) : unit};
}

FeatureBlock KeyValueBlock(const SelfAttentionConfig& config, const Group& group) {
  const int64_t unit = GathersKeyValues(config, group) ? 1 : HeadDim(config);
  return {.features = KeyValueHeads(config) * HeadDim(config),
          .unit = unit,
          .leaf = LeavesDivideGroups(config) ? 1 : unit};
}

LinearConfig ProjectionConfig(const SelfAttentionConfig& config, std::vector<FeatureBlock> blocks) {
  int64_t features = 0;
  for (const FeatureBlock& block : blocks) features += block.features;
  return {.in_features = config.hidden_size,
          .out_features = features,
          .bias = config.qkv_bias,
          .layout = config.layout,
          .weight_init = config.weight_init,
          .blocks = std::move(blocks)};
}

LinearConfig FusedConfig(const SelfAttentionConfig& config, const Group& group) {
  const FeatureBlock key_value = KeyValueBlock(config, group);
  if (!config.qkv_by_head) {
    return ProjectionConfig(config, {QueryBlock(config, group), key_value, key_value});
  }
  return ProjectionConfig(config, {{3 * config.num_heads * HeadDim(config), 3 * HeadDim(config)}});
}

// In which order gradients of a key/value head are summed over its query heads; nullptr: as
// attention does.
std::shared_ptr<const SumTree> QueryTree(const SelfAttentionConfig& config, int64_t heads,
                                         const BuildContext& build) {
  if (!SumsInTrees(build) || !LeavesDivideGroups(config)) return nullptr;
  SumTree tree = *MakeSumTree({{.units = heads}}, build.tensor_parallel);
  if (!GathersKeyValues(config, build.tensor_parallel)) tree.group = nullptr;
  return std::make_shared<const SumTree>(std::move(tree));
}

using ChildScope = std::function<Scope(const std::string&)>;

std::vector<std::unique_ptr<ColumnParallelLinear>> MakeQkv(const SelfAttentionConfig& config,
                                                           const Group& group,
                                                           const ChildScope& child) {
  std::vector<std::unique_ptr<ColumnParallelLinear>> layers;
  const auto add = [&](const LinearConfig& layer, const std::string& name) {
    layers.push_back(std::make_unique<ColumnParallelLinear>(layer, child(name)));
  };
  if (config.qkv_names.empty()) {
    add(FusedConfig(config, group), config.qkv_name);
    return layers;
  }
  TESSERA_CHECK(config.qkv_names.size() == 3, "self_attention", "q, k and v need three names, not ",
                config.qkv_names.size());
  add(QueryConfig(config, group), config.qkv_names[0]);
  add(KeyValueConfig(config, group), config.qkv_names[1]);
  add(KeyValueConfig(config, group), config.qkv_names[2]);
  return layers;
}

// Number `index` of the two head norms.
std::unique_ptr<RmsNorm> MakeHeadNorm(const SelfAttentionConfig& config, size_t index,
                                      const ChildScope& child) {
  const auto& names = config.head_norm_names;
  if (names.empty()) return nullptr;
  TESSERA_CHECK(names.size() == 2, "self_attention", "the norms of q and k need two names, not ",
                names.size());
  const int64_t heads = index == 0 ? config.num_heads : KeyValueHeads(config);
  const NormConfig norm = {.width = (config.joint_head_norms ? heads : 1) * HeadDim(config),
                           .eps = config.head_norm_eps,
                           .zero_centered = config.head_norm_zero_centered,
                           .on_heads = true};
  return std::make_unique<RmsNorm>(norm, child(names[index]));
}

const SelfAttentionConfig& Checked(const SelfAttentionConfig& config) {
  const int64_t groups = KeyValueHeads(config);
  TESSERA_CHECK(
      config.num_heads > 0 && config.num_key_value_heads >= 0 && config.num_heads % groups == 0,
      "self_attention", config.num_heads, " heads cannot share ", groups, " key/value heads");
  TESSERA_CHECK(!config.qkv_by_head || (groups == config.num_heads && config.qkv_names.empty()),
                "self_attention", "qkv_by_head is of a fused projection without grouped heads");
  TESSERA_CHECK(!config.joint_head_norms || !config.head_norm_names.empty(), "self_attention",
                "joint_head_norms without head_norm_names");
  TESSERA_CHECK(config.window >= 0, "self_attention", "a window of ", config.window);
  return config;
}

}  // namespace

int64_t HeadDim(const SelfAttentionConfig& config) {
  TESSERA_CHECK(config.hidden_size > 0 && config.num_heads > 0, "self_attention",
                "a hidden size of ", config.hidden_size, " and ", config.num_heads, " heads");
  if (config.head_dim > 0) return config.head_dim;
  TESSERA_CHECK(config.hidden_size % config.num_heads == 0, "self_attention", "hidden size ",
                config.hidden_size, " does not divide into ", config.num_heads, " heads");
  return config.hidden_size / config.num_heads;
}

Share HeadShare(const SelfAttentionConfig& config, const Group& group) {
  const int64_t unit = QueryUnit(config, group);
  const Share units = EvenShare(config.num_heads / unit, RanksOf(group), RankOf(group));
  return {units.begin * unit, units.count * unit};
}

LinearConfig QueryConfig(const SelfAttentionConfig& config, const Group& group) {
  return ProjectionConfig(config, {QueryBlock(config, group)});
}

LinearConfig KeyValueConfig(const SelfAttentionConfig& config, const Group& group) {
  return ProjectionConfig(config, {KeyValueBlock(config, group)});
}

LinearConfig OutputConfig(const SelfAttentionConfig& config, const Group& group) {
  return {.in_features = config.num_heads * HeadDim(config),
          .out_features = config.hidden_size,
          .bias = config.output_bias,
          .layout = config.layout,
          .weight_init = config.output_init,
          .blocks = {QueryBlock(config, group)}};
}

SelfAttention::SelfAttention(const SelfAttentionConfig& config, const Scope& scope)
    : AttentionLayer(scope),
      config_(Checked(config)),
      head_dim_(HeadDim(config)),
      heads_(HeadShare(config, build().tensor_parallel)),
      gathers_key_values_(GathersKeyValues(config, build().tensor_parallel)),
      query_tree_(QueryTree(config_, heads_.count, build())),
      qkv_(MakeQkv(config, build().tensor_parallel,
                   [this](const std::string& name) { return Child(name); })),
      output_(OutputConfig(config, build().tensor_parallel), Child(config.output_name)),
      q_norm_(MakeHeadNorm(config, 0, [this](const std::string& name) { return Child(name); })),
      k_norm_(MakeHeadNorm(config, 1, [this](const std::string& name) { return Child(name); })),
      attn_dropout_(config.attention_dropout, Child("attn_dropout")),
      resid_dropout_(config.residual_dropout, Child("resid_dropout")) {}

std::vector<Tensor> SelfAttention::Features(const Tensor& h_BTC,
                                            const ForwardContext& context) const {
  if (qkv_.size() == 3) {
    const Tensor whole_BTC = qkv_[0]->Gather(h_BTC, context);
    std::vector<Tensor> q_k_v;
    for (const auto& layer : qkv_) q_k_v.push_back(layer->ForwardGathered(whole_BTC, context));
    return q_k_v;
  }
  const Tensor fused_BTF = qkv_[0]->Forward(h_BTC, context);
  if (config_.qkv_by_head) {
    const Tensor by_head =
        Reshape(fused_BTF, {fused_BTF.size(0), fused_BTF.size(1), heads_.count, 3 * head_dim_});
    return Split(by_head, {head_dim_, head_dim_, head_dim_}, 3);
  }
  const int64_t of_q = heads_.count * head_dim_;
  const int64_t of_k = (fused_BTF.size(2) - of_q) / 2;
  return Split(fused_BTF, {of_q, of_k, of_k}, 2);
}

Tensor SelfAttention::SplitHeads(const Tensor& x, const Norm* norm) const {
  const Tensor x_BTHD = ByHead(x);
  return Transpose(norm == nullptr ? x_BTHD : norm->Forward(x_BTHD), 1, 2);
}

Tensor SelfAttention::Needed(const Tensor& all_BTF) const {
  const int64_t per_group = HeadsPerGroup(config_);
  const int64_t first = heads_.begin / per_group;
  const int64_t end = (heads_.begin + heads_.count + per_group - 1) / per_group;
  const Tensor needed = Slice(all_BTF, 2, first * head_dim_, (end - first) * head_dim_);
  // Kernels want as many queries for each: whole groups, or queries of one.
  if (end - first <= 1 || heads_.count == (end - first) * per_group) return needed;
  const Tensor by_group = Reshape(needed, {needed.size(0), needed.size(1), end - first, head_dim_});
  return Slice(RepeatInterleave(by_group, per_group, 2), 2, heads_.begin - first * per_group,
               heads_.count);
}

Tensor SelfAttention::NormTogether(const Norm& norm, const Tensor& x_BTF, int64_t heads,
                                   int64_t unit) const {
  const Group& group = build().tensor_parallel;
  if (RanksOf(group) == 1) return norm.Forward(x_BTF);
  const int64_t units = heads / unit;
  const int64_t width = unit * head_dim_;
  const Shape leading = {x_BTF.size(0), x_BTF.size(1)};
  const auto shaped = [&](const Tensor& x, std::initializer_list<int64_t> last) {
    Shape shape = leading;
    for (const int64_t size : last) shape.push_back(size);
    return Reshape(x, shape);
  };
  const auto normed = [&](const Tensor& all) {
    return norm.Forward(config_.joint_head_norms ? shaped(all, {heads * head_dim_})
                                                 : shaped(all, {heads, head_dim_}));
  };
  const Tensor own = shaped(x_BTF, {x_BTF.size(2) / width, width});
  if (SumsInTrees(build())) {
    const Tensor all = normed(GatherFromGroup(own, 2, units, group));
    return shaped(ScatterToGroup(shaped(all, {units, width}), 2, group), {x_BTF.size(2)});
  }
  const Share share = EvenShare(units, RanksOf(group), RankOf(group));
  return Slice(normed(AllGatherToGroup(own, 2, units, group)), 2, share.begin * width,
               share.count * width);
}

SelfAttention::Heads SelfAttention::Project(const Tensor& h_BTC,
                                            const ForwardContext& context) const {
  std::vector<Tensor> q_k_v = Features(h_BTC, context);
  const Group& group = build().tensor_parallel;
  // Norms of heads whose gradients come out whole have all heads to work on.
  const bool whole_norms = config_.joint_head_norms || (SumsInTrees(build()) && RanksOf(group) > 1);
  const bool normed = whole_norms && q_norm_ != nullptr;
  if (normed) {
    q_k_v[0] = NormTogether(*q_norm_, q_k_v[0], config_.num_heads, QueryUnit(config_, group));
  }
  for (const size_t i : {1, 2}) {
    const Norm* const norm = i == 1 ? k_norm_.get() : nullptr;
    Tensor& x = q_k_v[i];
    if (gathers_key_values_) {
      x = ForQueries(AllKeyValues(x, KeyValueHeads(config_) * head_dim_, normed ? norm : nullptr));
    } else if (normed && norm != nullptr) {
      x = NormTogether(*norm, x, KeyValueHeads(config_), 1);
    }
    if (!gathers_key_values_ && RepeatsInTree()) {
      x = ForQueries(!normed && norm != nullptr ? norm->Forward(ByHead(x)) : x);
    }
  }
  const bool done = normed || (!gathers_key_values_ && RepeatsInTree());
  return {.q = SplitHeads(q_k_v[0], normed ? nullptr : q_norm_.get()),
          .k = SplitHeads(q_k_v[1], done ? nullptr : k_norm_.get()),
          .v = SplitHeads(q_k_v[2], nullptr)};
}

bool SelfAttention::RepeatsInTree() const { return query_tree_ != nullptr && GradEnabled(); }

Tensor SelfAttention::ForQueries(const Tensor& x) const {
  if (!RepeatsInTree()) return Needed(x);
  const int64_t begin = gathers_key_values_ ? heads_.begin : 0;
  return RepeatInTree(ByHead(x), HeadsPerGroup(config_), 2, begin, query_tree_);
}

Tensor SelfAttention::ByHead(const Tensor& x) const {
  return x.ndim() == 4 ? x : Reshape(x, {x.size(0), x.size(1), x.size(2) / head_dim_, head_dim_});
}

Tensor SelfAttention::AllKeyValues(const Tensor& own_BTF, int64_t features,
                                   const Norm* norm) const {
  const Group& group = build().tensor_parallel;
  const auto normed = [&](const Tensor& all) {
    if (norm == nullptr) return all;
    if (config_.joint_head_norms) return norm->Forward(all);
    const Tensor heads = Reshape(all, {all.size(0), all.size(1), features / head_dim_, head_dim_});
    return Reshape(norm->Forward(heads), all.shape());
  };
  if (!SumsInTrees(build())) return normed(AllGatherToGroup(own_BTF, 2, features, group));
  return normed(GatherFromGroup(own_BTF, 2, features, group));
}

void SelfAttention::Rotate(const AttentionMasks& masks, const ForwardContext& context,
                           int64_t before, const KeyValueCache* cache, Heads* heads) const {
  TESSERA_CHECK(masks.rotary_positions.defined(), "self_attention",
                "the heads are rotated, but the masks have no rotary_positions");
  const int64_t row = context.cut_length > 0 ? context.cut_length : heads->q.size(2);
  const int64_t length = cache == nullptr ? before + row : cache->LongestAfterStep();
  const RotaryScaling& scaling = config_.rotary->scaling;
  const bool by_length =
      scaling.kind == RotaryScaling::kDynamic || scaling.kind == RotaryScaling::kLongRope;
  TESSERA_CHECK(!masks.document.defined() || !by_length || length <= scaling.original_positions,
                "self_attention", path(),
                " scales rotary frequencies by the sequence's length, which is not that of "
                "documents packed into rows of ",
                length);
  Tensor positions = masks.rotary_positions;
  const int64_t coordinates = positions.ndim() == 3 ? positions.size(1) : 1;
  TESSERA_CHECK(coordinates > 0, "self_attention", path(), ": positions ", positions,
                " without a coordinate");
  const bool shifts = before > 0 && prefix(context.adapter)->takes_positions();
  if (shifts) positions = Add(positions, static_cast<double>(before));
  const RotaryOptions options = RotaryFor(*config_.rotary, head_dim_ / coordinates, length);
  heads->q = Rotary(heads->q, positions, options);
  heads->k = Rotary(heads->k, positions, options);
}

// ---- A prefix -----------------------------------------------------------------------------------

PrefixHeads SelfAttention::prefix_heads() const {
  const int64_t per_group = HeadsPerGroup(config_);
  const bool split = !gathers_key_values_ && RanksOf(build().tensor_parallel) > 1;
  return {.count = KeyValueHeads(config_),
          .head_dim = head_dim_,
          .share = {heads_.begin / per_group, heads_.count / per_group},
          .split = split};
}

void SelfAttention::SetPrefix(int adapter, std::shared_ptr<KeyValuePrefix> made) {
  TESSERA_CHECK(adapter >= 0 && prefix(adapter) == nullptr, "self_attention", path(),
                " has a prefix of adapter ", adapter, " already");
  if (prefixes_.size() <= static_cast<size_t>(adapter)) {
    prefixes_.resize(static_cast<size_t>(adapter) + 1);
  }
  prefixes_[static_cast<size_t>(adapter)] = std::move(made);
}

KeyValuePrefix* SelfAttention::prefix(int adapter) const {
  const bool known = adapter >= 0 && static_cast<size_t>(adapter) < prefixes_.size();
  return known ? prefixes_[static_cast<size_t>(adapter)].get() : nullptr;
}

void SelfAttention::PutBehindPrefix(const KeyValuePrefix& prefix, const KeyValueCache* cache,
                                    Heads* heads, AttentionOptions* options) const {
  const int64_t n = prefix.tokens();
  const int64_t rows = heads->q.size(0);
  const Device device = heads->q.device();
  // A window is of places in a row, and tells how far documents behind others are from the prefix
  // only where it passes nothing.
  TESSERA_CHECK(!options->key_document.defined() || options->window == 0 ||
                    n + heads->q.size(2) <= options->window,
                "self_attention", path(), ": documents packed into rows of ", heads->q.size(2),
                " tokens behind a prefix of ", n, " do not fit the window of ", options->window);
  const bool begins =
      cache == nullptr || std::count(cache->StepBegins().begin(), cache->StepBegins().end(), 0) > 0;
  if (begins) {
    KeyValuePrefix::KeysAndValues numbers = prefix.Forward();
    if (gathers_key_values_ || RepeatsInTree()) {
      numbers = {ForQueries(numbers.k), ForQueries(numbers.v)};
    }
    heads->k = BehindPrefix(SplitHeads(numbers.k, nullptr), heads->k, cache);
    heads->v = BehindPrefix(SplitHeads(numbers.v, nullptr), heads->v, cache);
  }
  if (cache == nullptr) {
    options->query_offset = n;
  } else if (begins) {
    const std::vector<int64_t> places = QueryBegins(*cache, n);
    options->query_offsets = CopyTo(
        Tensor::FromVector(std::vector<int32_t>(places.begin(), places.end()), {rows}), device);
  }
  const auto before = [&](Tensor* mask, double value) {
    if (mask->defined()) *mask = Cat({Full({rows, n}, value, mask->dtype(), device), *mask}, 1);
  };
  before(&options->key_padding, 1);
  before(&options->key_document, kEveryDocument);
  if (options->prefix_length.defined()) {
    const Tensor seen = CastCopy(options->prefix_length, DType::kInt64);
    options->prefix_length = CastCopy(Add(seen, static_cast<double>(n)), DType::kInt32);
  }
  const int64_t keys = cache == nullptr ? heads->k.size(2) : cache->LongestAfterStep();
  if (options->bias.defined() && options->bias.size(3) + n == keys) {
    options->bias = Pad(options->bias, 3, n, 0);
  }
}

// -------------------------------------------------------------------------------------------------

SequenceRing RingOf(const BuildContext& build, const ForwardContext& context, int64_t keys) {
  if (context.cut_length == 0) return {};
  return {build.context_parallel, context.cut_length, keys};
}

Tensor SelfAttention::Forward(const Tensor& h_BTC, const AttentionMasks& masks,
                              const ForwardContext& context, KeyValueCache* cache,
                              int layer) const {
  return Call(h_BTC, [&] {
    const KeyValuePrefix* const prefix = this->prefix(context.adapter);
    const int64_t before = prefix == nullptr ? 0 : prefix->tokens();
    TESSERA_CHECK(context.cut_length == 0 || (cache == nullptr && prefix == nullptr),
                  "self_attention", path(), ": a sequence that is cut over ranks has neither a ",
                  "cache nor a prefix");
    Heads heads = Project(h_BTC, context);
    if (config_.rotary) Rotate(masks, context, before, cache, &heads);

    AttentionOptions options;
    options.scale = config_.scale;
    options.softcap = config_.softcap;
    options.causal = config_.causal;
    options.window = config_.window;
    options.key_padding = masks.key_padding;
    options.query_document = masks.document;
    options.key_document = masks.document;
    options.prefix_length = masks.prefix_length;
    options.bias = masks.bias;
    if (prefix != nullptr) PutBehindPrefix(*prefix, cache, &heads, &options);
    if (cache != nullptr) {
      // A norm of heads gives float32 under autocast; attention works in v's dtype.
      heads.k = Cast(heads.k, heads.v.dtype());
      const CachedKeys keys = cache->Append(layer, heads.k, heads.v);
      heads.k = keys.k;
      heads.v = keys.v;
      options.pages = keys.table;
      options.paged_keys = keys.length;
      options.key_length = keys.lengths;
      if (!options.query_offsets.defined()) options.query_offsets = cache->QueryOffsets();
    }
    if (context.training && attn_dropout_.p() > 0) {
      options.dropout_p = attn_dropout_.p();
      options.dropout_key =
          NoiseKey(context.seed, attn_dropout_.path(), context.step, context.micro_batch);
      options.head_begin = heads_.begin;
      options.heads_total = config_.num_heads;
    }
    const Tensor o_BHTD = RingAttention(heads.q, heads.k, heads.v, options,
                                        RingOf(build(), context, context.cut_length))
                              .output;
    const Tensor merged = Reshape(Transpose(o_BHTD, 1, 2),
                                  {o_BHTD.size(0), o_BHTD.size(2), heads_.count * head_dim_});
    return resid_dropout_.Forward(output_.Forward(merged, context), context);
  });
}

}  // namespace tessera::nn
