// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_names.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>
#include <span>
#include <utility>

#include "models/gpt/config.h"
#include "models/llama/config.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using nn::RotaryScaling;

struct Name {
  std::string_view ours;  // '#' is a layer's number
  std::string_view theirs;
  bool transposed = false;
};
constexpr Name kGptNames[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.h.#.ln_1", "blk.#.attn_norm"},
    {"transformer.h.#.attn.c_attn", "blk.#.attn_qkv", true},
    {"transformer.h.#.attn.c_proj", "blk.#.attn_output", true},
    {"transformer.h.#.ln_2", "blk.#.ffn_norm"},
    {"transformer.h.#.mlp.c_fc", "blk.#.ffn_up", true},
    {"transformer.h.#.mlp.c_proj", "blk.#.ffn_down", true},
    {"transformer.ln_f", "output_norm"},
    {"lm_head", "output"},
};
constexpr Name kLlamaNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"model.layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"model.layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

constexpr Name kGemmaNames[] = {
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};  // and kLlamaNames

// What Gemma 3 files leave unsaid: of how many layers the last one sees everything, and the base of
// the others' rotations.
constexpr int64_t kGemmaPattern = 6;
constexpr double kGemmaLocalBase = 10000;
// llama.cpp knows the one Gemma 3 whose scores are scaled by another size than a head's by it.
constexpr int64_t kLayersOfGemma27b = 62;

// Where Llama 3's scaling begins and ends cannot be told from its factors; llama.cpp passes over
// these. Llama 3.1 to 3.3 have the values that count where the keys are absent.
constexpr std::string_view kLowFactorKey = "tessera.rope.low_freq_factor";
constexpr std::string_view kHighFactorKey = "tessera.rope.high_freq_factor";
constexpr std::string_view kOriginalKey = "tessera.rope.original_context_length";
RotaryScaling Llama3Scaling() {
  return {.kind = RotaryScaling::kLlama3,
          .original_positions = 8192,
          .low_frequency_factor = 1,
          .high_frequency_factor = 4};
}

// Architectures, and what config.json calls them.
struct Architecture {
  std::string_view theirs;
  std::string_view model_type;
};
constexpr Architecture kArchitectures[] = {{"gpt2", "gpt2"},     {"llama", "llama"},
                                           {"llama", "mistral"}, {"qwen2", "qwen2"},
                                           {"qwen3", "qwen3"},   {"gemma3", "gemma3_text"}};

bool IsArchitecture(std::string_view name) {
  return std::any_of(std::begin(kArchitectures), std::end(kArchitectures),
                     [&](const Architecture& a) { return a.theirs == name; });
}

double GemmaScalar(int64_t layers, int64_t width, int64_t heads, int64_t head_dim) {
  return static_cast<double>(layers == kLayersOfGemma27b && heads > 0 ? width / heads : head_dim);
}

uint32_t Count(int64_t value) { return static_cast<uint32_t>(value); }

// The shortest decimal that is this float: 1e-05, where its value is 9.99999974e-06. (std::to_chars
// finds it too, but its tables would add 100 kB to the C library.)
double Decimal(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  for (int digits = 1; digits <= 9; ++digits) {
    const int places = digits - 1 - exponent;
    const double unit = std::pow(10, std::abs(places));
    const double near =
        places > 0 ? std::round(value * unit) / unit : std::round(value / unit) * unit;
    if (static_cast<float>(near) == static_cast<float>(value)) return near;
  }
  return value;
}

// How much slower each pair turns (nn/rotary.h: kLlama3).
std::vector<float> Llama3Factors(const RotaryScaling& scaling, double base, int64_t head_dim) {
  std::vector<float> factors;
  const auto length = static_cast<double>(scaling.original_positions);
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(base, static_cast<double>(i) / static_cast<double>(head_dim));
    const double kept = (length / wavelength - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
    const double share = std::clamp(kept, 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - share) / scaling.factor + share)));
  }
  return factors;
}

Status Unsayable(std::string_view key, std::string_view what) {
  return InvalidArgument("'", key, "': ", what, " cannot be said in a GGUF file");
}

