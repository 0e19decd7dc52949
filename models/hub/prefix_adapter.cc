// SPDX-License-Identifier: Apache-2.0
#include "models/hub/prefix_adapter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "autograd/autograd.h"
#include "models/family.h"
#include "models/hub/match_entries.h"
#include "nn/attention.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr char kKey[] = "key";
constexpr char kValue[] = "value";

// The self-attention layers that take a prefix, by their paths, in order.
std::vector<std::pair<std::string, nn::SelfAttention*>> LayersOf(Model& model,
                                                                 const PrefixPlace& place) {
  std::vector<std::pair<std::string, nn::SelfAttention*>> layers;
  model.VisitModules([&](nn::Module& module) {
    nn::SelfAttention* const attention = module.self_attention();
    if (attention == nullptr || !module.path().starts_with(place.layers_under)) return;
    layers.emplace_back(module.path(), attention);
  });
  return layers;
}

const Family& FamilyOfModel(const Model& model) { return **FamilyOf(model.config()); }

// The slot of layer number `layer`'s keys.
int64_t SlotOf(int64_t layer, const PrefixTuningConfig& config) {
  return 2 * *config.num_transformer_submodules * layer % (2 * *config.num_layers);
}

// The layer's own; but its numbers may have come from files.
std::shared_ptr<const nn::BuildContext> BuildOf(const Model& model) {
  nn::BuildContext build = model.build();
  build.initialise = true;
  build.storage_of = nullptr;
  build.form_of = nullptr;
  return std::make_shared<const nn::BuildContext>(std::move(build));
}

Status Hold(const char* field, std::optional<int64_t>* said, int64_t known) {
  if (*said && **said != known) {
    return InvalidArgument("'", field, "' is ", **said, "; of this model it must be ", known);
  }
  *said = known;
  return OkStatus();
}

