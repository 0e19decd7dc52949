// SPDX-License-Identifier: Apache-2.0
// Rotary positions as configurations of models name them: base, share of the head, and how the
// frequencies are scaled for contexts longer than the pretrained ones.
//
//   const RotaryConfig llama3 = {.base = 500000.0,
//                                .scaling = {.kind = RotaryScaling::kLlama3,
//                                            .factor = 8.0,
//                                            .original_positions = 8192}};
//   q = Rotary(q, positions, RotaryFor(llama3, head_dim, sequence_length));
//
// The scalings, with d rotated features, pretrained length L, f the factor, and w_i = base^(-2i/d):
//   kLinear    w_i / f: positions are interpolated (Chen et al. 2023, arXiv:2306.15595).
//   kDynamic   base becomes base * (f n / L - (f - 1))^(d / (d - 2)) where the sequence's length n
//              exceeds L: "dynamic NTK", as transformers has it.
//   kLlama3    w_i where the wavelength 2 pi / w_i is below L / high_frequency_factor; w_i / f
//   where
//              it is above L / low_frequency_factor; between them a mean of both, weighted by
//              L / wavelength (Llama 3.1, arXiv:2407.21783).
//   kYarn      w_i where pair i turns more than beta_fast times within L; w_i / f where it turns
//              less than beta_slow times; a ramp over i between them. What is rotated is multiplied
//              by 0.1 ln f + 1 (Peng et al. 2023, arXiv:2309.00071).
//   kLongRope  w_i / short_factors[i], or / long_factors[i] for sequences longer than L; what is
//              rotated is multiplied by sqrt(1 + ln f / ln L) (Ding et al. 2024, arXiv:2402.13753).
#ifndef TESSERA_NN_ROTARY_H_
#define TESSERA_NN_ROTARY_H_

#include <cstdint>
#include <vector>

#include "ops/rotary/rotary.h"

namespace tessera::nn {

struct RotaryScaling {
  enum Kind { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };
  Kind kind = kNone;
  double factor = 1.0;
  int64_t original_positions = 0;  // L; not of kLinear
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the ends of YaRN's ramp are whole pairs
  // What is rotated is multiplied by it, instead of by what YaRN and LongRoPE say; 0: by that.
  double attention_factor = 0.0;
  // Both not 0: YaRN's is (0.1 mscale ln f + 1) / (0.1 mscale_all_dim ln f + 1).
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  std::vector<double> short_factors = {};  // one per pair
  std::vector<double> long_factors = {};
};

struct RotaryConfig {
  double base = 10000.0;  // rope_theta
  double share = 1.0;     // of a head's features, from the first: partial_rotary_factor, rotary_pct
  RotaryPairs pairs = RotaryPairs::kHalves;
  RotaryScaling scaling = {};
};

// For heads of `head_dim` features (of one coordinate) in a sequence that is `length` tokens long
// by now, which kDynamic and kLongRope ask. A configuration that makes no sense throws Error.
RotaryOptions RotaryFor(const RotaryConfig& config, int64_t head_dim, int64_t length);

// Equal for lengths whose frequencies are.
int64_t RotaryLengthKind(const RotaryConfig& config, int64_t length);

}  // namespace tessera::nn

#endif  // TESSERA_NN_ROTARY_H_
