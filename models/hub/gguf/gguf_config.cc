// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_config.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "models/hub/gguf/gguf_architectures.h"
#include "models/hub/gguf/gguf_experts.h"
#include "models/hub/gguf/gguf_key_reader.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/hub/gguf/gguf_rotary.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

StatusOr<json> GptConfigOf(const GgufFile& file) {
  GgufKeyReader reader(file, "gpt2");
  const int64_t positions = reader.Needed("context_length");
  const int64_t width = reader.Needed("embedding_length");
  double epsilon = 1e-5;
  reader.MayRead("attention.layer_norm_epsilon", &epsilon);
  const json config = {{"model_type", "gpt2"},
                       {"architectures", json::array({"GPT2LMHeadModel"})},
                       {"n_positions", positions},
                       {"n_embd", width},
                       {"n_layer", reader.Needed("block_count")},
                       {"n_head", reader.Needed("attention.head_count")},
                       {"n_inner", reader.Needed("feed_forward_length")},
                       {"activation_function", "gelu_new"},
                       {"layer_norm_epsilon", GgufDecimal(epsilon)}};
  TESSERA_RETURN_IF_ERROR(reader.status());
  return config;
}

// The last layer of each period sees everything.
json LayerTypes(int64_t layers, int64_t period) {
  json types = json::array();
  for (int64_t i = 1; i <= layers; ++i) {
    types.push_back(i % period == 0 ? "full_attention" : "sliding_attention");
  }
  return types;
}

Status AddGemmaKeys(const GgufArchitecture& architecture, int64_t window, GgufKeyReader* reader,
                    json* config) {
  const bool capped = architecture.name == "gemma2";
  int64_t pattern = architecture.window_period;
  double local_base = kGgufGemmaLocalBase;
  // Absent, those of Gemma 2 are in force.
  double attention_cap = capped ? 50 : 0;
  double final_cap = capped ? 30 : 0;
  reader->MayRead("attention.sliding_window_pattern", &pattern);
  reader->MayRead("rope.freq_base_swa", &local_base);
  reader->MayRead("attn_logit_softcapping", &attention_cap);
  reader->MayRead("final_logit_softcapping", &final_cap);
  reader->Require("attn_logit_softcapping", capped == (attention_cap > 0), "is not supported");
  reader->Require("final_logit_softcapping", capped == (final_cap > 0), "is not supported");
  reader->Require("attention.sliding_window_pattern", pattern > 0, "is out of range");
  if (capped && window == 0) window = 4096;
  reader->Require("attention.sliding_window", window > 0, "is missing");
  TESSERA_RETURN_IF_ERROR(reader->status());
  config->erase("hidden_act");
  const auto number = [config](const char* key) { return (*config)[key].get<int64_t>(); };
  const int64_t layers = number("num_hidden_layers");
  config->update(
      {{"hidden_activation", "gelu_pytorch_tanh"},
       {"sliding_window", window},
       {"query_pre_attn_scalar", GemmaScalar(architecture, layers, number("hidden_size"),
                                             number("num_attention_heads"), number("head_dim"))},
       {"attention_bias", false}});
  if (capped) {
    config->update({{"attn_logit_softcapping", GgufDecimal(attention_cap)},
                    {"final_logit_softcapping", GgufDecimal(final_cap)}});
    if (pattern != architecture.window_period) {
      (*config)["layer_types"] = LayerTypes(layers, pattern);
    }
  } else {
    config->update(
        {{"sliding_window_pattern", pattern}, {"rope_local_base_freq", GgufDecimal(local_base)}});
  }
  return OkStatus();
}

