// SPDX-License-Identifier: Apache-2.0
// Causal language modelling: running text, every token predicted from those before it.
#include "base/options.h"
#include "models/family.h"
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

struct CausalLmOptions : PackingOptions {
  bool reset_at_documents = false;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<CausalLmOptions>("causal_lm")
            .Include<CausalLmOptions, PackingOptions>()
            .Add("reset_at_documents", &CausalLmOptions::reset_at_documents,
                 "restart positions and mask attention at document borders", {.evaluation = true}));
    return *table;
  }
};

int FitCausalLm(const RunConfig&, const models::Architecture*) { return 1; }

StatusOr<TaskData> OpenCausalLm(const TaskInput& input) {
  const int64_t seq_len = input.SeqLen(0);
  if (seq_len == 0) return InvalidArgument("this model has no seq_len of its own; give one");
  TESSERA_ASSIGN_OR_RETURN(const auto options, input.config.Part<CausalLmOptions>());
  if (options.reset_at_documents && !options.packing) {
    return InvalidArgument("reset_at_documents is set, which needs packing (it is false)");
  }
  TESSERA_ASSIGN_OR_RETURN(const TextParts text,
                           OpenRunningText(input, DocumentBegin::kTokenizers));
  TaskData data;
  for (const auto& [part, to] :
       {std::pair(&text.train, &data.train), {&text.validation, &data.validation}}) {
    TESSERA_ASSIGN_OR_RETURN(*to, Windows(*part, seq_len, input,
                                          {.packing = options.packing,
                                           .reset_at_documents = options.reset_at_documents}));
  }
  data.seq_len = seq_len;
  return data;
}

const TaskKind kCausalLm = {.name = "causal_lm",
                            .help = "running text, every token predicted from those before it",
                            .capability = models::Capability::kNextToken,
                            .fit = FitCausalLm,
                            .options = &CausalLmOptions::Table(),
                            .open = OpenCausalLm,
                            .tokenizer_text = RunningTokenizerText};
const TaskRegistration registered_causal_lm(&kCausalLm);

}  // namespace
}  // namespace tessera::train
