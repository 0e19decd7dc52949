// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>
#include <string>
#include <utility>

#include "models/llama/config.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;
using nn::RotaryScaling;

// Llama 3's and the like, and Phi-3's for texts within the original length and beyond it.
constexpr std::string_view kLlama3Factors = "rope_freqs.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";

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

// How much slower each pair turns (nn/rotary.h: kLlama3).
std::vector<float> Llama3Factors(const RotaryScaling& scaling, const GgufPairs& pairs) {
  std::vector<float> factors;
  const auto length = static_cast<double>(scaling.original_positions);
  for (int64_t i = 0; i < pairs.dims; i += 2) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(pairs.base, static_cast<double>(i) / static_cast<double>(pairs.dims));
    const double kept = (length / wavelength - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
    const double share = std::clamp(kept, 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - share) / scaling.factor + share)));
  }
  return factors;
}

// What is rotated is multiplied by, where nothing else is said (nn/rotary.h).
double YarnFactor(double factor) { return 0.1 * std::log(factor) + 1; }
double LongRopeFactor(double factor, int64_t original) {
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
}

StatusOr<std::vector<float>> ReadFactors(const GgufFile& file, std::string_view name,
                                         int64_t dims) {
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* tensor, file.Get(name));
  if (tensor->type.number != kGgufF32.number || tensor->shape != std::vector{dims / 2}) {
    return InvalidArgument(file.path(), ": tensor '", name, "' is not F32 [", dims / 2, "]");
  }
  std::vector<float> factors(static_cast<size_t>(dims / 2));
  std::memcpy(factors.data(), file.BytesOf(*tensor), static_cast<size_t>(tensor->nbytes));
  return factors;
}

// Factors of any kind, for texts of all lengths.
json OneListKeys(const std::vector<float>& factors, const json& config) {
  json list = json::array();
  for (const float factor : factors) list.push_back(GgufDecimal(factor));
  return {{"rope_type", "longrope"},
          {"factor", 1.0},
          {"attention_factor", 1.0},
          {"original_max_position_embeddings", config["max_position_embeddings"]},
          {"short_factor", list},
          {"long_factor", list}};
}

// {"rope_type": "llama3", ...} where the factors are those.
StatusOr<json> Llama3Keys(const GgufFile& file, const GgufPairs& pairs, const json& config) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> factors,
                           ReadFactors(file, kLlama3Factors, pairs.dims));
  RotaryScaling scaling = Llama3Scaling();
  TESSERA_RETURN_IF_ERROR(file.Read(kLowFactorKey, &scaling.low_frequency_factor));
  TESSERA_RETURN_IF_ERROR(file.Read(kHighFactorKey, &scaling.high_frequency_factor));
  TESSERA_RETURN_IF_ERROR(file.Read(kOriginalKey, &scaling.original_positions));
  scaling.factor = GgufDecimal(*std::max_element(factors.begin(), factors.end()));
  const std::vector<float> expected = Llama3Factors(scaling, pairs);
  const bool same = std::equal(factors.begin(), factors.end(), expected.begin(),
                               [](float a, float b) { return std::abs(a - b) <= 1e-4f * b; });
  if (!same) return OneListKeys(factors, config);
  return json{{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", GgufDecimal(scaling.low_frequency_factor)},
              {"high_freq_factor", GgufDecimal(scaling.high_frequency_factor)},
              {"original_max_position_embeddings", scaling.original_positions}};
}

