// SPDX-License-Identifier: Apache-2.0
// Rows that each go to several places, and come back to be added up: the ways to the experts of a
// mixture and back (Lepikhin et al. 2020, "GShard", which calls them dispatch and combine).
//
//   Tensor rows_RC = DispatchRows(h_NC, place_Nk, R);           // rows[place[n, j]] = h[n]
//   Tensor y_NC = CombineRows(results_RC, weights_Nk, place_Nk);
//                                            // y[n] = sum over j of weights[n, j] results[place[n,
//                                            j]]
//
// `place` is int64 [N, k]: every row in [0, R) once, and -1 where a row goes to fewer places. Sums
// are taken in the order of j, in float32 at least, and rounded once. Gradients flow to h, results
// and weights; those of h are such sums too, so that they have one order.
#ifndef TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_H_
#define TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

// x [N, C], floating, to [rows, C]. Throws Error for shapes that do not fit and, on the CPU, for a
// place outside of the rows.
Tensor DispatchRows(const Tensor& x, const Tensor& place, int64_t rows);
// x [R, C] and weights [N, k], floating, to [N, C] in x's dtype.
Tensor CombineRows(const Tensor& x, const Tensor& weights, const Tensor& place);

}  // namespace tessera

#endif  // TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_H_
