// SPDX-License-Identifier: Apache-2.0
// Span corruption: running text of which an encoder-decoder gives back what was taken out.
#include "base/options.h"
#include "data/masking/span_corruption_dataset.h"
#include "models/family.h"
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

struct SpanOptions : RunningTextOptions {
  double noise_density = 0.15;
  double mean_noise_span_length = 3;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<SpanOptions>("span_corruption")
            .Include<SpanOptions, RunningTextOptions>()
            .Add("noise_density", &SpanOptions::noise_density, "share of the tokens taken out",
                 {.above = 0, .below = 1, .evaluation = true})
            .Add("mean_noise_span_length", &SpanOptions::mean_noise_span_length,
                 "mean length of a span", {.least = 1, .evaluation = true}));
    return *table;
  }
};

constexpr int64_t kSpanRow = 512;  // where the model has no positions of its own

int FitSpanCorruption(const RunConfig&, const models::Architecture*) { return 2; }

StatusOr<TaskData> OpenSpanCorruption(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TaskData data;
  data.seq_len = input.SeqLen(kSpanRow);
  if (data.seq_len < 4)
    return InvalidArgument("seq_len ", data.seq_len, " leaves no room for text");
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<SpanOptions>());
  const data::SpanCorruptionLengths lengths =
      data::LengthsForInput(data.seq_len, keys.noise_density, keys.mean_noise_span_length);
  data::SpanCorruptionOptions options = {.sentinels = {},
                                         .noise_density = keys.noise_density,
                                         .mean_span_length = keys.mean_noise_span_length,
                                         .seed = static_cast<uint64_t>(config.seed)};
  TESSERA_ASSIGN_OR_RETURN(options.eos_id, input.NeedToken(tokenizer->eos_id(), "end-of-text"));
  for (int64_t i = 0; i < lengths.spans; ++i) {
    const std::string name = input.family.texts.sentinel(i);
    TESSERA_ASSIGN_OR_RETURN(const int64_t id, input.NeedToken(tokenizer->FindSpecial(name), name));
    options.sentinels.push_back(id);
  }
  TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
  for (const auto& [part, to] :
       {std::pair(&text.train, &data.train), {&text.validation, &data.validation}}) {
    TESSERA_ASSIGN_OR_RETURN(const auto windows, Windows(*part, lengths.text, input));
    if (windows == nullptr) continue;
    *to = std::make_shared<data::SpanCorruptionDataset>(windows, options);
  }
  return data;
}

const TaskKind kSpanCorruption = {
    .name = "span_corruption",
    .help = "running text, spans of which are taken out and given back",
    .capability = models::Capability::kCorruptedSpans,
    .fit = FitSpanCorruption,
    .options = &SpanOptions::Table(),
    .open = OpenSpanCorruption,
    .tokenizer_text = RunningTokenizerText};
const TaskRegistration registered_span_corruption(&kSpanCorruption);

}  // namespace
}  // namespace tessera::train
