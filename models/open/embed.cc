// SPDX-License-Identifier: Apache-2.0
#include "models/open/embed.h"

#include <cmath>
#include <utility>

#include "autograd/autograd.h"
#include "base/file.h"
#include "base/json_text.h"
#include "models/input_check.h"
#include "models/model_keys.h"
#include "ops/cast/cast.h"

namespace tessera::models {
namespace {

std::vector<double> Numbers(const Tensor& tensor) {
  return CastCopy(CopyTo(tensor, Device::Cpu()), DType::kFloat64).ToVector<double>();
}

// Mean of rows, or one of them, of hidden states [1, T, C].
std::vector<double> Pooled(const Tensor& hidden_1TC, Pooling pooling) {
  const std::vector<double> all = Numbers(hidden_1TC);
  const auto tokens = static_cast<size_t>(hidden_1TC.size(1));
  const auto width = static_cast<size_t>(hidden_1TC.size(2));
  std::vector<double> vector(width, 0.0);
  const size_t first = pooling == Pooling::kLast ? tokens - 1 : 0;
  const size_t end = pooling == Pooling::kFirst ? 1 : tokens;
  for (size_t t = first; t < end; ++t) {
    for (size_t c = 0; c < width; ++c) vector[c] += all[t * width + c];
  }
  for (double& x : vector) x /= static_cast<double>(end - first);
  return vector;
}

StatusOr<std::vector<double>> VectorOf(const Model& model, const Bundle& outputs, Pooling pooling) {
  if (pooling == Pooling::kPooler) {
    if (outputs.get(keys::kPoolerOutput).defined()) return Numbers(outputs.at(keys::kPoolerOutput));
    return InvalidArgument("the model has no pooler");
  }
  const Tensor* const encoded = outputs.FindNamed("encoder_last_hidden_state");
  const bool encodes = model.encoder_decoder() != nullptr && encoded != nullptr;
  return Pooled(encodes ? *encoded : outputs.at(keys::kLastHiddenState), pooling);
}

}  // namespace

StatusOr<Pooling> ReadPooling(const std::string& folder, bool hides_paths) {
  constexpr std::pair<const char*, Pooling> kModes[] = {
      {"pooling_mode_mean_tokens", Pooling::kMean},
      {"pooling_mode_cls_token", Pooling::kFirst},
      {"pooling_mode_lasttoken", Pooling::kLast},
  };
  const std::string name = "1_Pooling/config.json";
  const std::string path = hides_paths ? name : JoinPath(folder, name);
  if (!PathExists(JoinPath(folder, name))) return Pooling::kMean;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(JoinPath(folder, name)));
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, path));
  Pooling pooling = Pooling::kMean;
  std::string asked;
  for (const auto& [key, value] : json.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    if (!asked.empty()) {
      return InvalidArgument(path, ": ", asked, " and ", key, " together are not supported");
    }
    asked = key;
    bool known = false;
    for (const auto& [name, mode] : kModes) {
      if (key != name) continue;
      known = true;
      pooling = mode;
    }
    if (known) continue;
    return InvalidArgument(path, ": ", key,
                           " is not supported; the mean, the first and the last token are");
  }
  return pooling;
}

StatusOr<std::vector<float>> Embed(const Model& model, const std::vector<int64_t>& ids,
                                   const EmbedOptions& options) {
  if (!model.Takes(keys::kInputIds)) return InvalidArgument("the model takes no tokens");
  if (model.hidden_size() == 0) return InvalidArgument("the model gives no embeddings of texts");
  const NoGrad no_grad;
  std::vector<Bundle::Entry> named = {{"input_ids", Tensor::FromVector(ids, {1, std::ssize(ids)})}};
  if (const EncoderDecoder* both = model.encoder_decoder()) {
    named.emplace_back("decoder_input_ids",
                       Tensor::FromVector(std::vector<int64_t>{both->decoder_start()}, {1, 1}));
  }
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           InputsFromNamed("text", model, named, options.adapter));
  const Bundle outputs =
      model.Run(inputs, {.context = {.adapter = options.adapter}, .keep_logits = false});
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> vector,
                           VectorOf(model, outputs, options.pooling));
  double squares = 0;
  for (const double x : vector) squares += x * x;
  const double scale = options.normalise && squares > 0 ? 1 / std::sqrt(squares) : 1;
  std::vector<float> embedding;
  for (const double x : vector) embedding.push_back(static_cast<float>(x * scale));
  return embedding;
}

}  // namespace tessera::models
