// SPDX-License-Identifier: Apache-2.0
#include "models/rotary_keys.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "base/options.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;
using nn::RotaryScaling;

// Of what multiplies positions: products stay within 64 bits.
constexpr double kMost = 1e9;

bool Has(const json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

// One object with all of it, and what messages call it.
struct Section {
  std::string name;
  json keys = json::object();
  std::string family;

  Status Problem(const char* key, const std::string& what) const {
    return InvalidArgument("config of ", family, ": '", name, name.empty() ? "" : ".", key, "' ",
                           what);
  }
  template <typename T>
  Status Read(const char* key, T* value, const OptionNotes& notes = {}) const {
    if (!Has(keys, key)) return OkStatus();
    return ReadValue(keys[key],
                     Concat("config of ", family, ": '", name, name.empty() ? "" : ".", key, "'"),
                     value, notes);
  }
  Status Needs(const char* key) const {
    return Has(keys, key) ? OkStatus() : Problem(key, "is missing");
  }
};

StatusOr<RotaryScaling::Kind> KindOf(const Section& section) {
  const char* const key = Has(section.keys, "rope_type") ? "rope_type" : "type";
  if (!Has(section.keys, key)) return RotaryScaling::kNone;
  static const std::map<std::string, RotaryScaling::Kind> kinds = {
      {"default", RotaryScaling::kNone},    {"linear", RotaryScaling::kLinear},
      {"dynamic", RotaryScaling::kDynamic}, {"llama3", RotaryScaling::kLlama3},
      {"yarn", RotaryScaling::kYarn},       {"longrope", RotaryScaling::kLongRope}};
  const json& value = section.keys[key];
  const auto found = value.is_string() ? kinds.find(value.get<std::string>()) : kinds.end();
  if (found != kinds.end()) return found->second;
  return section.Problem(key, Concat("is ", value.dump(),
                                     ", expected default, linear, dynamic, llama3, yarn or "
                                     "longrope"));
}

// YaRN with `factor` null: the ratio of the lengths, in version 5 of transformers; 4 fails there.
bool ComputesFactor(const Section& section, RotaryScaling::Kind kind) {
  return kind == RotaryScaling::kYarn && section.keys.contains("factor") &&
         section.keys["factor"].is_null();
}

// The values that transformers has where a key is absent are those of RotaryScaling.
Status ReadScaling(const Section& section, RotaryScaling* scaling) {
  TESSERA_ASSIGN_OR_RETURN(scaling->kind, KindOf(section));
  if (scaling->kind == RotaryScaling::kNone) return OkStatus();
  if (scaling->kind != RotaryScaling::kLongRope && !ComputesFactor(section, scaling->kind)) {
    TESSERA_RETURN_IF_ERROR(section.Needs("factor"));
  }
  TESSERA_RETURN_IF_ERROR(section.Read("factor", &scaling->factor, {.least = 1, .most = kMost}));
  if (scaling->kind == RotaryScaling::kLlama3) {
    TESSERA_RETURN_IF_ERROR(section.Needs("low_freq_factor"));
    TESSERA_RETURN_IF_ERROR(section.Needs("high_freq_factor"));
    TESSERA_RETURN_IF_ERROR(
        section.Read("low_freq_factor", &scaling->low_frequency_factor, {.least = 0}));
    TESSERA_RETURN_IF_ERROR(
        section.Read("high_freq_factor", &scaling->high_frequency_factor, {.least = 0}));
    if (scaling->low_frequency_factor <= 0 ||
        scaling->high_frequency_factor <= scaling->low_frequency_factor) {
      return section.Problem("high_freq_factor",
                             "must be above 'low_freq_factor', which is above 0");
    }
  }
  if (scaling->kind == RotaryScaling::kYarn) {
    TESSERA_RETURN_IF_ERROR(section.Read("beta_fast", &scaling->beta_fast, {.least = 0}));
    TESSERA_RETURN_IF_ERROR(section.Read("beta_slow", &scaling->beta_slow, {.least = 0}));
    TESSERA_RETURN_IF_ERROR(section.Read("mscale", &scaling->mscale, {.least = 0}));
    TESSERA_RETURN_IF_ERROR(section.Read("mscale_all_dim", &scaling->mscale_all_dim, {.least = 0}));
    if (scaling->beta_slow <= 0 || scaling->beta_fast <= scaling->beta_slow) {
      return section.Problem("beta_fast", "must be above 'beta_slow', which is above 0");
    }
    TESSERA_RETURN_IF_ERROR(section.Read("truncate", &scaling->truncate));
  }
  if (scaling->kind == RotaryScaling::kYarn || scaling->kind == RotaryScaling::kLongRope) {
    TESSERA_RETURN_IF_ERROR(
        section.Read("attention_factor", &scaling->attention_factor, {.least = 0}));
  }
  if (scaling->kind == RotaryScaling::kLongRope) {
    TESSERA_RETURN_IF_ERROR(section.Needs("short_factor"));
    TESSERA_RETURN_IF_ERROR(section.Needs("long_factor"));
    TESSERA_RETURN_IF_ERROR(section.Read("short_factor", &scaling->short_factors));
    TESSERA_RETURN_IF_ERROR(section.Read("long_factor", &scaling->long_factors));
  }
  return OkStatus();
}

// Where both are, transformers 5 takes `rope_scaling`, and 4 knows no other. The section of a type
// of layers is 5's, which puts `rope_scaling` over it.
StatusOr<Section> FindSection(const json& config, const std::string& family,
                              const RotaryDefaults& defaults) {
  Section section = {.name = Has(config, "rope_scaling") ? "rope_scaling" : "rope_parameters",
                     .family = family};
  const std::string& kind = defaults.layer_type;
  const bool scaled = defaults.base_key == "rope_theta" || defaults.one_section;
  const auto newer = config.find("rope_parameters");
  const bool of_layers =
      !kind.empty() && newer != config.end() && newer->is_object() && Has(*newer, kind.c_str());
  const json scaling = of_layers && scaled ? config.value("rope_scaling", json()) : json();
  if (of_layers) section.name = "rope_parameters";
  if (Has(config, section.name.c_str())) section.keys = config[section.name];
  if (!section.keys.is_object()) {
    return InvalidArgument("config of ", family, ": '", section.name, "' must be an object");
  }
  if (!kind.empty() && Has(section.keys, kind.c_str())) {
    section = {.name = section.name + "." + kind, .keys = section.keys[kind], .family = family};
    if (!section.keys.is_object()) {
      return InvalidArgument("config of ", family, ": '", section.name, "' must be an object");
    }
    if (!scaling.is_null() && !scaling.is_object()) {
      return InvalidArgument("config of ", family, ": 'rope_scaling' must be an object");
    }
    if (scaling.is_object()) section.keys.update(scaling);
  } else if (!kind.empty() && (section.name == "rope_parameters" || !scaled)) {
    // Those of the other layers, or of none: within `rope_parameters` transformers looks at no key
    // beside the sections of layers.
    section.keys = json::object();
  }
  for (const auto& [key, value] : section.keys.items()) {
    if (value.is_object()) return section.Problem(key.c_str(), "is of some layers; not supported");
  }
  if (!Has(section.keys, "rope_theta") && Has(config, defaults.base_key.c_str())) {
    section.keys["rope_theta"] = config[defaults.base_key];
  }
  const char* const share = "partial_rotary_factor";
  const auto check = [&](const Section& where) {
    if (defaults.reads_share || !Has(where.keys, share) || where.keys[share] == 1) {
      return OkStatus();
    }
    return where.Problem(share, Concat("must be 1, not ", where.keys[share].dump()));
  };
  TESSERA_RETURN_IF_ERROR(check(section));
  TESSERA_RETURN_IF_ERROR(check({.name = "", .keys = config, .family = family}));
  if (!Has(section.keys, share) && Has(config, share)) section.keys[share] = config[share];
  return section;
}

constexpr char kOriginal[] = "original_max_position_embeddings";

// The length that the model was trained on before its scaling, where it is said; 0: it is not.
// Phi-3 has LongRoPE's beside the section; within a section, version 4 of transformers does not
// look at it. Version 5 prefers the one beside its section, of every kind.
StatusOr<int64_t> OriginalPositions(const json& config, const Section& section,
                                    RotaryScaling::Kind kind) {
  const bool long_rope = kind == RotaryScaling::kLongRope;
  Section where = section;
  const bool newer = section.name == "rope_parameters" ||
                     (section.name == "rope_scaling" && ComputesFactor(section, kind));
  if ((long_rope || newer) && Has(config, kOriginal)) {
    where = {.name = "", .keys = config, .family = section.family};
  }
  double original = 0;
  const bool counts = kind == RotaryScaling::kLlama3 || kind == RotaryScaling::kYarn ||
                      (long_rope && where.name != "rope_scaling");
  if (counts) {
    TESSERA_RETURN_IF_ERROR(where.Read(kOriginal, &original, {.least = 2, .most = kMost}));
  }
  return static_cast<int64_t>(original);
}

}  // namespace

