// SPDX-License-Identifier: Apache-2.0
// Which tokens of a sequence this rank's layers see: context parallelism gives a rank runs of it,
// and sequence parallelism a part of these to what works on single tokens.
//
//   const SequenceShare share = HiddenTokens(build(), context);
//   y = DropShare(x_BTC, {.p = p, .key = key}, share);      // drops what the whole would drop
//   there
#ifndef TESSERA_NN_SEQUENCE_SHARE_H_
#define TESSERA_NN_SEQUENCE_SHARE_H_

#include <cstdint>
#include <vector>

#include "nn/module.h"
#include "ops/collective/sequence_runs.h"
#include "ops/dropout/dropout.h"

namespace tessera::nn {

struct SequenceShare {
  int64_t length = 0;                  // of the whole sequence
  std::vector<SequenceRun> runs = {};  // in order; empty: all of it, whatever its length
  bool is_whole() const { return runs.empty(); }
};

// Of what layers with all features of a token see: the same on all tensor-parallel ranks.
SequenceShare GatheredTokens(const BuildContext& build, const ForwardContext& context);
// Of what norms, dropout and residuals see.
SequenceShare HiddenTokens(const BuildContext& build, const ForwardContext& context);

// Dropout of x [B, T, ...], whose tokens are the share's. What the options say of other dims
// counts.
Tensor DropShare(const Tensor& x, const DropoutOptions& options, const SequenceShare& share);

}  // namespace tessera::nn

#endif  // TESSERA_NN_SEQUENCE_SHARE_H_