StatusOr<json> YarnKeys(GgufKeyReader* reader, double factor, double attention) {
  RotaryScaling yarn;
  double extrapolation = 1;
  reader->MayRead("rope.scaling.yarn_beta_fast", &yarn.beta_fast);
  reader->MayRead("rope.scaling.yarn_beta_slow", &yarn.beta_slow);
  reader->MayRead("rope.scaling.original_context_length", &yarn.original_positions);
  reader->MayRead("rope.scaling.yarn_ext_factor", &extrapolation);
  // A negative one is llama.cpp's "unset".
  reader->Require("rope.scaling.yarn_ext_factor", extrapolation == 1 || extrapolation < 0,
                  "is not 1, which is all that is supported");
  json keys = {{"rope_type", "yarn"}, {"factor", GgufDecimal(factor)}};
  if (yarn.original_positions > 0) {
    keys["original_max_position_embeddings"] = yarn.original_positions;
  }
  if (yarn.beta_fast != RotaryScaling().beta_fast) keys["beta_fast"] = GgufDecimal(yarn.beta_fast);
  if (yarn.beta_slow != RotaryScaling().beta_slow) keys["beta_slow"] = GgufDecimal(yarn.beta_slow);
  if (attention != 1) keys["attention_factor"] = GgufDecimal(attention * YarnFactor(factor));
  TESSERA_RETURN_IF_ERROR(reader->status());
  return keys;
}

// Writes `original_max_position_embeddings` beside `rope_scaling`, not into it.
StatusOr<json> LongRopeKeys(const GgufFile& file, GgufKeyReader* reader, int64_t dims,
                            double attention, json* config) {
  const auto longest = (*config)["max_position_embeddings"].get<int64_t>();
  int64_t original = longest;
  reader->MayRead("rope.scaling.original_context_length", &original);
  reader->Require("rope.scaling.original_context_length", original > 1, "is out of range");
  reader->Require("rope.scaling.attn_factor", attention > 0, "is out of range");
  TESSERA_RETURN_IF_ERROR(reader->status());
  json keys = {{"rope_type", "longrope"}};
  for (const auto& [key, name] :
       {std::pair("short_factor", kShortFactors), {"long_factor", kLongFactors}}) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> factors, ReadFactors(file, name, dims));
    for (const float factor : factors) keys[key].push_back(GgufDecimal(factor));
  }
  const double factor = std::max(1.0, static_cast<double>(longest) / static_cast<double>(original));
  if (std::abs(attention / LongRopeFactor(factor, original) - 1) > 1e-6) {
    keys["attention_factor"] = GgufDecimal(attention);
  }
  (*config)["original_max_position_embeddings"] = original;
  return keys;
}

// Null: positions are as they were trained.
StatusOr<json> ScalingKeys(const GgufFile& file, GgufKeyReader* reader, const GgufPairs& pairs,
                           json* config) {
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
  // Those of LongRoPE say no type, or llama.cpp's name of theirs.
  const bool long_rope = file.Find(kLongFactors) != nullptr || file.Find(kShortFactors) != nullptr;
  if (long_rope && type == "longrope") type = "none";
  reader->Require("rope.scaling.type", type == "none" || type == "linear" || type == "yarn",
                  "is not none, linear or yarn");
  reader->Require("rope.scaling.attn_factor",
                  attention == 1 || long_rope || (type == "yarn" && attention > 0),
                  "is not 1, as it must be without YaRN");
  TESSERA_RETURN_IF_ERROR(reader->status());
  const bool scales = type == "yarn" || (type == "linear" && factor != 1);
  for (const std::string_view name : {kLlama3Factors, kLongFactors, kShortFactors}) {
    if (file.Find(name) == nullptr) continue;
    reader->Require("rope.scaling.type", !scales,
                    Concat("scales positions, which '", name, "' does already"));
    TESSERA_RETURN_IF_ERROR(reader->status());
    return name == kLlama3Factors ? Llama3Keys(file, pairs, *config)
                                  : LongRopeKeys(file, reader, pairs.dims, attention, config);
  }
  if (!scales) return json();
  if (type == "yarn") return YarnKeys(reader, factor, attention);
  return json{{"rope_type", type}, {"factor", GgufDecimal(factor)}};
}

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

