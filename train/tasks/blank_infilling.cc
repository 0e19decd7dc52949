// Autoregressive blank infilling, GLM's way to learn from running text.
#include "data/masking/blank_infilling_dataset.h"
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

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
  data::BlankInfillingOptions options = {.sentence_share = config.sentence_mask_share,
                                         .document_share = config.document_mask_share,
                                         .ends_sentence = EndsSentence(*tokenizer),
                                         .seed = static_cast<uint64_t>(config.seed)};
  const auto need = [&](const char* name, int64_t* id) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(*id, input.NeedToken(tokenizer->FindSpecial(name), name));
    return absl::OkStatus();
  };
  TESSERA_RETURN_IF_ERROR(need("[MASK]", &options.mask_id));
  TESSERA_RETURN_IF_ERROR(need("[sMASK]", &options.sentence_mask_id));
  TESSERA_RETURN_IF_ERROR(need("[gMASK]", &options.document_mask_id));
  TESSERA_RETURN_IF_ERROR(need("<|startofpiece|>", &options.sop_id));
  TESSERA_RETURN_IF_ERROR(need("<|endofpiece|>", &options.eop_id));
  TESSERA_ASSIGN_OR_RETURN(options.pad_id, input.NeedToken(tokenizer->pad_id(), "padding"));
  if (tokenizer->cls_id()) options.cls_id = *tokenizer->cls_id();
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
                        .keys = {"json_key", "sentence_mask_share", "document_mask_share"},
                        .open = Open};
const TaskRegistration registration(&kTask);

}  // namespace
}  // namespace tessera::train
