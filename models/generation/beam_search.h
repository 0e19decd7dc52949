// SPDX-License-Identifier: Apache-2.0
// The likeliest continuations among those that keep `num_beams` candidates at a time.
#ifndef TESSERA_MODELS_GENERATION_BEAM_SEARCH_H_
#define TESSERA_MODELS_GENERATION_BEAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "models/generation/generation_config.h"
#include "models/generation/lockstep.h"
#include "models/model.h"

namespace tessera::models {

// The new tokens of the num_return_sequences best texts, the best first; of each at most `limit`,
// the one that ended it included. A text's score is the sum
// of its tokens' log-probabilities over length^length_penalty, as in Hugging Face's `generate`; the
// same texts come first. `prompt` is what the (decoder's) text begins with, not empty; `source` is
// what the encoder reads, for models that have one. Ids are valid.
// InvalidArgument where the vocabulary has too few tokens for so many texts.
StatusOr<std::vector<std::vector<int64_t>>> BeamSearch(
    const Model& model, const std::vector<int64_t>& source, const std::vector<int64_t>& prompt,
    int64_t limit, const GenerationConfig& config, Lockstep* lockstep, int adapter = 0);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_BEAM_SEARCH_H_
