// SPDX-License-Identifier: Apache-2.0
// Named tensors through a model, and the vector of a text.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "models/input_check.h"
#include "models/open/embed.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/tensors.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

using models::Model;

// By TSR_POOLING_*.
constexpr models::Pooling kPoolings[] = {models::Pooling::kMean, models::Pooling::kFirst,
                                         models::Pooling::kLast, models::Pooling::kPooler};

Status Forward(tsr_context* context, const tsr_named_tensor* in, size_t n,
               const tsr_forward_options* given, tsr_named_tensor** out, size_t* m) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(m, "m"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_forward_options options,
                           OptionsOf(given, "tsr_forward_options"));
  TESSERA_RETURN_IF_ERROR(
      CheckFlag(options.all_hidden_states, "tsr_forward_options: all_hidden_states"));
  constexpr char kSource[] = "tsr_forward";
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Bundle::Entry> tensors, TensorsOf(kSource, in, n));
  const Model& model = *call.model().model;
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           models::InputsFromNamed(kSource, model, tensors, call.adapter()));
  const Bundle outputs = model.Run(inputs, {.context = {.adapter = call.adapter()},
                                            .all_hidden_states = options.all_hidden_states != 0});
  std::vector<Bundle::Entry> given_out;
  for (const Bundle::Entry& entry : outputs.entries()) {
    if (entry.second.defined()) given_out.push_back(entry);
  }
  *out = ToNamedTensors(given_out);
  *m = given_out.size();
  return OkStatus();
}

Status Embed(tsr_context* context, const int64_t* ids, size_t n, const tsr_embed_options* given,
             float* out, size_t capacity) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_embed_options options, OptionsOf(given, "tsr_embed_options"));
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.normalise, "tsr_embed_options: normalise"));
  if (options.pooling < TSR_POOLING_MEAN || options.pooling > TSR_POOLING_OF_MODEL) {
    return InvalidArgument("tsr_embed_options: pooling ", options.pooling, " is unknown");
  }
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  const tsr_model& model = call.model();
  const auto size = static_cast<size_t>(model.model->hidden_size());
  if (capacity != size) {
    return InvalidArgument("out: ", capacity, " numbers; an embedding has ", size);
  }
  models::EmbedOptions how = {.normalise = options.normalise != 0, .adapter = call.adapter()};
  if (options.pooling == TSR_POOLING_OF_MODEL) {
    TESSERA_ASSIGN_OR_RETURN(how.pooling, model.pooling);
  } else {
    how.pooling = kPoolings[options.pooling];
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> vector,
                           models::Embed(*model.model, std::vector<int64_t>(ids, ids + n), how));
  std::copy(vector.begin(), vector.end(), out);
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_forward(tsr_context* context, const tsr_named_tensor* in, size_t n,
                        tsr_named_tensor** out, size_t* m) {
  return AtBorder([&] { return tessera::runtime::Forward(context, in, n, nullptr, out, m); });
}

tsr_status* tsr_forward_with(tsr_context* context, const tsr_named_tensor* in, size_t n,
                             const tsr_forward_options* options, tsr_named_tensor** out,
                             size_t* m) {
  return AtBorder([&] { return tessera::runtime::Forward(context, in, n, options, out, m); });
}

tsr_status* tsr_embed(tsr_context* context, const int64_t* ids, size_t n,
                      const tsr_embed_options* options, float* out, size_t capacity) {
  return AtBorder([&] { return tessera::runtime::Embed(context, ids, n, options, out, capacity); });
}
