// Causal language modelling: running text, every token predicted from those before it.
#include "train/tasks/running_text.h"

namespace tessera::train {
namespace {

int Fit(const RunConfig&, const models::Architecture*) { return 1; }

absl::StatusOr<TaskData> Open(const TaskInput& input) {
  const int64_t seq_len = input.SeqLen(0);
  if (seq_len == 0) return InvalidArgument("this model has no seq_len of its own; give one");
  TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(data.train, Windows(text.train, seq_len, input));
  TESSERA_ASSIGN_OR_RETURN(data.validation, Windows(text.validation, seq_len, input));
  data.seq_len = seq_len;
  return data;
}

const TaskKind kTask = {.name = "causal_lm",
                        .help = "running text, every token predicted from those before it",
                        .capability = models::Capability::kNextToken,
                        .fit = Fit,
                        .keys = {"json_key", "reset_at_documents"},
                        .open = Open};
const TaskRegistration registration(&kTask);

}  // namespace
}  // namespace tessera::train
