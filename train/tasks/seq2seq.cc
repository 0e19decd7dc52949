// SPDX-License-Identifier: Apache-2.0
// Sources and targets for an encoder-decoder: translation, summaries, question and answer.
#include <algorithm>
#include <tuple>

#include "base/file.h"
#include "base/options.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "data/sequence_pairs/sequence_pair_dataset.h"
#include "models/family.h"
#include "train/tasks/pair_options.h"
#include "train/tasks/written_texts.h"

namespace tessera::train {
namespace {

using data::SequencePairDataset;

struct Seq2SeqOptions : PairOptions {
  std::string target_data;  // beside `data`, line by line
  std::string val_target_data;
  std::string source_column;
  std::string target_column;
  bool lower_case = false;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Seq2SeqOptions>("seq2seq")
            .Include<Seq2SeqOptions, PairOptions>()
            .Add("target_data", &Seq2SeqOptions::target_data,
                 "the targets, line by line, of `data`",
                 {.type = "FILE", .changes_results = false, .evaluation = true})
            .Add("val_target_data", &Seq2SeqOptions::val_target_data, "the targets of `val_data`",
                 {.type = "FILE", .needs = {{{"val_data"}}}, .changes_results = false})
            .Add("source_column", &Seq2SeqOptions::source_column,
                 "column of the source, of a table (`.tsv`, `.csv`, `.jsonl`, `.json`, `.parquet`, "
                 "`.arrow`); `translation.en` is a member of one",
                 {.evaluation = true})
            .Add("target_column", &Seq2SeqOptions::target_column, "column of the target",
                 {.evaluation = true})
            .Add("lower_case", &Seq2SeqOptions::lower_case, "sources and targets in lower case",
                 {.evaluation = true}));
    return *table;
  }
};

int FitSeq2Seq(const RunConfig& config, const models::Architecture*) {
  const bool pairs = config.IsSet("target_data") || config.IsSet("source_column") ||
                     data::HasHeader(config.Sources()[0].path);
  return pairs ? 3 : 1;
}

StatusOr<std::shared_ptr<const data::Dataset>> OpenPairs(const TaskInput& input,
                                                         const std::string& source,
                                                         const std::string& target,
                                                         const char* name,
                                                         bool sources_only = false) {
  TESSERA_ASSIGN_OR_RETURN(const auto keys, input.config.Part<Seq2SeqOptions>());
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  data::SequencePairFiles files = {
      .source = source, .target = target, .sources_only = sources_only};
  if (!keys.source_column.empty()) files.source_column = keys.source_column;
  if (!keys.target_column.empty()) files.target_column = keys.target_column;
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  TESSERA_ASSIGN_OR_RETURN(
      auto pairs, SequencePairDataset::Open(files, *tokenizer, JoinPath(input.cache, name),
                                            {.max_source_length = keys.max_source_length,
                                             .max_target_length = keys.max_target_length,
                                             .source_prefix = keys.source_prefix,
                                             .lower_case = keys.lower_case,
                                             .overwrite_cache = input.config.overwrite_cache}));
  return std::shared_ptr<const data::Dataset>(std::move(pairs));
}

// Whether data to predict have targets beside their sources.
StatusOr<bool> HasTargets(const Seq2SeqOptions& keys, const std::string& source) {
  if (!keys.target_data.empty() || !keys.target_column.empty()) return true;
  if (!data::IsTable(source)) return false;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> columns, data::ColumnsOf(source));
  const std::string target = data::SequencePairFiles().target_column;
  if (std::find(columns.begin(), columns.end(), target) == columns.end()) return false;
  return data::HoldValues(source, {target});
}

StatusOr<TaskData> OpenSeq2Seq(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<Seq2SeqOptions>());
  if (config.seq_len) {
    return InvalidArgument(
        "seq_len is set; sources and targets have max_source_length and "
        "max_target_length");
  }
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const int64_t eos_id,
                           input.NeedToken(tokenizer->eos_id(), "end-of-text"));
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  if (input.prediction) {
    TESSERA_ASSIGN_OR_RETURN(data.objective.labelled, HasTargets(keys, source));
  }
  TESSERA_ASSIGN_OR_RETURN(const auto pairs, OpenPairs(input, source, keys.target_data,
                                                       input.evaluation ? "val" : "train",
                                                       /*sources_only=*/!data.objective.labelled));
  if (input.evaluation) {
    data.validation = pairs;
  } else if (!config.Validation().empty()) {
    data.train = pairs;
    TESSERA_ASSIGN_OR_RETURN(data.validation,
                             OpenPairs(input, config.Validation(), keys.val_target_data, "val"));
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(pairs, {.fraction = config.val_fraction, .from_end = true});
  }
  TESSERA_RETURN_IF_ERROR(WriteTexts(input,
                                     {.max_new_tokens = keys.max_target_length,
                                      .num_beams = keys.num_beams,
                                      .eos_ids = {eos_id},
                                      .judged = keys.predict_with_generate || input.prediction,
                                      .shown = data.validation},
                                     &data));
  return data;
}

TokenizerText PairsText(const RunConfig& config) {
  TokenizerText text = {.paths = {config.Sources()[0].path}};
  const auto keys = config.Part<Seq2SeqOptions>();
  if (keys.ok() && !keys->target_data.empty()) text.paths.push_back(keys->target_data);
  return text;
}

const TaskKind kSeq2Seq = {.name = "seq2seq",
                           .help = "sources and targets, line by line or from a table",
                           .capability = models::Capability::kTargetText,
                           .fit = FitSeq2Seq,
                           .options = &Seq2SeqOptions::Table(),
                           .open = OpenSeq2Seq,
                           .predicts = true,
                           .tokenizer_text = PairsText};
const TaskRegistration registered_seq2seq(&kSeq2Seq);

}  // namespace
}  // namespace tessera::train
