// Sources and targets for an encoder-decoder: translation, summaries, question and answer.
#include <algorithm>
#include <tuple>

#include "core/file.h"
#include "data/dataset/subset.h"
#include "data/sequence_pairs/sequence_pair_dataset.h"
#include "train/tasks/generation_metrics.h"

namespace tessera::train {
namespace {

using data::SequencePairDataset;

int Fit(const RunConfig& config, const models::Architecture*) {
  const bool pairs = !config.target_data.empty() || !config.source_column.empty() ||
                     EndsInOneOf(config.data, {".tsv"});
  return pairs ? 3 : 1;
}

absl::StatusOr<std::shared_ptr<const data::Dataset>> OpenPart(const TaskInput& input,
                                                              const std::string& source,
                                                              const std::string& target,
                                                              const char* name) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  data::SequencePairFiles files = {.source = source, .target = target};
  if (!config.source_column.empty()) files.source_column = config.source_column;
  if (!config.target_column.empty()) files.target_column = config.target_column;
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  TESSERA_ASSIGN_OR_RETURN(auto pairs,
                           SequencePairDataset::Open(files, *tokenizer, JoinPath(input.cache, name),
                                                     {.max_source_length = config.max_source_length,
                                                      .max_target_length = config.max_target_length,
                                                      .source_prefix = config.source_prefix,
                                                      .lower_case = config.lower_case,
                                                      .overwrite_cache = config.overwrite_cache}));
  return std::shared_ptr<const data::Dataset>(std::move(pairs));
}

absl::StatusOr<TaskData> Open(const TaskInput& input) {
  const RunConfig& config = input.config;
  if (config.seq_len > 0) {
    return InvalidArgument(
        "seq_len is set; sources and targets have max_source_length and "
        "max_target_length");
  }
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const int64_t eos_id,
                           input.NeedToken(tokenizer->eos_id(), "end-of-text"));
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(const auto pairs, OpenPart(input, config.data, config.target_data,
                                                      input.evaluation ? "val" : "train"));
  if (input.evaluation) {
    data.validation = pairs;
  } else if (!config.val_data.empty()) {
    data.train = pairs;
    TESSERA_ASSIGN_OR_RETURN(data.validation,
                             OpenPart(input, config.val_data, config.val_target_data, "val"));
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(pairs, {.fraction = config.val_fraction, .from_end = true});
  }
  if (config.predict_with_generate && data.validation != nullptr) {
    data.objective.metrics = GenerationMetrics(*tokenizer, data.validation,
                                               {.max_new_tokens = config.max_target_length,
                                                .num_beams = config.num_beams,
                                                .eos_id = eos_id});
  }
  return data;
}

const TaskKind kTask = {.name = "seq2seq",
                        .help = "sources and targets, line by line or from a table",
                        .capability = models::Capability::kTargetText,
                        .fit = Fit,
                        .keys = {"target_data", "val_target_data", "source_column", "target_column",
                                 "source_prefix", "lower_case", "max_source_length",
                                 "max_target_length", "predict_with_generate", "num_beams"},
                        .open = Open};
const TaskRegistration registration(&kTask);

}  // namespace
}  // namespace tessera::train
