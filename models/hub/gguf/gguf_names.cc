// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "models/gpt/config.h"
#include "models/hub/gguf/gguf_experts.h"
#include "models/llama/config.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// "a.12.b" becomes "a.#.b", and its number is "12".
std::string WithoutNumbers(const std::string& name, std::vector<std::string>* numbers) {
  std::string without;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      numbers->push_back(std::exchange(part, "#"));
    }
    without += (begin == 0 ? "" : ".") + part;
    begin = end + 1;
  }
  return without;
}

Status CheckBiases(const LlamaConfig& c, const GgufArchitecture& architecture) {
  const GgufBiases known = architecture.biases;
  const bool others = c.output_bias || c.mlp_bias;
  if ((!c.qkv_bias || known != GgufBiases::kNone) && (!others || known == GgufBiases::kAll)) {
    return OkStatus();
  }
  if (architecture.model_type == "chatglm") return UnsayableInGguf("add_bias_linear", "true");
  return UnsayableInGguf(c.qkv_bias ? "attention_bias" : "mlp_bias", "true");
}

Status CheckHead(const LlamaConfig& c, const GgufArchitecture& architecture) {
  if (architecture.needs_head && c.tie_word_embeddings) {
    return UnsayableInGguf("tie_word_embeddings", "true");
  }
  if (architecture.needs_tie && !c.tie_word_embeddings) {
    return UnsayableInGguf("tie_word_embeddings", "false");
  }
  return OkStatus();
}

// Every fourth layer of SmolLM3 leaves positions out there.
Status CheckRotatingLayers(const LlamaConfig& c) {
  for (size_t i = 0; i < c.rotates.size(); ++i) {
    if (c.rotates[i] == ((i + 1) % 4 != 0)) continue;
    return UnsayableInGguf("no_rope_layers", "another list than every fourth layer");
  }
  return OkStatus();
}

}  // namespace

double GemmaScalar(const GgufArchitecture& architecture, int64_t layers, int64_t width,
                   int64_t heads, int64_t head_dim) {
  return static_cast<double>(layers == architecture.layers_of_27b && heads > 0 ? width / heads
                                                                               : head_dim);
}

void GgufNames::Add(std::string_view key, GgufValue value) {
  metadata_.emplace_back(Concat(architecture_->name, ".", key), std::move(value));
}

Status GgufNames::TakeGpt(const json& json) {
  TESSERA_ASSIGN_OR_RETURN(const GptConfig c, GptConfig::FromJson(json));
  const std::string& activation = c.activation_function;
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    return UnsayableInGguf("activation_function", activation);
  }
  if (!c.scale_attn_weights) return UnsayableInGguf("scale_attn_weights", "false");
  if (c.scale_attn_by_inverse_layer_idx) {
    return UnsayableInGguf("scale_attn_by_inverse_layer_idx", "true");
  }
  Add("vocab_size", GgufCount(c.vocab_size));
  Add("context_length", GgufCount(c.n_positions));
  Add("embedding_length", GgufCount(c.n_embd));
  Add("block_count", GgufCount(c.n_layer));
  Add("feed_forward_length", GgufCount(c.inner_size()));
  Add("attention.head_count", GgufCount(c.n_head));
  Add("attention.layer_norm_epsilon", static_cast<float>(c.layer_norm_epsilon));
  return OkStatus();
}

Status GgufNames::TakeLlama(const json& json) {
  TESSERA_ASSIGN_OR_RETURN(const LlamaConfig c, LlamaConfig::FromJson(json));
  const int64_t window = c.windows.empty() ? 0 : c.windows[0];
  const bool one_window =
      std::all_of(c.windows.begin(), c.windows.end(), [window](int64_t w) { return w == window; });
  const bool gemma = architecture_->window_period > 0;
  const bool fills = c.head_dim * c.num_attention_heads == c.hidden_size;
  if (!gemma && c.hidden_act != "silu") return UnsayableInGguf("hidden_act", c.hidden_act);
  TESSERA_RETURN_IF_ERROR(CheckBiases(c, *architecture_));
  TESSERA_RETURN_IF_ERROR(CheckHead(c, *architecture_));
  TESSERA_RETURN_IF_ERROR(CheckRotatingLayers(c));
  if (architecture_->heads_fill_width && !fills) {
    return UnsayableInGguf(
        "head_dim", Concat("another size than ", c.hidden_size, " / ", c.num_attention_heads));
  }
  if (!gemma && (!one_window || (window > 0 && !architecture_->has_window))) {
    return UnsayableInGguf("sliding_window", "a window of some layers");
  }
  if (gemma) TESSERA_RETURN_IF_ERROR(TakeGemma(c));
  TESSERA_ASSIGN_OR_RETURN(GgufMetadata experts, GgufExpertKeys(json, c, architecture_->experts));
  for (auto& [key, value] : experts) Add(key, std::move(value));
  heads_ = c.num_attention_heads;
  key_value_heads_ = c.num_key_value_heads;
  experts_ = c.experts.num_experts;
  Add("vocab_size", GgufCount(c.vocab_size));
  Add("context_length", GgufCount(c.max_position_embeddings));
  Add("embedding_length", GgufCount(c.hidden_size));
  Add("block_count", GgufCount(c.num_hidden_layers));
  Add("feed_forward_length", GgufCount(c.intermediate_size));
  Add("attention.head_count", GgufCount(heads_));
  Add("attention.head_count_kv", GgufCount(key_value_heads_));
  Add("attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  if (!fills || gemma) {
    Add("attention.key_length", GgufCount(c.head_dim));
    Add("attention.value_length", GgufCount(c.head_dim));
  }
  // llama.cpp tells Phi-4 by a window of 0.
  if (!gemma && (window > 0 || architecture_->model_type == "phi3")) {
    Add("attention.sliding_window", GgufCount(window));
  }
  TESSERA_ASSIGN_OR_RETURN(GgufRotary rotary, GgufRotaryOf(c, *architecture_));
  for (auto& [key, value] : rotary.keys) Add(key, std::move(value));
  metadata_.insert(metadata_.end(), rotary.keys_of_ours.begin(), rotary.keys_of_ours.end());
  factors_ = std::move(rotary.factors);
  return OkStatus();
}

