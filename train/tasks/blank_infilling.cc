// SPDX-License-Identifier: Apache-2.0
// Autoregressive blank infilling (Du et al. 2022): running text with blanks.
#include "base/options.h"
#include "data/masking/blank_infilling_dataset.h"
#include "models/family.h"
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

struct BlankOptions : RunningTextOptions {
  double sentence_mask_share = 0;
  double document_mask_share = 0.5;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<BlankOptions>("blank_infilling")
            .Include<BlankOptions, RunningTextOptions>()
            .Add("sentence_mask_share", &BlankOptions::sentence_mask_share,
                 "share of rows in which whole sentences are masked; others have short spans",
                 {.least = 0, .most = 1, .evaluation = true})
            .Add("document_mask_share", &BlankOptions::document_mask_share,
                 "share of rows of which the rest is masked",
                 {.least = 0, .most = 1, .evaluation = true}));
    return *table;
  }
};

int FitBlankInfilling(const RunConfig&, const models::Architecture*) { return 2; }

// Tokens after which a sentence is over, in Latin and in Chinese punctuation.
std::vector<bool> EndsSentence(const data::Tokenizer& tokenizer) {
  std::vector<bool> ends(static_cast<size_t>(tokenizer.vocab_size()), false);
  for (size_t id = 0; id < ends.size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(static_cast<int32_t>(id));
    for (const std::string_view mark : {".", "!", "?", "\n", "。", "！", "？", "；"}) {
      if (bytes.ends_with(mark)) ends[id] = true;
    }
  }
  return ends;
}

// Whether [CLS] is before a prompt and the end-of-text behind it (sequence_pair.h), and so
// around every text that is learnt from.
bool PromptsStandBetweenClsAndEos(const data::Tokenizer& tokenizer) {
  const data::RowTemplate* const row = tokenizer.row_template(/*pair=*/false);
  return tokenizer.prompts_are_rows() && row != nullptr && row->items.size() == 3 &&
         row->items[0].id == tokenizer.cls_id() && row->items[1].id == data::RowTemplate::kFirst &&
         row->items[2].id == tokenizer.eos_id();
}

StatusOr<TaskData> OpenBlankInfilling(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<BlankOptions>());
  if (keys.sentence_mask_share + keys.document_mask_share > 1) {
    return InvalidArgument("sentence_mask_share and document_mask_share are more than 1 together");
  }
  data::BlankInfillingOptions options = {.sentence_share = keys.sentence_mask_share,
                                         .document_share = keys.document_mask_share,
                                         .ends_sentence = EndsSentence(*tokenizer),
                                         .seed = static_cast<uint64_t>(config.seed)};
  const models::BlankTokens& blanks = *input.family.texts.blanks;
  TESSERA_ASSIGN_OR_RETURN(options.mask_id, input.NeedToken(blanks.span));
  TESSERA_ASSIGN_OR_RETURN(options.sentence_mask_id, input.NeedToken(blanks.sentence));
  TESSERA_ASSIGN_OR_RETURN(options.document_mask_id, input.NeedToken(blanks.document));
  TESSERA_ASSIGN_OR_RETURN(options.sop_id, input.NeedToken(blanks.start));
  TESSERA_ASSIGN_OR_RETURN(options.eop_id, input.NeedToken(blanks.end));
  TESSERA_ASSIGN_OR_RETURN(options.pad_id, input.NeedToken(tokenizer->pad_id(), "padding"));
  if (PromptsStandBetweenClsAndEos(*tokenizer)) {
    options.cls_id = *tokenizer->cls_id();
    options.eos_id = *tokenizer->eos_id();
  }
  TaskData data;
  data.seq_len = input.SeqLen(0);
  const int64_t window = data::WindowForBlanks(data.seq_len, options);
  if (window < 4) return InvalidArgument("seq_len ", data.seq_len, " leaves no room for text");
  TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
  for (const auto& [part, to] :
       {std::pair(&text.train, &data.train), {&text.validation, &data.validation}}) {
    TESSERA_ASSIGN_OR_RETURN(const auto windows, Windows(*part, window, input));
    if (windows == nullptr) continue;
    *to = std::make_shared<data::BlankInfillingDataset>(windows, options);
  }
  return data;
}

const TaskKind kBlankInfilling = {
    .name = "blank_infilling",
    .help = "running text with blanks, and what fills them word by word",
    .capability = models::Capability::kBlanks,
    .fit = FitBlankInfilling,
    .options = &BlankOptions::Table(),
    .open = OpenBlankInfilling,
    .tokenizer_text = RunningTokenizerText};
const TaskRegistration registered_blank_infilling(&kBlankInfilling);

}  // namespace
}  // namespace tessera::train