Status AddYarn(const RotaryScaling& scaling, GgufMetadata* keys) {
  const RotaryScaling usual;
  const auto add = [keys](const char* key, double value) {
    keys->emplace_back(key, static_cast<float>(value));
  };
  if (!scaling.truncate || scaling.mscale != 0 || scaling.mscale_all_dim != 0) {
    return UnsayableInGguf("rope_scaling", "YaRN with mscale or without truncate");
  }
  keys->emplace_back("rope.scaling.type", std::string("yarn"));
  add("rope.scaling.factor", scaling.factor);
  keys->emplace_back("rope.scaling.original_context_length", GgufCount(scaling.original_positions));
  if (scaling.beta_fast != usual.beta_fast) add("rope.scaling.yarn_beta_fast", scaling.beta_fast);
  if (scaling.beta_slow != usual.beta_slow) add("rope.scaling.yarn_beta_slow", scaling.beta_slow);
  if (scaling.attention_factor != 0) {
    add("rope.scaling.attn_factor", scaling.attention_factor / YarnFactor(scaling.factor));
  }
  return OkStatus();
}

}  // namespace

bool IsGgufFactors(std::string_view tensor) {
  return tensor == kLlama3Factors || tensor == kShortFactors || tensor == kLongFactors;
}

Status UnsayableInGguf(std::string_view key, std::string_view what) {
  return InvalidArgument("'", key, "': ", what, " cannot be said in a GGUF file");
}

StatusOr<GgufRotary> GgufRotaryOf(const LlamaConfig& c, const GgufArchitecture& architecture) {
  const RotaryScaling& scaling = c.rotary.scaling;
  const auto dims = static_cast<int64_t>(static_cast<double>(c.head_dim) * c.rotary.share);
  GgufRotary rotary;
  rotary.keys = {{"rope.dimension_count", GgufCount(dims)},
                 {"rope.freq_base", static_cast<float>(c.rotary.base)}};
  switch (scaling.kind) {
    case RotaryScaling::kNone:
      return rotary;
    case RotaryScaling::kLlama3:
      if (architecture.name != "llama") break;
      rotary.factors = {{kLlama3Factors, Llama3Factors(scaling, {c.rotary.base, dims})}};
      rotary.keys_of_ours = {
          {std::string(kLowFactorKey), static_cast<float>(scaling.low_frequency_factor)},
          {std::string(kHighFactorKey), static_cast<float>(scaling.high_frequency_factor)},
          {std::string(kOriginalKey), GgufCount(scaling.original_positions)}};
      return rotary;
    case RotaryScaling::kYarn:
      TESSERA_RETURN_IF_ERROR(AddYarn(scaling, &rotary.keys));
      return rotary;
    case RotaryScaling::kLinear:
      rotary.keys.emplace_back("rope.scaling.type", std::string("linear"));
      rotary.keys.emplace_back("rope.scaling.factor", static_cast<float>(scaling.factor));
      return rotary;
    case RotaryScaling::kLongRope: {
      if (architecture.name == "llama" && scaling.attention_factor == 1 &&
          scaling.short_factors == scaling.long_factors) {
        rotary.factors = {{kLlama3Factors, Floats(scaling.long_factors)}};
        return rotary;
      }
      if (architecture.name != "phi3") break;
      const double attention = scaling.attention_factor != 0
                                   ? scaling.attention_factor
                                   : LongRopeFactor(scaling.factor, scaling.original_positions);
      rotary.keys.emplace_back("rope.scaling.original_context_length",
                               GgufCount(scaling.original_positions));
      rotary.keys.emplace_back("rope.scaling.attn_factor", static_cast<float>(attention));
      rotary.factors = {{kLongFactors, Floats(scaling.long_factors)},
                        {kShortFactors, Floats(scaling.short_factors)}};
      return rotary;
    }
    case RotaryScaling::kDynamic:
      return UnsayableInGguf("rope_scaling", "a scaling by the length of the text");
  }
  return UnsayableInGguf("rope_scaling",
                         Concat("the scaling of Llama 3 or LongRoPE in ", architecture.name));
}

Status ReadGgufRotary(const GgufFile& file, GgufKeyReader* reader, const GgufPairs& pairs,
                      json* config) {
  TESSERA_ASSIGN_OR_RETURN(json scaling, ScalingKeys(file, reader, pairs, config));
  TESSERA_RETURN_IF_ERROR(reader->status());
  if (!scaling.is_null()) (*config)["rope_scaling"] = std::move(scaling);
  return OkStatus();
}

}  // namespace tessera::models