// ChatGLM2's names of the same things.
json ChatGlmKeys(const GgufFile& file, const json& config) {
  json renamed = {{"model_type", "chatglm"},
                  {"multi_query_attention", true},
                  {"add_bias_linear", false},
                  {"add_qkv_bias", file.Find("blk.0.attn_qkv.bias") != nullptr},
                  {"rmsnorm", true},
                  {"post_layer_norm", true},
                  {"original_rope", true},
                  {"apply_residual_connection_post_layernorm", false},
                  {"rope_ratio", config["rope_theta"].get<double>() / 10000}};
  for (const auto& [ours, theirs] : {std::pair("architectures", "architectures"),
                                     {"hidden_size", "hidden_size"},
                                     {"intermediate_size", "ffn_hidden_size"},
                                     {"num_hidden_layers", "num_layers"},
                                     {"num_attention_heads", "num_attention_heads"},
                                     {"num_key_value_heads", "multi_query_group_num"},
                                     {"head_dim", "kv_channels"},
                                     {"max_position_embeddings", "seq_length"},
                                     {"rms_norm_eps", "layernorm_epsilon"}}) {
    renamed[theirs] = config[ours];
  }
  return renamed;
}

// Of those that share general.architecture: by what the file has.
const GgufArchitecture& TypeOf(const GgufFile& file, std::string_view name, int64_t window,
                               int64_t experts) {
  const bool fused = file.Find("blk.0.attn_qkv.weight") != nullptr;
  if (name == "llama" && experts > 0) return *FindGgufArchitecture("mixtral");
  if (name == "llama") return *FindGgufArchitecture(window > 0 ? "mistral" : "llama");
  if (name == "chatglm") return *FindGgufArchitecture(fused ? "chatglm" : "glm");
  return *ModelTypesOfGguf(name)[0];
}

// block_count counts layers that predict further tokens, too.
int64_t LayersOf(GgufKeyReader* reader) {
  const int64_t blocks = reader->Needed("block_count");
  int64_t predicting = 0;
  reader->MayRead("nextn_predict_layers", &predicting);
  reader->Require("nextn_predict_layers", predicting >= 0 && predicting <= blocks,
                  "is out of range");
  return blocks - predicting;
}

StatusOr<json> LlamaConfigOf(const GgufFile& file, const std::string& name) {
  constexpr int64_t kMost = 1 << 20;  // products stay within 64 bits
  GgufKeyReader reader(file, name);
  const int64_t width = reader.Needed("embedding_length");
  const int64_t heads = reader.Needed("attention.head_count");
  int64_t key_value_heads = heads;
  reader.MayRead("attention.head_count_kv", &key_value_heads);
  reader.Require("attention.head_count", heads > 0 && heads < kMost, "is out of range");
  int64_t window = 0;
  int64_t experts = 0;
  reader.MayRead("attention.sliding_window", &window);
  reader.MayRead("expert_count", &experts);
  TESSERA_RETURN_IF_ERROR(reader.status());
  const GgufArchitecture& architecture = TypeOf(file, name, window, experts);
  const bool mixed = !architecture.experts.count_key.empty();
  reader.Require("expert_count", mixed || experts == 0, "says that this is a mixture of experts");
  int64_t head_dim = width / heads;
  reader.MayRead("attention.key_length", &head_dim);
  reader.Require("attention.key_length", head_dim > 0 && head_dim < kMost, "is out of range");
  int64_t same = head_dim;
  reader.MayRead("attention.value_length", &same);
  reader.Require("attention.value_length", same == head_dim, "differs from the length of keys");
  GgufPairs pairs = {.dims = head_dim};
  reader.MayRead("rope.dimension_count", &pairs.dims);
  reader.Require("rope.dimension_count",
                 architecture.rotates_a_share
                     ? pairs.dims > 0 && pairs.dims <= head_dim && pairs.dims % 2 == 0
                     : pairs.dims == head_dim,
                 "is not the length of keys");
  reader.MayRead("rope.freq_base", &pairs.base);
  reader.Require("rope.freq_base", pairs.base >= 1, "must be 1 or more");
  double epsilon = 1e-6;
  reader.MayRead("attention.layer_norm_rms_epsilon", &epsilon);
  const bool gemma = architecture.window_period > 0;
  reader.Require("attention.sliding_window", window == 0 || gemma || architecture.has_window,
                 "is not supported");
  json config = {{"hidden_size", width},
                 {"intermediate_size", reader.Needed("feed_forward_length")},
                 {"num_hidden_layers", LayersOf(&reader)},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", key_value_heads},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", reader.Needed("context_length")},
                 {"rms_norm_eps", GgufDecimal(epsilon)},
                 {"rope_theta", GgufDecimal(pairs.base)}};
  TESSERA_RETURN_IF_ERROR(reader.status());
  // Where it is not what follows from the others, and where the family does not ask those.
  if (head_dim * heads != width || name == "qwen3" || gemma || name == "chatglm" ||
      name == "glm4") {
    config["head_dim"] = head_dim;
  }
  config["model_type"] = architecture.model_type;
  config["architectures"] = json::array({architecture.class_name});
  TESSERA_RETURN_IF_ERROR(ReadGgufRotary(file, &reader, pairs, &config));
  if (gemma) TESSERA_RETURN_IF_ERROR(AddGemmaKeys(architecture, window, &reader, &config));
  if (mixed) {
    TESSERA_RETURN_IF_ERROR(ReadGgufExperts(file, architecture.experts, &reader, &config));
  }
  if (architecture.model_type == "chatglm") return ChatGlmKeys(file, config);
  if (architecture.rotates_a_share) {
    config["partial_rotary_factor"] =
        static_cast<double>(pairs.dims) / static_cast<double>(head_dim);
  }
  if (architecture.has_window && window > 0) config["sliding_window"] = window;
  if (architecture.model_type == "llama" || name == "glm4" || name == "chatglm" ||
      name == "glm4moe") {
    config["attention_bias"] = file.Find("blk.0.attn_q.bias") != nullptr;
  }
  if (name == "qwen2moe") config["qkv_bias"] = file.Find("blk.0.attn_q.bias") != nullptr;
  if (name == "glm4moe") {
    config["use_qk_norm"] = file.Find("blk.0.attn_q_norm.weight") != nullptr;
  }
  if (architecture.model_type == "llama") {
    config["mlp_bias"] = file.Find("blk.0.ffn_up.bias") != nullptr;
  }
  return config;
}

}  // namespace

