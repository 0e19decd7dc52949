// SPDX-License-Identifier: Apache-2.0
// Random inputs of a model, for the programs of this folder.
#ifndef TESSERA_BENCH_RANDOM_INPUTS_H_
#define TESSERA_BENCH_RANDOM_INPUTS_H_

#include <cstdint>

#include "models/model.h"

namespace tessera {

// What the family trains on: next tokens, every seventh token masked (about 15 %), pictures with a
// label each, or sources with targets of a quarter of their length; `batch` rows, those of text
// `tokens` long.
models::Bundle RandomInputs(const models::Model& model, int64_t batch, int64_t tokens);

}  // namespace tessera

#endif  // TESSERA_BENCH_RANDOM_INPUTS_H_
