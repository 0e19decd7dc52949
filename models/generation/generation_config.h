// SPDX-License-Identifier: Apache-2.0
// How a model continues a text.
//
//   TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ReadGenerationConfig("gpt2-folder"));
//   config.max_new_tokens = 50;
//   config.do_sample = true;
//   config.temperature = 0.8;
//   TESSERA_RETURN_IF_ERROR(config.Validate());
//
// Fields are named as in Hugging Face's generation_config.json and mean what they mean there, but
// for two defaults: top_k is off unless the file asks for it, and the length is limited by
// max_new_tokens.
#ifndef TESSERA_MODELS_GENERATION_GENERATION_CONFIG_H_
#define TESSERA_MODELS_GENERATION_GENERATION_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/options.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

inline constexpr int64_t kDefaultNewTokens = 100;

struct GenerationConfig {
  // Absent: what max_length leaves, else kDefaultNewTokens, and never more than fit the model. 0 is
  // for a prompt that is only scored (models/generation/continuous_batch.h).
  std::optional<int64_t> max_new_tokens = {};
  std::optional<int64_t> max_length = {};   // of prompt and new tokens together
  bool do_sample = false;                   // false: the most likely token (the first of equals)
  double temperature = 1.0;                 // > 0 where do_sample
  int64_t top_k = 0;                        // 0: off
  double top_p = 1.0;                       // in [0, 1]; 1: off, 0: the likeliest token
  double min_p = 0.0;                       // in [0, 1]; 0: off (Nguyen et al. 2024)
  double typical_p = 1.0;                   // in (0, 1]; 1: off (Meister et al. 2022)
  double epsilon_cutoff = 0.0;              // in [0, 1); 0: off (Hewitt et al. 2022)
  double eta_cutoff = 0.0;                  // in [0, 1); 0: off (Hewitt et al. 2022)
  double repetition_penalty = 1.0;          // > 0; 1: off (Keskar et al. 2019)
  double encoder_repetition_penalty = 1.0;  // > 0; 1: off; above 1 favours the prompt's tokens
  // OpenAI's: subtracted from the scores of the tokens that were written, once, and as often as
  // they were. What the prompt says does not count, as in vLLM. 0: off.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  // Added to the scores of tokens, by id (OpenAI's logit_bias).
  std::map<int64_t, double> logit_bias = {};
  // Tokens that are never written, those that are not written first, and words (lists of tokens)
  // that are not completed. Of all three, ids beyond the vocabulary mean nothing.
  std::vector<int64_t> suppress_tokens = {};
  std::vector<int64_t> begin_suppress_tokens = {};
  std::vector<std::vector<int64_t>> bad_words_ids = {};
  // No run of so many tokens comes twice in prompt and new tokens; 0: any may.
  int64_t no_repeat_ngram_size = 0;
  // The text does not end before it has so many new tokens; absent: before prompt and new tokens
  // together are min_length.
  std::optional<int64_t> min_new_tokens = {};
  int64_t min_length = 0;
  // The token that follows a first one, and those of which one is the last of the longest text.
  // A grammar comes before them.
  std::optional<int64_t> forced_bos_token_id = {};
  std::vector<int64_t> forced_eos_token_ids = {};
  int64_t num_beams = 1;
  double length_penalty = 1.0;
  // Beam search ends a row when it has num_beams finished texts (true), or when no beam can become
  // better than the worst of them.
  bool early_stopping = false;
  // Texts of each prompt: samples, or the best that the beams have found, the best first.
  int64_t num_return_sequences = 1;
  std::optional<int64_t> bos_token_id = {};
  // What the text of a decoder beside an encoder begins with; absent: the model's.
  std::optional<int64_t> decoder_start_token_id = {};
  std::vector<int64_t> eos_token_ids = {};
  // Text at whose first appearance a row ends; it is cut off, and what follows.
  std::vector<std::string> stop_strings = {};
  int64_t seed = 0;

  // What a file asks for that changes the text and is not supported ("'guidance_scale': 1.5"): the
  // text is written without it, and whoever read the file says so (NotApplied).
  std::vector<std::string> not_applied = {};
  std::string not_applied_file = "generation_config.json";  // that asks for it

  // Every setting: its key, help, range and other systems' names. Flags of `tessera generate`,
  // fields of HTTP requests, settings of the C library, generation_config.json and the pages are
  // made from it.
  static const OptionTable& Table();
  // Ranges and settings that exclude one another; names the field.
  Status Validate() const;
};

// A setting of transformers that changes the text and is not here. Whoever asks for it is refused;
// a file that has it is read without it.
struct UnsupportedSetting {
  std::string key;
  JsonMember neutral;     // the value that asks for nothing, beside null and an empty list
  std::string what = {};  // that it asks for, where its name does not say so

  std::string Reason() const;  // "contrastive search is not supported"
};
const std::vector<UnsupportedSetting>& UnsupportedSettings();

// Reads the settings of a JSON object over `config`'s. A key that would change the text and is not
// supported goes to `not_applied` (at its neutral value it says nothing); others are passed over.
// `source` begins messages.
Status ApplyGenerationJson(const nlohmann::json& json, const std::string& source,
                           GenerationConfig* config);

// One line for a person: "DIR/generation_config.json: 'guidance_scale': 1.5 is not supported and
// not applied"; empty where all is.
std::string NotApplied(const std::string& folder, const GenerationConfig& config);

// What a caller asks for over a model's defaults: an object of settings by their keys; the others
// stay as they are there. Asking for a temperature, top-k, top-p, min-p, typical-p or a cutoff asks
// for sampling, unless `do_sample` says otherwise. At a temperature of 0, which a file may have,
// too, the likeliest token is taken, whatever else asks for sampling. Beams do without the sampling
// that a file asks for. A file's `num_return_sequences` counts as far as there may be several
// texts. Refuses what Validate refuses.
//
//   WithSettings(defaults, {{"temperature", 0.8}, {"top_k", 40}})
StatusOr<GenerationConfig> WithSettings(GenerationConfig defaults, const nlohmann::json& asked);

// The defaults of a model, as transformers takes them: `folder`/generation_config.json; where there
// is none, or it says `_from_model_config`, also the settings in `model_config`, the folder's
// config.json. Of a preset, which has no folder, the token ids count alone. The tokens that a text
// begins and ends with are those of `model_config` where the file leaves them out (transformers
// ends no text then; servers do).
StatusOr<GenerationConfig> ReadGenerationConfig(const std::string& folder,
                                                const nlohmann::json& model_config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_GENERATION_CONFIG_H_
