// SPDX-License-Identifier: Apache-2.0
// First values of low-rank terms that are a part of the weight: what matters of it trains from the
// first step, while the rest stays.
//
//   const LowRankStart start = PrincipalStart(w_OI, /*rank=*/8, /*scale=*/2);
//   // scale * start.b x start.a: the part of w with its 8 largest singular values
//   TESSERA_RETURN_IF_ERROR(StartFromWeights("pissa", seed, attached, model));
//
// PiSSA (Meng et al. 2024, "PiSSA: Principal Singular Values and Singular Vectors Adaptation of
// Large Language Models") and OLoRA (Büyükakyüz 2024, "OLoRA: Orthonormal Low-Rank Adaptation of
// Large Language Models"), as PEFT defines them. PEFT takes the part away from the weight; here the
// weight stays as it is, and the term subtracts what it began with (nn/low_rank.h).
//
// Computed on the CPU in float64 from the whole weight, on every rank alike, so that all layouts
// begin with the same numbers. An SVD of a [4096, 4096] takes minutes; pissa_niter_K (Halko et al.
// 2011) seconds.
#ifndef TESSERA_TRAIN_RUN_ADAPTER_START_H_
#define TESSERA_TRAIN_RUN_ADAPTER_START_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "core/random.h"
#include "core/tensor.h"
#include "models/hub/adapter.h"
#include "models/model.h"

namespace tessera::train {

// float64, on the CPU.
struct LowRankStart {
  Tensor a;  // [rank, in]
  Tensor b;  // [out, rank]
};

// Of a weight [out, in] on the CPU; rank is at most the smaller of the two. With U S V^T its SVD:
// b = U sqrt(S / scale), a = sqrt(S / scale) V^T, of the `rank` largest; the largest element of
// each column of b is positive.
LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale);
// About the same, from `iterations` rounds of subspace iteration that begins with random numbers.
LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale, int iterations,
                            const RandomKey& key);
// With Q R its QR decomposition, R's diagonal positive: the first columns of Q, and rows of R.
LowRankStart OrthonormalStart(const Tensor& weight, int64_t rank);

// Gives all terms of a new adapter the first values that `init` (AdapterConfig::init) names.
// InvalidArgument, which names the layer, for a rank that is greater than a weight's. Collective
// over the ranks that share the model's parameters.
Status StartFromWeights(const std::string& init, uint64_t seed,
                        const models::AttachedAdapter& adapter, models::Model& model);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_ADAPTER_START_H_
