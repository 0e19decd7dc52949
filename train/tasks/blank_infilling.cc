// Autoregressive blank infilling, GLM's way to learn from running text.
#include "data/masking/blank_infilling_dataset.h"
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

int Fit(const RunConfig&, const nlohmann::json& model) { return IsOfType(model, {"glm"}) ? 2 : 0; }

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

absl::StatusOr<TaskData> Open(const TaskInput& input) {
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
  TESSERA_ASSIGN_OR_RETURN(options.mask_id, input.NeedToken(tokenizer->mask_id(), "[MASK]"));
  TESSERA_ASSIGN_OR_RETURN(options.sentence_mask_id,
                           input.NeedToken(tokenizer->smask_id(), "[sMASK]"));
  TESSERA_ASSIGN_OR_RETURN(options.document_mask_id,
                           input.NeedToken(tokenizer->gmask_id(), "[gMASK]"));
  TESSERA_ASSIGN_OR_RETURN(options.sop_id,
                           input.NeedToken(tokenizer->sop_id(), "<|startofpiece|>"));
  TESSERA_ASSIGN_OR_RETURN(options.eop_id, input.NeedToken(tokenizer->eop_id(), "<|endofpiece|>"));
  TESSERA_ASSIGN_OR_RETURN(options.pad_id, input.NeedToken(tokenizer->pad_id(), "padding"));
  // As the tokenizer puts them around a prompt (data/tokenizer/sequence_pair.h).
  if (tokenizer->pair_style() == data::PairStyle::kGlm) {
    TESSERA_ASSIGN_OR_RETURN(options.cls_id, input.NeedToken(tokenizer->cls_id(), "[CLS]"));
    TESSERA_ASSIGN_OR_RETURN(options.eos_id, input.NeedToken(tokenizer->eos_id(), "end-of-text"));
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

const TaskKind kTask = {.name = "blank_infilling",
                        .help = "running text with blanks, and what fills them word by word",
                        .fit = Fit,
                        .options = &BlankOptions::Table(),
                        .open = Open,
                        .tokenizer_text = RunningTokenizerText};
const TaskRegistration registration(&kTask);

}  // namespace
}  // namespace tessera::train
