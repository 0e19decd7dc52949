// SPDX-License-Identifier: Apache-2.0
// What sentence-transformers (versions 2 to 6) writes beside a model: what is put before a text,
// where it is cut, and what becomes of the model's hidden states.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto modules, SentenceModules::OfFolder("all-MiniLM-L6-v2"));
//   modules->max_tokens;   // 256
//   modules->steps;        // mean, length 1
//
// modules.json lists them, and is followed: a Transformer, then any of Pooling, Dense and
// Normalize, each at the path it names. sentence_bert_config.json and
// config_sentence_transformers.json tell the rest.
#ifndef TESSERA_MODELS_OPEN_SENTENCE_MODULES_H_
#define TESSERA_MODELS_OPEN_SENTENCE_MODULES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "nn/activation.h"

namespace tessera::models {

// How the hidden states of a text's tokens become one vector.
enum class Pooling {
  kMean,
  kFirst,
  kLast,
  kPooler,          // what a model's own pooler makes of the first token
  kMax,             // of each feature
  kMeanSqrtLength,  // the sum over the root of the number of tokens
  kWeightedMean,    // token t counts t times
};

// One module behind the model.
struct SentenceStep {
  enum class Kind { kPool, kDense, kNormalise };
  Kind kind = Kind::kPool;
  // The tokens' vectors are changed, not the text's (Dense and Normalize before Pooling).
  bool of_tokens = false;
  // Pooling: one behind the other in the vector.
  std::vector<Pooling> pooling = {Pooling::kMean};
  bool include_prompt = true;  // tokens of the prompt count
  // Dense: activation(x W^T + b), and x or x R^T besides where it is residual. On the CPU, float32.
  Tensor weight = {};  // [out, in]
  Tensor bias = {};    // [out], or none
  bool residual = false;
  Tensor residual_weight = {};  // [out, in], or none
  nn::Activation activation = nullptr;

  // Numbers that it makes of so many.
  int64_t SizeOf(int64_t size) const;
};

struct SentenceModules {
  std::string model_path = "";  // of the Transformer in the folder; "": the folder itself
  bool classifies = false;      // the Transformer is a classifier: a cross-encoder
  int64_t max_tokens = 0;       // special ones included; 0: as many as tokenizer and model say
  bool lower_case = false;      // texts are made so before they are cut into tokens
  std::string activation = "";  // of a cross-encoder's score, by PyTorch's name
  std::vector<SentenceStep> steps = {};
  std::map<std::string, std::string> prompts = {};  // by their names
  std::string prompt_name = "";                     // of the one that texts get; "": none
  int64_t dimensions = 0;  // of a vector, the first of what the steps make; 0: all

  // nullopt for a folder without modules.json (or 1_Pooling, with which vectors have length 1).
  // InvalidArgument, with file and key, for a module or a setting that is not supported. Where
  // `hides_paths`, messages name files within the folder.
  static StatusOr<std::optional<SentenceModules>> OfFolder(const std::string& folder,
                                                           bool hides_paths = false);
};

// Where the model lies in a folder whose modules.json places it in a folder of its own, which
// sentence-transformers did at first ("0_Transformer"); else the folder.
std::string TransformerFolder(const std::string& folder);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_SENTENCE_MODULES_H_
