// SPDX-License-Identifier: Apache-2.0
// Named tensors through a model, and the vector of a text.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "models/input_check.h"
#include "models/model_keys.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/tensors.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

using models::Model;

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

// Mean of rows, or one of them, of hidden states [1, T, C].
std::vector<double> Pooled(const Tensor& hidden_1TC, int pooling) {
  const Tensor hidden = CastCopy(CopyTo(hidden_1TC, Device::Cpu()), DType::kFloat64);
  const std::vector<double> all = hidden.ToVector<double>();
  const auto tokens = static_cast<size_t>(hidden.size(1));
  const auto width = static_cast<size_t>(hidden.size(2));
  std::vector<double> vector(width, 0.0);
  const size_t first = pooling == TSR_POOLING_LAST ? tokens - 1 : 0;
  const size_t end = pooling == TSR_POOLING_FIRST ? 1 : tokens;
  for (size_t t = first; t < end; ++t) {
    for (size_t c = 0; c < width; ++c) vector[c] += all[t * width + c];
  }
  for (double& x : vector) x /= static_cast<double>(end - first);
  return vector;
}

StatusOr<std::vector<double>> VectorOf(const Model& model, const Bundle& outputs, int pooling) {
  if (pooling == TSR_POOLING_POOLER) {
    if (!outputs.get(keys::kPoolerOutput).defined()) {
      return InvalidArgument("tsr_embed_options: the model has no pooler");
    }
    return CastCopy(CopyTo(outputs.at(keys::kPoolerOutput), Device::Cpu()), DType::kFloat64)
        .ToVector<double>();
  }
  const Tensor* const encoded = outputs.FindNamed("encoder_last_hidden_state");
  const bool encodes = model.encoder_decoder() != nullptr && encoded != nullptr;
  return Pooled(encodes ? *encoded : outputs.at(keys::kLastHiddenState), pooling);
}

Status Embed(tsr_context* context, const int64_t* ids, size_t n, const tsr_embed_options* given,
             float* out, size_t capacity) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_embed_options options, OptionsOf(given, "tsr_embed_options"));
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.normalise, "tsr_embed_options: normalise"));
  if (options.pooling < TSR_POOLING_MEAN || options.pooling > TSR_POOLING_POOLER) {
    return InvalidArgument("tsr_embed_options: pooling ", options.pooling, " is unknown");
  }
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  const Model& model = *call.model().model;
  if (!model.Takes(keys::kInputIds)) return InvalidArgument("the model takes no tokens");
  const auto size = static_cast<size_t>(model.hidden_size());
  if (capacity != size) {
    return InvalidArgument("out: ", capacity, " numbers; an embedding has ", size);
  }
  const auto tokens = static_cast<int64_t>(n);
  std::vector<Bundle::Entry> named = {
      {"input_ids", Tensor::FromVector(std::vector<int64_t>(ids, ids + n), {1, tokens})}};
  if (const models::EncoderDecoder* both = model.encoder_decoder()) {
    named.emplace_back("decoder_input_ids",
                       Tensor::FromVector(std::vector<int64_t>{both->decoder_start()}, {1, 1}));
  }
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           models::InputsFromNamed("tsr_embed", model, named, call.adapter()));
  const Bundle outputs =
      model.Run(inputs, {.context = {.adapter = call.adapter()}, .keep_logits = false});
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> vector,
                           VectorOf(model, outputs, options.pooling));
  double scale = 1;
  if (options.normalise != 0) {
    double squares = 0;
    for (const double x : vector) squares += x * x;
    if (squares > 0) scale = 1 / std::sqrt(squares);
  }
  std::transform(vector.begin(), vector.end(), out,
                 [scale](double x) { return static_cast<float>(x * scale); });
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
