// SPDX-License-Identifier: Apache-2.0
// Rotary positions as a config.json says them: `rope_theta` beside `rope_scaling`, or both in
// `rope_parameters`, as transformers writes since version 5. YaRN with `factor` null extends by the
// ratio of max_position_embeddings and original_max_position_embeddings.
//
//   TESSERA_ASSIGN_OR_RETURN(const RotaryKeys keys, ReadRotaryKeys(json, "llama", 4096));
//   // {"rope_scaling": {"rope_type": "linear", "factor": 4}}: keys.max_positions is 16384
#ifndef TESSERA_MODELS_ROTARY_KEYS_H_
#define TESSERA_MODELS_ROTARY_KEYS_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/rotary.h"

namespace tessera::models {

struct RotaryKeys {
  nn::RotaryConfig config;
  // `max_position_embeddings`, or what a scaling by a factor makes of the length before it
  // (`original_max_position_embeddings` where YaRN and LongRoPE say it) if that is more. Published
  // configurations give either length as the first; llama3's is always the extended one.
  int64_t max_positions = 0;
};

// What absent keys mean, and where a family with two kinds of layers has one kind's.
struct RotaryDefaults {
  double base = 10000.0;
  double share = 1.0;
  // Not empty: the keys may be in `rope_parameters.<layer_type>` ("sliding_attention"), as
  // transformers 5 writes them. What else is in `rope_parameters` says nothing, as there.
  std::string layer_type = {};
  // Another name of the base beside the section. Its layers have no scaling there, unless one
  // section is for all layers.
  std::string base_key = "rope_theta";
  bool one_section = false;
  // False: `partial_rotary_factor` is not known, and refused unless it is 1.
  bool reads_share = false;
};

// `family` begins messages: "config of llama: 'rope_scaling.factor' ...".
StatusOr<RotaryKeys> ReadRotaryKeys(const nlohmann::json& json, const std::string& family,
                                    int64_t max_position_embeddings,
                                    const RotaryDefaults& defaults = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_ROTARY_KEYS_H_