bool IsOfPredictingLayer(const GgufFile& file, const std::string& architecture,
                         const std::string& tensor) {
  GgufKeyReader reader(file, architecture);
  const int64_t layers = LayersOf(&reader);
  const int64_t blocks = reader.Needed("block_count");
  if (!reader.status().ok() || !tensor.starts_with("blk.")) return false;
  const int64_t number = std::atoll(tensor.c_str() + 4);
  return number >= layers && number < blocks;
}

StatusOr<json> ConfigOfGguf(const GgufFile& file) {
  std::string name;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &name));
  int64_t parts = 1;
  TESSERA_RETURN_IF_ERROR(file.Read("split.count", &parts));
  if (parts > std::ssize(file.parts())) {
    return InvalidArgument(file.path(), ": is one of ", parts,
                           " parts; open it by its path, with the others beside it");
  }
  std::string type;
  TESSERA_RETURN_IF_ERROR(file.Read("general.type", &type));
  if (type == "adapter") return InvalidArgument(file.path(), ": is an adapter, and no model");
  if (ModelTypesOfGguf(name).empty()) {
    return InvalidArgument(file.path(), ": architecture '", name, "' is not supported; ",
                           GgufArchitectureNames(), " are");
  }
  GgufKeyReader reader(file, name);
  bool causal = true;
  reader.MayRead("attention.causal", &causal);
  reader.Require("attention.causal", causal, "must be true, not false");
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_ASSIGN_OR_RETURN(json config,
                           name == "gpt2" ? GptConfigOf(file) : LlamaConfigOf(file, name));
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.Get("token_embd.weight"));
  config[config.contains("seq_length") ? "padded_vocab_size" : "vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = file.Find("output.weight") == nullptr;
  std::string title;
  TESSERA_RETURN_IF_ERROR(file.Read("general.name", &title));
  if (!title.empty()) config["_name_or_path"] = title;
  return config;
}

}  // namespace tessera::models
