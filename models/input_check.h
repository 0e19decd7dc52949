// SPDX-License-Identifier: Apache-2.0
// Checks of what comes from outside before a model sees it: one line that names the tensor, the row
// and the position, instead of an exception from the depths.
//
//   TESSERA_RETURN_IF_ERROR(CheckTextInputs("in.safetensors", model, &inputs));
#ifndef TESSERA_MODELS_INPUT_CHECK_H_
#define TESSERA_MODELS_INPUT_CHECK_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"

namespace tessera::models {

// Values of an integer tensor must lie in [0, limit), or be `also`. `where` begins the message,
// `meaning` says what is limited ("vocabulary").
Status CheckRange(const std::string& where, const Tensor& t, int64_t limit, int64_t also,
                  const char* meaning);

// `input_ids` must be there, [batch, tokens] integers within the vocabulary.
Status CheckInputIds(const std::string& source, const Model& model, const Bundle& inputs);

// `input_ids` must be there, [batch, tokens] integers within the vocabulary and no longer than the
// model's positions. Each of `like_ids` that is there must be integers (an attention mask may be
// floating) of the same shape; `position_ids` of one row stands for every row.
Status CheckTokenInputs(const std::string& source, const Model& model,
                        const std::vector<TensorKey>& like_ids, Bundle* inputs);

// Tensors by names from outside as the model takes them: those of Family::inputs alone, integers of
// any size as int64, floats as what the model computes in, on its device, and checked
// (Family::check_inputs; behind the prefix of `adapter`). `source` begins messages.
StatusOr<Bundle> InputsFromNamed(const std::string& source, const Model& model,
                                 const std::vector<Bundle::Entry>& named, int adapter = 0);

// What a language model takes: input_ids, attention_mask, position_ids, labels.
Status CheckTextInputs(const std::string& source, const Model& model, Bundle* inputs);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_INPUT_CHECK_H_