Status GgufNames::TakeGemma(const LlamaConfig& c) {
  const bool capped = architecture_->name == "gemma2";
  if (c.hidden_act != "gelu_pytorch_tanh") {
    return UnsayableInGguf("hidden_activation", c.hidden_act);
  }
  for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", c.attn_logit_softcapping),
                                 {"final_logit_softcapping", c.final_logit_softcapping}}) {
    if (capped != (cap != 0)) return UnsayableInGguf(key, capped ? "no cap" : "a cap");
    if (capped) Add(key, static_cast<float>(cap));
  }
  const double scalar = GemmaScalar(*architecture_, c.num_hidden_layers, c.hidden_size,
                                    c.num_attention_heads, c.head_dim);
  if (c.query_pre_attn_scalar != scalar) {
    return UnsayableInGguf("query_pre_attn_scalar", Concat("another size than ", scalar));
  }
  // The first layer that sees everything ends the first period.
  const auto first = std::find(c.windows.begin(), c.windows.end(), 0);
  const auto period = first - c.windows.begin() + 1;
  int64_t window = 0;
  for (size_t i = 0; i < c.windows.size(); ++i) {
    const bool slides = (static_cast<int64_t>(i) + 1) % period != 0;
    if (slides != (c.windows[i] > 0)) {
      return UnsayableInGguf("layer_types", "layers without a period");
    }
    if (slides) window = c.windows[i];
  }
  if (window == 0) return UnsayableInGguf("sliding_window", "a model without windows");
  Add("attention.sliding_window", GgufCount(window));
  const int64_t usual = std::min(architecture_->window_period, std::ssize(c.windows) + 1);
  if (period != usual) Add("attention.sliding_window_pattern", GgufCount(period));
  if (c.local_rotary && c.local_rotary->base != kGgufGemmaLocalBase) {
    Add("rope.freq_base_swa", static_cast<float>(c.local_rotary->base));
  }
  return OkStatus();
}

StatusOr<GgufNames> GgufNames::Of(const json& config) {
  GgufNames names;
  const std::string type = config.value("model_type", "");
  names.architecture_ = FindGgufArchitecture(type);
  if (names.architecture_ == nullptr) return UnsayableInGguf("model_type", type);
  TESSERA_RETURN_IF_ERROR(type == "gpt2" ? names.TakeGpt(config) : names.TakeLlama(config));
  return names;
}

std::optional<GgufPlace> GgufNames::PlaceOf(const std::string& parameter) const {
  std::vector<std::string> numbers;
  const std::string whole = WithoutNumbers(parameter, &numbers);
  const size_t dot = whole.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  std::string end;
  const GgufName* name = FindGgufName(*architecture_, whole);
  if (name == nullptr) {
    end = whole.substr(dot);
    name = FindGgufName(*architecture_, whole.substr(0, dot));
    if (name == nullptr || (end != ".weight" && end != ".bias")) return std::nullopt;
  }
  std::string theirs(name->theirs);
  if (!numbers.empty()) theirs.replace(theirs.find('#'), 1, numbers[0]);
  GgufPlace place = {.name = theirs + end, .transposed = name->transposed && end == ".weight"};
  place.wide = theirs == "position_embd" || theirs.find("ffn_gate_inp") != std::string::npos;
  if (theirs.ends_with("norm")) place.added = architecture_->added_to_norms;
  if (architecture_->interleaves_heads) {
    if (theirs.ends_with("attn_q")) place.interleaved_heads = heads_;
    if (theirs.ends_with("attn_k")) place.interleaved_heads = key_value_heads_;
  }
  if (numbers.size() > 1) {
    place.slices = experts_;
    place.slice = std::stoll(numbers[1]);
    place.own_name = theirs.substr(0, theirs.rfind("_exps")) + "." + numbers[1] + end;
  }
  return place;
}

}  // namespace tessera::models