// "a.12.b" becomes "a.#.b", and the number is "12".
std::string WithoutNumber(const std::string& name, std::string* number) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      *number = part;
      return name.substr(0, begin) + "#" + name.substr(end);
    }
    begin = end + 1;
  }
  return name;
}

// The hyperparameters of one architecture; the first problem stays.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  template <typename T>
  void MayRead(std::string_view key, T* value) {
    status_.Update(file_.Read(Full(key), value));
  }
  int64_t Needed(std::string_view key) {
    int64_t value = 0;
    if (file_.FindValue(Full(key)) == nullptr) {
      status_.Update(InvalidArgument(file_.path(), ": key '", Full(key), "' is missing"));
    }
    MayRead(key, &value);
    return value;
  }
  void Require(std::string_view key, bool condition, std::string_view problem) {
    if (!condition) {
      status_.Update(InvalidArgument(file_.path(), ": key '", Full(key), "' ", problem));
    }
  }
  const Status& status() const { return status_; }

 private:
  std::string Full(std::string_view key) const { return Concat(architecture_, ".", key); }

  const GgufFile& file_;
  const std::string architecture_;
  Status status_;
};

StatusOr<json> GptConfigOf(const GgufFile& file) {
  KeyReader reader(file, "gpt2");
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
                       {"layer_norm_epsilon", Decimal(epsilon)}};
  TESSERA_RETURN_IF_ERROR(reader.status());
  return config;
}

// {"rope_type": "llama3", ...} where the factors are those.
StatusOr<json> Llama3Keys(const GgufFile& file, double base, int64_t head_dim) {
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* tensor, file.Get(kGgufRopeFactors));
  if (tensor->type.number != kGgufF32.number || tensor->shape != std::vector{head_dim / 2}) {
    return InvalidArgument(file.path(), ": tensor '", kGgufRopeFactors, "' is not F32 [",
                           head_dim / 2, "]");
  }
  std::vector<float> factors(static_cast<size_t>(head_dim / 2));
  std::memcpy(factors.data(), file.BytesOf(*tensor), static_cast<size_t>(tensor->nbytes));
  RotaryScaling scaling = Llama3Scaling();
  TESSERA_RETURN_IF_ERROR(file.Read(kLowFactorKey, &scaling.low_frequency_factor));
  TESSERA_RETURN_IF_ERROR(file.Read(kHighFactorKey, &scaling.high_frequency_factor));
  TESSERA_RETURN_IF_ERROR(file.Read(kOriginalKey, &scaling.original_positions));
  scaling.factor = Decimal(*std::max_element(factors.begin(), factors.end()));
  const std::vector<float> expected = Llama3Factors(scaling, base, head_dim);
  const bool same = std::equal(factors.begin(), factors.end(), expected.begin(),
                               [](float a, float b) { return std::abs(a - b) <= 1e-4f * b; });
  if (!same) {
    return InvalidArgument(file.path(), ": tensor '", kGgufRopeFactors,
                           "' has factors that are not those of Llama 3");
  }
  return json{{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", Decimal(scaling.low_frequency_factor)},
              {"high_freq_factor", Decimal(scaling.high_frequency_factor)},
              {"original_max_position_embeddings", scaling.original_positions}};
}

// What YaRN multiplies what is rotated by (nn/rotary.h), where nothing else is said.
double YarnFactor(double factor) { return 0.1 * std::log(factor) + 1; }

StatusOr<json> YarnKeys(KeyReader* reader, double factor, double attention) {
  RotaryScaling yarn;
  double extrapolation = 1;
  reader->MayRead("rope.scaling.yarn_beta_fast", &yarn.beta_fast);
  reader->MayRead("rope.scaling.yarn_beta_slow", &yarn.beta_slow);
  reader->MayRead("rope.scaling.original_context_length", &yarn.original_positions);
  reader->MayRead("rope.scaling.yarn_ext_factor", &extrapolation);
  // A negative one is llama.cpp's "unset".
  reader->Require("rope.scaling.yarn_ext_factor", extrapolation == 1 || extrapolation < 0,
                  "is not 1, which is all that is supported");
  json keys = {{"rope_type", "yarn"}, {"factor", Decimal(factor)}};
  if (yarn.original_positions > 0) {
    keys["original_max_position_embeddings"] = yarn.original_positions;
  }
  if (yarn.beta_fast != RotaryScaling().beta_fast) keys["beta_fast"] = Decimal(yarn.beta_fast);
  if (yarn.beta_slow != RotaryScaling().beta_slow) keys["beta_slow"] = Decimal(yarn.beta_slow);
  if (attention != 1) keys["attention_factor"] = Decimal(attention * YarnFactor(factor));
  TESSERA_RETURN_IF_ERROR(reader->status());
  return keys;
}

