// SPDX-License-Identifier: Apache-2.0
// Masked language modelling: running text with tokens to be guessed from both sides.
#include "base/options.h"
#include "data/masking/masked_language_dataset.h"
#include "models/family.h"
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

struct MaskedLmOptions : PackingOptions {
  double mlm_probability = 0.15;
  bool whole_word_mask = false;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<MaskedLmOptions>("masked_lm")
            .Include<MaskedLmOptions, PackingOptions>()
            .Add("mlm_probability", &MaskedLmOptions::mlm_probability,
                 "share of the tokens to guess", {.above = 0, .below = 1, .evaluation = true})
            .Add("whole_word_mask", &MaskedLmOptions::whole_word_mask, "words are masked whole",
                 {.evaluation = true}));
    return *table;
  }
};

constexpr int64_t kMaskedRow = 512;  // where the model has no positions of its own

int FitMaskedLm(const RunConfig&, const models::Architecture* now) {
  return now != nullptr && now->Does(models::Capability::kTextLabels) ? 1 : 2;
}

// What begins a word has a blank in front, in WordPiece's bytes as in byte-level BPE's.
std::vector<bool> ContinuesWord(const data::Tokenizer& tokenizer) {
  std::vector<bool> continues(static_cast<size_t>(tokenizer.vocab_size()), false);
  for (size_t id = 0; id < continues.size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(static_cast<int32_t>(id));
    continues[id] = !bytes.starts_with(' ') && !bytes.starts_with('\n');
  }
  return continues;
}

StatusOr<TaskData> OpenMaskedLm(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<MaskedLmOptions>());
  data::MaskedLanguageOptions options = {.probability = keys.mlm_probability,
                                         .seed = static_cast<uint64_t>(config.seed)};
  TESSERA_ASSIGN_OR_RETURN(options.mask_id, input.NeedToken(tokenizer->mask_id(), "mask"));
  TESSERA_ASSIGN_OR_RETURN(options.cls_id, input.NeedToken(tokenizer->cls_id(), "classification"));
  TESSERA_ASSIGN_OR_RETURN(options.sep_id, input.NeedToken(tokenizer->sep_id(), "separator"));
  options.vocab_size = tokenizer->vocab_size();
  if (!keys.packing) {
    TESSERA_ASSIGN_OR_RETURN(options.pad_id, input.NeedToken(tokenizer->pad_id(), "padding"));
  }
  for (const data::SpecialToken& token : tokenizer->special_tokens()) {
    options.special_ids.push_back(token.id);
  }
  // Nor is any put into a text that the model has no row for.
  for (int64_t id = input.shape.vocab_size(); id < options.vocab_size; ++id) {
    options.special_ids.push_back(id);
  }
  if (keys.whole_word_mask) options.continues_word = ContinuesWord(*tokenizer);
  TaskData data;
  data.seq_len = input.SeqLen(kMaskedRow);
  if (data.seq_len < 3)
    return InvalidArgument("seq_len ", data.seq_len, " leaves no room for text");
  TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
  for (const auto& [part, to] :
       {std::pair(&text.train, &data.train), {&text.validation, &data.validation}}) {
    TESSERA_ASSIGN_OR_RETURN(const auto windows,
                             Windows(*part, data.seq_len - 2, input, {.packing = keys.packing}));
    if (windows == nullptr) continue;
    *to = std::make_shared<data::MaskedLanguageDataset>(windows, options);
  }
  return data;
}

const TaskKind kMaskedLm = {.name = "masked_lm",
                            .help = "running text with tokens to be guessed",
                            .capability = models::Capability::kMaskedTokens,
                            .fit = FitMaskedLm,
                            .options = &MaskedLmOptions::Table(),
                            .open = OpenMaskedLm,
                            .tokenizer_text = RunningTokenizerText};
const TaskRegistration registered_masked_lm(&kMaskedLm);

}  // namespace
}  // namespace tessera::train
