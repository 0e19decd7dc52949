// Prompts and responses, with the rounds before them.
#include <tuple>

#include "core/file.h"
#include "data/dataset/subset.h"
#include "data/sequence_pairs/instruction_dataset.h"
#include "train/task.h"

namespace tessera::train {
namespace {

using data::InstructionDataset;

int Fit(const RunConfig&, const models::Architecture*) { return 2; }

absl::StatusOr<std::shared_ptr<const data::Dataset>> OpenPart(const TaskInput& input,
                                                              const std::string& path,
                                                              const char* name) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  const models::Conversation& conversation = *input.family.texts.conversation;
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  TESSERA_ASSIGN_OR_RETURN(
      auto rows,
      InstructionDataset::Open(path, *tokenizer, JoinPath(input.cache, name),
                               {.prompt_column = config.prompt_column,
                                .response_column = config.response_column,
                                .input_column = config.input_column,
                                .history_column = config.history_column,
                                .join_history = conversation.join,
                                .answer_start = conversation.answer_start.find(*tokenizer),
                                .source_prefix = config.source_prefix,
                                .max_source_length = config.max_source_length,
                                .max_target_length = config.max_target_length,
                                .overwrite_cache = config.overwrite_cache}));
  return std::shared_ptr<const data::Dataset>(std::move(rows));
}

absl::StatusOr<TaskData> Open(const TaskInput& input) {
  const RunConfig& config = input.config;
  if (config.seq_len > 0) {
    return InvalidArgument(
        "seq_len is set; prompts and responses have max_source_length and "
        "max_target_length");
  }
  TaskData data;
  const int64_t longest = config.max_source_length + config.max_target_length;
  const int64_t positions = input.shape.max_positions();
  if (positions > 0 && longest > positions) {
    return InvalidArgument("max_source_length and max_target_length are ", longest,
                           " tokens together, more than the model's ", positions, " positions");
  }
  TESSERA_ASSIGN_OR_RETURN(const auto rows,
                           OpenPart(input, config.data, input.evaluation ? "val" : "train"));
  if (input.evaluation) {
    data.validation = rows;
  } else if (!config.val_data.empty()) {
    data.train = rows;
    TESSERA_ASSIGN_OR_RETURN(data.validation, OpenPart(input, config.val_data, "val"));
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(rows, {.fraction = config.val_fraction, .from_end = true});
  }
  return data;
}

const TaskKind kTask = {
    .name = "instruction",
    .help = "prompts and responses, with the rounds before them",
    .capability = models::Capability::kAnswers,
    .fit = Fit,
    .keys = {"prompt_column", "response_column", "input_column", "history_column", "source_prefix",
             "max_source_length", "max_target_length"},
    .open = Open};
const TaskRegistration registration(&kTask);

}  // namespace
}  // namespace tessera::train