// Null: positions are as they were trained.
StatusOr<json> ScalingKeys(const GgufFile& file, KeyReader* reader, double base, int64_t head_dim) {
  double factor = 1;
  double attention = 1;
  double yarn_attention = 1;
  reader->MayRead("rope.scale_linear", &factor);  // older files
  reader->MayRead("rope.scaling.factor", &factor);
  reader->MayRead("rope.scaling.attn_factor", &attention);
  reader->MayRead("rope.scaling.yarn_attn_factor", &yarn_attention);
  attention *= yarn_attention;
  if (factor == 0) factor = 1;  // llama.cpp's "unset"
  std::string type = "linear";  // of a factor without a type
  reader->MayRead("rope.scaling.type", &type);
  reader->Require("rope.scaling.type", type == "none" || type == "linear" || type == "yarn",
                  "is not none, linear or yarn");
  reader->Require("rope.scaling.attn_factor", attention == 1 || (type == "yarn" && attention > 0),
                  "is not 1, as it must be without YaRN");
  TESSERA_RETURN_IF_ERROR(reader->status());
  const bool scales = type == "yarn" || (type == "linear" && factor != 1);
  if (file.Find(kGgufRopeFactors) != nullptr) {
    reader->Require("rope.scaling.type", !scales,
                    "scales positions, which 'rope_freqs.weight' does already");
    TESSERA_RETURN_IF_ERROR(reader->status());
    return Llama3Keys(file, base, head_dim);
  }
  if (!scales) return json();
  if (type == "yarn") return YarnKeys(reader, factor, attention);
  return json{{"rope_type", type}, {"factor", Decimal(factor)}};
}

Status AddGemmaKeys(int64_t window, KeyReader* reader, json* config) {
  int64_t pattern = kGemmaPattern;
  double local_base = kGemmaLocalBase;
  double cap = 0;
  reader->MayRead("attention.sliding_window_pattern", &pattern);
  reader->MayRead("rope.freq_base_swa", &local_base);
  reader->MayRead("final_logit_softcapping", &cap);
  reader->Require("final_logit_softcapping", cap == 0, "is not supported");
  reader->Require("attention.sliding_window_pattern", pattern > 0, "is out of range");
  reader->Require("attention.sliding_window", window > 0, "is missing");
  config->erase("hidden_act");
  const auto number = [config](const char* key) { return (*config)[key].get<int64_t>(); };
  config->update(
      {{"model_type", "gemma3_text"},
       {"architectures", json::array({"Gemma3ForCausalLM"})},
       {"hidden_activation", "gelu_pytorch_tanh"},
       {"sliding_window", window},
       {"sliding_window_pattern", pattern},
       {"rope_local_base_freq", Decimal(local_base)},
       {"query_pre_attn_scalar", GemmaScalar(number("num_hidden_layers"), number("hidden_size"),
                                             number("num_attention_heads"), number("head_dim"))},
       {"attention_bias", false}});
  return reader->status();
}

