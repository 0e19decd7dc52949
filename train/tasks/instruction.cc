// SPDX-License-Identifier: Apache-2.0
// Prompts and responses, with the rounds before them.
#include <algorithm>
#include <tuple>

#include "base/file.h"
#include "base/options.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "data/sequence_pairs/instruction_dataset.h"
#include "models/family.h"
#include "train/task.h"
#include "train/tasks/pair_options.h"
#include "train/tasks/written_texts.h"

namespace tessera::train {
namespace {

using data::InstructionDataset;

struct InstructionOptions : PairOptions {
  std::string prompt_column = "prompt";
  std::string response_column = "response";
  std::string input_column;
  std::string history_column;

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<InstructionOptions>("instruction")
                            .Include<InstructionOptions, PairOptions>()
                            .Add("prompt_column", &InstructionOptions::prompt_column,
                                 "member of each object with the prompt", {.evaluation = true})
                            .Add("response_column", &InstructionOptions::response_column,
                                 "member with the response", {.evaluation = true})
                            .Add("input_column", &InstructionOptions::input_column,
                                 "member with a text behind the prompt (Alpaca's `input`)",
                                 {.unset = "none", .evaluation = true})
                            .Add("history_column", &InstructionOptions::history_column,
                                 "member with the rounds before, a list of [question, answer]",
                                 {.unset = "none", .evaluation = true}));
    return *table;
  }
};

int FitInstruction(const RunConfig&, const models::Architecture*) { return 2; }

StatusOr<std::shared_ptr<const data::Dataset>> OpenInstructions(const TaskInput& input,
                                                                const std::string& path,
                                                                const char* name) {
  TESSERA_ASSIGN_OR_RETURN(const auto keys, input.config.Part<InstructionOptions>());
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  const models::Conversation& conversation = *input.family.texts.conversation;
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  TESSERA_ASSIGN_OR_RETURN(
      auto rows,
      InstructionDataset::Open(path, *tokenizer, JoinPath(input.cache, name),
                               {.prompt_column = keys.prompt_column,
                                .response_column = keys.response_column,
                                .input_column = keys.input_column,
                                .history_column = keys.history_column,
                                .join_history = conversation.join,
                                .answer_start = conversation.answer_start.find(*tokenizer),
                                .source_prefix = keys.source_prefix,
                                .max_source_length = keys.max_source_length,
                                .max_target_length = keys.max_target_length,
                                .every_record = input.prediction,
                                .overwrite_cache = input.config.overwrite_cache}));
  return std::shared_ptr<const data::Dataset>(std::move(rows));
}

StatusOr<TaskData> OpenInstruction(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<InstructionOptions>());
  if (config.seq_len) {
    return InvalidArgument(
        "seq_len is set; prompts and responses have max_source_length and "
        "max_target_length");
  }
  TaskData data;
  const int64_t longest = keys.max_source_length + keys.max_target_length;
  const int64_t positions = input.shape.positions_left();
  if (positions > 0 && longest > positions) {
    return InvalidArgument("max_source_length and max_target_length are ", longest,
                           " tokens together, more than the model's ", positions, " positions");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TESSERA_ASSIGN_OR_RETURN(const auto rows,
                           OpenInstructions(input, source, input.evaluation ? "val" : "train"));
  if (input.evaluation) {
    data.validation = rows;
  } else if (!config.Validation().empty()) {
    data.train = rows;
    TESSERA_ASSIGN_OR_RETURN(data.validation, OpenInstructions(input, config.Validation(), "val"));
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(rows, {.fraction = config.val_fraction, .from_end = true});
  }
  if (input.prediction) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> members, data::ColumnsOf(source));
    data.objective.labelled =
        std::find(members.begin(), members.end(), keys.response_column) != members.end();
  }
  TESSERA_RETURN_IF_ERROR(WriteTexts(input,
                                     {.max_new_tokens = keys.max_target_length,
                                      .num_beams = keys.num_beams,
                                      .answers_in_rows = true,
                                      .judged = keys.predict_with_generate || input.prediction,
                                      .shown = data.validation},
                                     &data));
  return data;
}

const TaskKind kInstruction = {.name = "instruction",
                               .help = "prompts and responses, with the rounds before them",
                               .capability = models::Capability::kAnswers,
                               .fit = FitInstruction,
                               .options = &InstructionOptions::Table(),
                               .open = OpenInstruction,
                               .predicts = true};
const TaskRegistration registered_instruction(&kInstruction);

}  // namespace
}  // namespace tessera::train