DType WideOf(const Tensor& t) {
  return t.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace

StatusOr<PrefixTuningConfig> PrefixConfigFor(Model& whole, const PrefixTuningConfig& config) {
  const Family& family = FamilyOfModel(whole);
  if (!family.prefix) {
    return InvalidArgument("prefix tuning is not for a '", family.model_type, "' model");
  }
  const auto layers = LayersOf(whole, *family.prefix);
  const bool both = whole.encoder_decoder() != nullptr;
  int64_t self_attentions = 0;
  whole.VisitModules(
      [&](nn::Module& module) { self_attentions += module.self_attention() != nullptr; });
  const int64_t depth = std::ssize(layers);
  if (both && self_attentions != 2 * depth) {
    return InvalidArgument("prefix tuning needs as many layers in the encoder as in the decoder, ",
                           "not ", self_attentions - depth, " and ", depth);
  }
  const nn::PrefixHeads heads = layers.at(0).second->prefix_heads();
  PrefixTuningConfig held = config;
  TESSERA_RETURN_IF_ERROR(Hold("num_layers", &held.num_layers, depth));
  TESSERA_RETURN_IF_ERROR(Hold("num_attention_heads", &held.num_attention_heads, heads.count));
  TESSERA_RETURN_IF_ERROR(Hold("token_dim", &held.token_dim, heads.count * heads.head_dim));
  TESSERA_RETURN_IF_ERROR(
      Hold("num_transformer_submodules", &held.num_transformer_submodules, both ? 2 : 1));
  const int64_t positions = whole.max_positions();
  if (positions > 0 && family.prefix->takes_positions && held.num_virtual_tokens >= positions) {
    return InvalidArgument("'num_virtual_tokens' is ", held.num_virtual_tokens,
                           ", which leaves none of the model's ", positions, " positions");
  }
  if (held.encoder_hidden_size == 0) held.encoder_hidden_size = *held.token_dim;
  return held;
}

AttachedPrefix AttachPrefix(Model& model, Model& whole, const PrefixTuningConfig& config,
                            int adapter) {
  const PrefixPlace& place = *FamilyOfModel(whole).prefix;
  const std::string suffix = adapter == 0 ? "" : Concat(".", adapter);
  const auto build = BuildOf(model);
  AttachedPrefix attached;
  const auto keep = [&](const nn::Module& module) {
    for (const auto& p : module.own_parameters()) attached.parameters.push_back(p.get());
  };
  const int64_t positions = place.takes_positions ? config.num_virtual_tokens : 0;
  model.set_prefix(adapter, {config.num_virtual_tokens, positions});

  const auto mine = LayersOf(model, place);
  nn::PrefixConfig layer_config = {.tokens = config.num_virtual_tokens,
                                   .takes_positions = place.takes_positions};
  if (config.prefix_projection && !mine.empty()) {
    attached.encoder = "prefix_encoder" + suffix;
    layer_config.encoder = std::make_shared<nn::PrefixEncoder>(
        config.num_virtual_tokens, *config.token_dim, config.encoder_hidden_size,
        nn::Scope{attached.encoder, &model, build});
    keep(*layer_config.encoder);
  }
  std::map<int64_t, std::shared_ptr<nn::KeyValuePrefix>> of_slot;
  std::map<int64_t, std::string> first_of_slot;
  const auto all = LayersOf(whole, place);
  for (int64_t layer = 0; layer < std::ssize(all); ++layer) {
    const std::string& path = all[static_cast<size_t>(layer)].first;
    const int64_t slot = SlotOf(layer, config);
    const std::string& first = first_of_slot.try_emplace(slot, path).first->second;
    const auto found = std::find_if(mine.begin(), mine.end(),
                                    [&](const auto& entry) { return entry.first == path; });
    if (found == mine.end()) continue;
    nn::SelfAttention& attention = *found->second;
    layer_config.heads = attention.prefix_heads();
    layer_config.first_layer = slot == 0;
    std::shared_ptr<nn::KeyValuePrefix>& source = of_slot[slot];
    if (source == nullptr) {
      // That of the slot's first layer; where another stage has the layer, a replica of it.
      nn::Module* const parent = first == path ? static_cast<nn::Module*>(&attention) : &model;
      source = std::make_shared<nn::KeyValuePrefix>(
          layer_config, nn::Scope{first + ".prefix" + suffix, parent, build});
      keep(*source);
      attached.layers.push_back({source.get(), slot});
    }
    std::shared_ptr<nn::KeyValuePrefix> prefix = source;
    if (first != path) {
      prefix = std::make_shared<nn::KeyValuePrefix>(
          source, nn::Scope{path + ".prefix" + suffix, &attention, build});
      keep(*prefix);
    }
    attention.SetPrefix(adapter, std::move(prefix));
  }
  return attached;
}

StatusOr<Tensor> ReadPrefix(const WeightFile& file, const PrefixTuningConfig& config) {
  const WeightEntry* const entry = file.Find(kPrefixEntry);
  if (entry == nullptr) return InvalidArgument(file.path(), ": missing is '", kPrefixEntry, "'");
  if (file.entries().size() > 1) {
    std::vector<std::string> others;
    for (const WeightEntry& e : file.entries()) {
      if (e.name != kPrefixEntry) others.push_back(e.name);
    }
    return InvalidArgument(file.path(), ": this model has no place for ", QuotedNames(others),
                           "; the adapter is for another one");
  }
  TESSERA_RETURN_IF_ERROR(file.CheckShape(
      kPrefixEntry, {config.num_virtual_tokens, 2 * *config.num_layers * *config.token_dim}));
  return file.Read(kPrefixEntry);
}

void SpreadPrefix(const Tensor& embeddings, const AttachedPrefix& prefix,
                  const std::function<void(nn::Parameter*, const Tensor&)>& write) {
  for (const AttachedPrefix::Layer& layer : prefix.layers) {
    for (const auto& p : layer.prefix->own_parameters()) {
      const int64_t features = p->placement.global_shape()[1];
      const int64_t slot = layer.slot + (p->name.ends_with(kValue) ? 1 : 0);
      write(p.get(), Slice(embeddings, 1, slot * features, features).ContiguousCopy());
    }
  }
}

Tensor CollectPrefix(const AttachedPrefix& prefix, const PrefixTuningConfig& config,
                     const std::map<std::string, Tensor>& values) {
  const NoGrad no_grad;
  const int64_t features = *config.token_dim;
  const DType dtype = values.begin()->second.dtype();
  const auto wide = [&](const std::string& name) {
    const Tensor& t = values.at(name);
    return Cast(t, WideOf(t));
  };
  Tensor encoded;
  if (!prefix.encoder.empty()) {
    encoded = nn::EncodedPrefix(wide(prefix.encoder + ".embedding.weight"),
                                wide(prefix.encoder + ".transform.0.weight"),
                                wide(prefix.encoder + ".transform.0.bias"));
  }
  const Tensor all = Zeros({config.num_virtual_tokens, 2 * *config.num_layers * features}, dtype,
                           values.begin()->second.device());
  for (const AttachedPrefix::Layer& layer : prefix.layers) {
    int64_t slot = layer.slot;
    for (const char* half : {kKey, kValue}) {
      const std::string name = layer.prefix->path() + "." + half;
      const Tensor numbers = encoded.defined() ? Linear(encoded, wide(name + ".weight"),
                                                        wide(name + ".bias"), LinearLayout::kOutIn)
                                               : values.at(name);
      CopyInto(Slice(all, 1, slot++ * features, features), Cast(numbers, dtype));
    }
  }
  return all;
}

}  // namespace tessera::models
