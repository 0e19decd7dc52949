// SPDX-License-Identifier: Apache-2.0
// A text's tokens as one vector: for the server and the C library alike.
//
//   TESSERA_ASSIGN_OR_RETURN(const Pooling pooling, ReadPooling("all-MiniLM-L6-v2"));
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<float> vector, Embed(model, ids, {.pooling =
//   pooling}));
#ifndef TESSERA_MODELS_OPEN_EMBED_H_
#define TESSERA_MODELS_OPEN_EMBED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"

namespace tessera::models {

// How the hidden states of a text's tokens become one vector.
enum class Pooling { kMean, kFirst, kLast, kPooler };

// The pooling of a folder of sentence-transformers (1_Pooling/config.json); the mean of a folder
// without that file. InvalidArgument for a mode, or a combination of modes, that is not supported.
// Where `hides_paths`, messages name the file alone.
StatusOr<Pooling> ReadPooling(const std::string& folder, bool hides_paths = false);

// How Embed makes the vector.
struct EmbedOptions {
  Pooling pooling = Pooling::kMean;
  bool normalise = true;  // divides by the Euclidean length
  int adapter = 0;
};

// The vector of [hidden_size] numbers. Of an encoder beside a decoder, it is the encoder's.
// InvalidArgument for a model that gives no such vector, and for ids that it does not take.
StatusOr<std::vector<float>> Embed(const Model& model, const std::vector<int64_t>& ids,
                                   const EmbedOptions& options = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_EMBED_H_
