// SPDX-License-Identifier: Apache-2.0
// What sentence-transformers writes beside a model (models/open/sentence_modules.h).
#include <string>
#include <string_view>
#include <vector>

#include "models/open/sentence_modules.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"modules.json", "config_sentence_transformers.json",
                          "sentence_bert_config.json", "config.json"});
  const auto modules = models::SentenceModules::OfFolder(folder.path());
  models::TransformerFolder(folder.path());
  return modules.ok() && modules->has_value();
}

std::vector<std::string> Seeds() {
  // Pooling's settings are in the folder that its path names: this one.
  const std::string list =
      R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},)"
      R"( {"idx": 1, "name": "1", "path": "", "type": "sentence_transformers.models.Pooling"},)"
      R"( {"idx": 2, "name": "2", "path": "2", "type": "sentence_transformers.models.Normalize"}])";
  const std::string pooling =
      R"({"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true})";
  return {Joined({list, R"({"prompts": {"query": "q: "}, "default_prompt_name": "query"})",
                  R"({"max_seq_length": 64, "do_lower_case": true})", pooling})};
}

const FuzzTargetRegistration registration(
    {.name = "sentence_modules",
     .run = Run,
     .seeds = Seeds,
     .words = {std::string(kFileEnd), "sentence_transformers.models.Dense", "pooling_mode",
               "pooling_mode_weightedmean_tokens", "../x", "activation_function", "in_features",
               "include_prompt", "null", "true"}});

}  // namespace
}  // namespace tessera::fuzz