StatusOr<RotaryKeys> ReadRotaryKeys(const json& json, const std::string& family,
                                    int64_t max_position_embeddings,
                                    const RotaryDefaults& defaults) {
  TESSERA_ASSIGN_OR_RETURN(const Section section, FindSection(json, family, defaults));
  RotaryKeys read;
  read.config.base = defaults.base;
  read.config.share = defaults.share;
  read.max_positions = max_position_embeddings;
  TESSERA_RETURN_IF_ERROR(section.Read("rope_theta", &read.config.base, {.least = 1}));
  TESSERA_RETURN_IF_ERROR(section.Read("partial_rotary_factor", &read.config.share, {.least = 0}));
  RotaryScaling& scaling = read.config.scaling;
  TESSERA_RETURN_IF_ERROR(ReadScaling(section, &scaling));
  TESSERA_ASSIGN_OR_RETURN(const int64_t original, OriginalPositions(json, section, scaling.kind));
  scaling.original_positions = original == 0 ? max_position_embeddings : original;
  const auto longest = static_cast<double>(max_position_embeddings);
  if (ComputesFactor(section, scaling.kind)) {
    scaling.factor = longest / static_cast<double>(scaling.original_positions);
    if (scaling.factor < 1) {
      return section.Problem(
          "factor", Concat("is null, and 'max_position_embeddings' (", max_position_embeddings,
                           ") is below '", kOriginal, "' (", scaling.original_positions, ")"));
    }
  }
  // Version 4 of transformers computes a factor that is there, too.
  const bool computes = section.name == "rope_scaling" && Has(json, kOriginal);
  if (scaling.kind == RotaryScaling::kLongRope && (computes || !Has(section.keys, "factor"))) {
    scaling.factor = std::max(1.0, longest / static_cast<double>(scaling.original_positions));
  }
  const bool extends =
      scaling.kind == RotaryScaling::kLinear || scaling.kind == RotaryScaling::kDynamic ||
      scaling.kind == RotaryScaling::kYarn || scaling.kind == RotaryScaling::kLongRope;
  if (extends) {
    const double extended = scaling.factor * static_cast<double>(scaling.original_positions);
    read.max_positions = std::max(max_position_embeddings, static_cast<int64_t>(extended));
  }
  return read;
}

}  // namespace tessera::models