StatusOr<json> LlamaConfigOf(const GgufFile& file, const std::string& architecture) {
  constexpr int64_t kMost = 1 << 20;  // products stay within 64 bits
  KeyReader reader(file, architecture);
  const int64_t width = reader.Needed("embedding_length");
  const int64_t heads = reader.Needed("attention.head_count");
  int64_t key_value_heads = heads;
  reader.MayRead("attention.head_count_kv", &key_value_heads);
  reader.Require("attention.head_count", heads > 0 && heads < kMost, "is out of range");
  TESSERA_RETURN_IF_ERROR(reader.status());
  int64_t head_dim = width / heads;
  reader.MayRead("attention.key_length", &head_dim);
  reader.Require("attention.key_length", head_dim > 0 && head_dim < kMost, "is out of range");
  int64_t same = head_dim;
  reader.MayRead("attention.value_length", &same);
  reader.Require("attention.value_length", same == head_dim, "differs from the length of keys");
  reader.MayRead("rope.dimension_count", &same);
  reader.Require("rope.dimension_count", same == head_dim, "is not the length of keys");
  const bool gemma = architecture == "gemma3";
  int64_t experts = 0;
  reader.MayRead("expert_count", &experts);
  reader.Require("expert_count", experts == 0, "says that this is a mixture of experts");
  double base = 10000;
  reader.MayRead("rope.freq_base", &base);
  reader.Require("rope.freq_base", base >= 1, "must be 1 or more");
  double epsilon = 1e-6;
  reader.MayRead("attention.layer_norm_rms_epsilon", &epsilon);
  int64_t window = 0;
  reader.MayRead("attention.sliding_window", &window);
  json config = {{"model_type", architecture},
                 {"hidden_size", width},
                 {"intermediate_size", reader.Needed("feed_forward_length")},
                 {"num_hidden_layers", reader.Needed("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", key_value_heads},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", reader.Needed("context_length")},
                 {"rms_norm_eps", Decimal(epsilon)},
                 {"rope_theta", Decimal(base)}};
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_ASSIGN_OR_RETURN(json scaling, ScalingKeys(file, &reader, base, head_dim));
  TESSERA_RETURN_IF_ERROR(reader.status());
  if (!scaling.is_null()) config["rope_scaling"] = std::move(scaling);
  if (head_dim * heads != width || architecture == "qwen3" || gemma) config["head_dim"] = head_dim;
  if (gemma) {
    TESSERA_RETURN_IF_ERROR(AddGemmaKeys(window, &reader, &config));
  } else if (architecture != "llama") {
    reader.Require("attention.sliding_window", window == 0, "is not supported");
    config["architectures"] =
        json::array({architecture == "qwen2" ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM"});
  } else if (window > 0) {
    config["model_type"] = "mistral";
    config["architectures"] = json::array({"MistralForCausalLM"});
    config["sliding_window"] = window;
  } else {
    config["architectures"] = json::array({"LlamaForCausalLM"});
    config["attention_bias"] = file.Find("blk.0.attn_q.bias") != nullptr;
    config["mlp_bias"] = file.Find("blk.0.ffn_up.bias") != nullptr;
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  return config;
}

}  // namespace

void GgufNames::Add(std::string_view key, GgufValue value) {
  metadata_.emplace_back(Concat(architecture_, ".", key), std::move(value));
}

Status GgufNames::TakeGpt(const json& json) {
  TESSERA_ASSIGN_OR_RETURN(const GptConfig c, GptConfig::FromJson(json));
  const std::string& activation = c.activation_function;
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    return Unsayable("activation_function", activation);
  }
  if (!c.scale_attn_weights) return Unsayable("scale_attn_weights", "false");
  if (c.scale_attn_by_inverse_layer_idx)
    return Unsayable("scale_attn_by_inverse_layer_idx", "true");
  Add("vocab_size", Count(c.vocab_size));
  Add("context_length", Count(c.n_positions));
  Add("embedding_length", Count(c.n_embd));
  Add("block_count", Count(c.n_layer));
  Add("feed_forward_length", Count(c.inner_size()));
  Add("attention.head_count", Count(c.n_head));
  Add("attention.layer_norm_epsilon", static_cast<float>(c.layer_norm_epsilon));
  return OkStatus();
}

Status GgufNames::TakeLlama(const json& json) {
  TESSERA_ASSIGN_OR_RETURN(const LlamaConfig c, LlamaConfig::FromJson(json));
  const int64_t window = c.windows.empty() ? 0 : c.windows[0];
  const bool one_window =
      std::all_of(c.windows.begin(), c.windows.end(), [window](int64_t w) { return w == window; });
  const bool gemma = architecture_ == "gemma3";
  if (!gemma && c.hidden_act != "silu") return Unsayable("hidden_act", c.hidden_act);
  if (c.rotary.share != 1) return Unsayable("partial_rotary_factor", "a part of a head");
  if (c.has_head_norms && c.qkv_bias) return Unsayable("attention_bias", "true");
  if (!gemma && (!one_window || (window > 0 && architecture_ != "llama"))) {
    return Unsayable("sliding_window", "a window of some layers");
  }
  if (gemma) TESSERA_RETURN_IF_ERROR(TakeGemma(c));
  heads_ = c.num_attention_heads;
  key_value_heads_ = c.num_key_value_heads;
  Add("vocab_size", Count(c.vocab_size));
  Add("context_length", Count(c.max_position_embeddings));
  Add("embedding_length", Count(c.hidden_size));
  Add("block_count", Count(c.num_hidden_layers));
  Add("feed_forward_length", Count(c.intermediate_size));
  Add("attention.head_count", Count(heads_));
  Add("attention.head_count_kv", Count(key_value_heads_));
  Add("attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  if (c.head_dim * heads_ != c.hidden_size || gemma) {
    Add("attention.key_length", Count(c.head_dim));
    Add("attention.value_length", Count(c.head_dim));
  }
  if (window > 0 && !gemma) Add("attention.sliding_window", Count(window));
  Add("rope.dimension_count", Count(c.head_dim));
  Add("rope.freq_base", static_cast<float>(c.rotary.base));
  return TakeScaling(c);
}

Status GgufNames::TakeGemma(const LlamaConfig& c) {
  if (c.hidden_act != "gelu_pytorch_tanh") return Unsayable("hidden_activation", c.hidden_act);
  if (c.final_logit_softcapping != 0) return Unsayable("final_logit_softcapping", "a cap");
  const double scalar =
      GemmaScalar(c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.head_dim);
  if (c.query_pre_attn_scalar != scalar) {
    return Unsayable("query_pre_attn_scalar", Concat("another size than ", scalar));
  }
  // The first layer that sees everything ends the first period.
  const auto first = std::find(c.windows.begin(), c.windows.end(), 0);
  const auto period = first - c.windows.begin() + 1;
  int64_t window = 0;
  for (size_t i = 0; i < c.windows.size(); ++i) {
    const bool slides = (static_cast<int64_t>(i) + 1) % period != 0;
    if (slides != (c.windows[i] > 0)) return Unsayable("layer_types", "layers without a period");
    if (slides) window = c.windows[i];
  }
  if (window == 0) return Unsayable("sliding_window", "a model without windows");
  Add("attention.sliding_window", Count(window));
  if (period != kGemmaPattern && period <= std::ssize(c.windows)) {
    Add("attention.sliding_window_pattern", Count(period));
  }
  if (c.local_rotary->base != kGemmaLocalBase) {
    Add("rope.freq_base_swa", static_cast<float>(c.local_rotary->base));
  }
  return OkStatus();
}

Status GgufNames::TakeScaling(const LlamaConfig& c) {
  const RotaryScaling& scaling = c.rotary.scaling;
  switch (scaling.kind) {
    case RotaryScaling::kNone:
      return OkStatus();
    case RotaryScaling::kLlama3:
      rope_factors_ = Llama3Factors(scaling, c.rotary.base, c.head_dim);
      metadata_.emplace_back(kLowFactorKey, static_cast<float>(scaling.low_frequency_factor));
      metadata_.emplace_back(kHighFactorKey, static_cast<float>(scaling.high_frequency_factor));
      metadata_.emplace_back(kOriginalKey, Count(scaling.original_positions));
      return OkStatus();
    case RotaryScaling::kYarn: {
      const RotaryScaling usual;
      const auto add = [this](std::string_view key, double value) {
        Add(key, static_cast<float>(value));
      };
      if (!scaling.truncate || scaling.mscale != 0 || scaling.mscale_all_dim != 0) {
        return Unsayable("rope_scaling", "YaRN with mscale or without truncate");
      }
      Add("rope.scaling.type", std::string("yarn"));
      add("rope.scaling.factor", scaling.factor);
      Add("rope.scaling.original_context_length", Count(scaling.original_positions));
      if (scaling.beta_fast != usual.beta_fast) {
        add("rope.scaling.yarn_beta_fast", scaling.beta_fast);
      }
      if (scaling.beta_slow != usual.beta_slow) {
        add("rope.scaling.yarn_beta_slow", scaling.beta_slow);
      }
      if (scaling.attention_factor != 0) {
        add("rope.scaling.attn_factor", scaling.attention_factor / YarnFactor(scaling.factor));
      }
      return OkStatus();
    }
    case RotaryScaling::kLinear:
      Add("rope.scaling.type", std::string("linear"));
      Add("rope.scaling.factor", static_cast<float>(scaling.factor));
      return OkStatus();
    case RotaryScaling::kDynamic:
    case RotaryScaling::kLongRope:
      break;
  }
  return Unsayable("rope_scaling", "a scaling by the length of the text");
}

StatusOr<GgufNames> GgufNames::Of(const json& config) {
  GgufNames names;
  const std::string type = config.value("model_type", "");
  for (const Architecture& known : kArchitectures) {
    if (known.model_type == type) names.architecture_ = known.theirs;
  }
  if (names.architecture_.empty()) return Unsayable("model_type", type);
  TESSERA_RETURN_IF_ERROR(type == "gpt2" ? names.TakeGpt(config) : names.TakeLlama(config));
  return names;
}

std::optional<GgufPlace> GgufNames::PlaceOf(const std::string& parameter) const {
  const size_t dot = parameter.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  std::string number;
  const std::string ours = WithoutNumber(parameter.substr(0, dot), &number);
  const std::string end = parameter.substr(dot);
  const auto find = [&](std::span<const Name> names) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const Name& n) { return n.ours == ours; });
    return found == names.end() ? nullptr : &*found;
  };
  const Name* name = architecture_ == "gemma3" ? find(kGemmaNames) : nullptr;
  if (name == nullptr)
    name = find(architecture_ == "gpt2" ? std::span<const Name>(kGptNames) : kLlamaNames);
  if (name == nullptr || (end != ".weight" && end != ".bias")) return std::nullopt;
  GgufPlace place = {.name = std::string(name->theirs) + end,
                     .transposed = name->transposed && end == ".weight",
                     .wide = name->theirs == "position_embd"};
  if (architecture_ == "gemma3" && name->theirs.ends_with("norm")) place.added = 1;
  if (!number.empty()) place.name.replace(place.name.find('#'), 1, number);
  if (architecture_ == "llama") {
    if (name->theirs.ends_with("attn_q")) place.interleaved_heads = heads_;
    if (name->theirs.ends_with("attn_k")) place.interleaved_heads = key_value_heads_;
  }
  return place;
}

StatusOr<json> ConfigOfGguf(const GgufFile& file) {
  std::string architecture;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
  int64_t parts = 1;
  TESSERA_RETURN_IF_ERROR(file.Read("split.count", &parts));
  if (parts > std::ssize(file.parts())) {
    return InvalidArgument(file.path(), ": is one of ", parts,
                           " parts; open it by its path, with the others beside it");
  }
  std::string type;
  TESSERA_RETURN_IF_ERROR(file.Read("general.type", &type));
  if (type == "adapter") return InvalidArgument(file.path(), ": is an adapter, and no model");
  if (!IsArchitecture(architecture)) {
    return InvalidArgument(file.path(), ": architecture '", architecture,
                           "' is not supported; gpt2, llama, qwen2, qwen3 and gemma3 are");
  }
  TESSERA_ASSIGN_OR_RETURN(
      json config, architecture == "gpt2" ? GptConfigOf(file) : LlamaConfigOf(file, architecture));
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.Get("token_embd.weight"));
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = file.Find("output.weight") == nullptr;
  std::string name;
  TESSERA_RETURN_IF_ERROR(file.Read("general.name", &name));
  if (!name.empty()) config["_name_or_path"] = name;
  return config;
}

}  // namespace tessera::models
