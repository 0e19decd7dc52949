// SPDX-License-Identifier: Apache-2.0
// Continues token sequences with a model.
//
//   TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ReadGenerationConfig(folder,
//   model->config())); config.max_new_tokens = 20;
//   TESSERA_ASSIGN_OR_RETURN(std::vector<GenerationResult> results,
//                            Generate(*model, {tokenizer->Encode("Hello world")}, config,
//                                     {.tokenizer = tokenizer.get()}));
//   std::string text = tokenizer->Decode(results[0].ids);         // as results[0].text
//
// Prompts may have different lengths: the rows of the key/value cache are aligned at their front,
// so nothing is padded on the left and a row's tokens do not depend on the others. Rows that have
// ended leave the batch. Sampling takes a uniform number that is a function of (seed, row, number
// of new tokens so far), so that the same call gives the same text.
#ifndef TESSERA_MODELS_GENERATION_GENERATE_H_
#define TESSERA_MODELS_GENERATION_GENERATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/generation/lockstep.h"
#include "models/generation/prompts.h"
#include "models/generation/text_request.h"
#include "models/model.h"

namespace tessera::models {

// What generation is given beside how it chooses.
struct GenerateOptions {
  // Gives the text; needed for stop strings.
  const data::Tokenizer* tokenizer = nullptr;
  // Called for each new token as it is chosen, with the text that is certain now (whole characters
  // that no stop string can take back; often none). With beams, at the end. A status that is not OK
  // ends the generation, which returns it.
  std::function<Status(int64_t row, int64_t id, std::string_view text)> on_token = nullptr;
  // Called for each text once it and those before it are done, in their order; as `on_token`.
  std::function<Status(int64_t row, const GenerationResult& result)> on_result = nullptr;
  // Set where ranks hold the model's parameters together: all of them generate at the same time,
  // each its own texts, and make as many forward passes (models/generation/lockstep.h).
  LargestOverRanks largest_over_ranks = nullptr;
  // At most so many texts are on their way at once, and the next begins where one has ended; 0: all
  // at once. What is written does not depend on it. (Beams are searched text by text.)
  int64_t slots = 0;
  // What each text must fit (TextRequest::grammar).
  std::shared_ptr<const TokenGrammar> grammar = nullptr;
  // Which of the model's adapters counts (nn::ForwardContext).
  int adapter = 0;
};

// The num_return_sequences results of each prompt, in order; they are the rows. The model is put
// into evaluation mode meanwhile; nothing is recorded for gradients.
//
// InvalidArgument for what Validate refuses, no new tokens, ids beyond the vocabulary, an empty
// prompt where the configuration names no token to begin with, a prompt that with its new tokens
// exceeds the model's positions, stop strings without a tokenizer, a grammar without its tokenizer
// or with beams, a model that does not generate. Internal when the model's logits are not finite.
StatusOr<std::vector<GenerationResult>> Generate(const Model& model, const Prompts& prompts,
                                                 const GenerationConfig& config,
                                                 const GenerateOptions& options = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GENERATE_H_
