// SPDX-License-Identifier: Apache-2.0
// Prefix tuning (nn/prefix.h) beside a model, as PEFT's folders have it: one tensor
// `prompt_embeddings` [n, 2 * layers * heads * head size], whose slots 2l and 2l + 1 are the keys
// and the values of layer l. What models/hub/adapter.h does with a configuration that has `prefix`.
//
// Of a model with an encoder the decoder's self-attention alone has prefixes, and layer l reads the
// slots (4l) mod 2L and (4l + 1) mod 2L of L layers, as PEFT cuts a tensor that it has doubled for
// caches of both kinds, of which it empties the second: with an even L, layers l and l + L/2 share
// their numbers, and half of the slots are nobody's.
#ifndef TESSERA_MODELS_HUB_PREFIX_ADAPTER_H_
#define TESSERA_MODELS_HUB_PREFIX_ADAPTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/model.h"

namespace tessera::nn {
class KeyValuePrefix;  // nn/prefix.h
}  // namespace tessera::nn

namespace tessera::models {

class WeightFile;  // models/hub/weight_file.h

// The tensor's name in the file.
inline constexpr std::string_view kPrefixEntry = "prompt_embeddings";

// Fields of adapter_config.json, by PEFT's names.
struct PrefixTuningConfig {
  int64_t num_virtual_tokens = 0;
  bool prefix_projection = false;   // a new one's numbers come from an nn::PrefixEncoder
  int64_t encoder_hidden_size = 0;  // 0: token_dim
  // What is said of the model; nullopt: nothing.
  std::optional<int64_t> num_layers = std::nullopt;
  std::optional<int64_t> num_attention_heads = std::nullopt;  // key/value heads
  std::optional<int64_t> token_dim = std::nullopt;            // of those, times the head size
  std::optional<int64_t> num_transformer_submodules = std::nullopt;  // 2 with an encoder

  static const OptionTable& Table();
};

// What a model (a pipeline's stage has some of it) got.
struct AttachedPrefix {
  struct Layer {
    nn::KeyValuePrefix* prefix;  // the first one with these slots
    int64_t slot;                // of its keys
  };
  std::vector<Layer> layers;
  std::vector<nn::Parameter*> parameters;  // uses of tied ones included
  std::string encoder;                     // the path of the nn::PrefixEncoder; "": none
};

// The configuration with what is known of a whole model. InvalidArgument for a family that takes no
// prefix, and where the configuration says otherwise, by the field's name.
StatusOr<PrefixTuningConfig> PrefixConfigFor(Model& whole, const PrefixTuningConfig& config);

// In its first state: Normal(1), or what a new encoder gives. `config` is PrefixConfigFor's of
// `whole`, the whole model in shape.
AttachedPrefix AttachPrefix(Model& model, Model& whole, const PrefixTuningConfig& config,
                            int adapter);

// The tensor of a file, held to the configuration. Failures name the file and the tensor.
StatusOr<Tensor> ReadPrefix(const WeightFile& file, const PrefixTuningConfig& config);
// Hands `write` each parameter with its whole numbers, for a prefix without an encoder.
void SpreadPrefix(const Tensor& embeddings, const AttachedPrefix& prefix,
                  const std::function<void(nn::Parameter*, const Tensor&)>& write);
// The other way round, of a whole model: `values` by the names of parameters that are not tied.
Tensor CollectPrefix(const AttachedPrefix& prefix, const PrefixTuningConfig& config,
                     const std::map<std::string, Tensor>& values);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_PREFIX_ADAPTER_H_
