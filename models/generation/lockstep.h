// SPDX-License-Identifier: Apache-2.0
// Ranks that hold parameters together (ZeRO-3) and generate texts of different lengths: every
// forward pass of one is a forward pass of all.
//
//   Lockstep lockstep(model, [&](int64_t mine) { return LargestOverGroup(mine); });
//   lockstep.BeforeDecoder({5, 9});   // runs along with the others' encoder passes, then returns
//   model.Run(...);                   // on all ranks alike
//   lockstep.Finish();                // runs along until nobody has a pass to make
//
// Before every pass the ranks agree on its kind; one that wanted another, or none, runs an idle
// pass of that kind, on its first text, whose result is dropped.
#ifndef TESSERA_MODELS_GENERATION_LOCKSTEP_H_
#define TESSERA_MODELS_GENERATION_LOCKSTEP_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "models/model.h"

namespace tessera::models {

// The largest of the numbers that the ranks give; collective.
using LargestOverRanks = std::function<int64_t(int64_t mine)>;

class Lockstep {
 public:
  // Without `largest` forward passes are the rank's own, and nothing here does anything.
  // `adapter` is that of the idle passes (nn::ForwardContext).
  Lockstep(const Model& model, LargestOverRanks largest, int adapter = 0);

  void BeforeEncoder();
  // `tokens` are a row of the pass that follows.
  void BeforeDecoder(const std::vector<int64_t>& tokens);
  // What an encoder gave: idle decoder passes read the first.
  void Encoded(const Bundle& encoded);
  // Afterwards this rank makes no more passes.
  void Finish();

 private:
  enum Pass : int64_t { kNone, kDecoder, kEncoder };
  // Returns when the ranks agree on `mine`.
  void RunAlongUntil(Pass mine);
  void RunIdleEncoder();
  void RunIdleDecoder();

  const Model& model_;
  const LargestOverRanks largest_;
  const int adapter_;
  std::vector<int64_t> tokens_;  // of this rank's first decoder pass
  Bundle encoded_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_LOCKSTEP_H_
