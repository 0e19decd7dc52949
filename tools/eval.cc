// `tessera eval`: the loss of a model on data, and the metrics of its task.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "core/file.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/field_flags.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

struct EvalFlags {
  std::string model;
  int64_t batches = 0;
  FieldFlags fields;
  ComputeFlags compute;
};

// A directory for the tokenised text, gone with the command.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* base = std::getenv("TMPDIR");
    path_ = JoinPath(base != nullptr && *base != '\0' ? base : "/tmp",
                     Concat("tessera-eval-", getpid()));
  }
  ~ScratchDirectory() { RemoveAll(path_).IgnoreError(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "loss 0.412345  perplexity 1.5104  accuracy 0.8211  samples 872".
std::string Line(const train::RunSetup& setup, const train::EvaluationResult& found) {
  char text[64];
  std::snprintf(text, sizeof(text), "loss %.6f", found.loss);
  std::string line = text;
  if (setup.data.seq_len > 0 && found.metrics.empty()) {
    std::snprintf(text, sizeof(text), "  perplexity %.4f", std::exp(found.loss));
    line += text;
  }
  for (const auto& [name, value] : found.metrics.items()) {
    std::snprintf(text, sizeof(text), " %.4f", value.get<double>());
    line += "  " + name + text;
  }
  line += Concat("  samples ", setup.data.validation->size());
  if (setup.data.seq_len > 0) line += Concat("  tokens per sample ", setup.data.seq_len);
  return line + "\n";
}

Status RunEval(const CLI::App& command, const EvalFlags& flags) {
  train::RunConfig config;
  config.model = flags.model;
  TESSERA_RETURN_IF_ERROR(flags.fields.ApplyTo(command, &config));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags.compute));
  const ScratchDirectory scratch;
  TESSERA_ASSIGN_OR_RETURN(const train::RunSetup setup,
                           train::PrepareEvaluation(config, build, scratch.path()));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  TESSERA_ASSIGN_OR_RETURN(const train::EvaluationResult found,
                           trainer.Evaluate(*setup.data.validation, flags.batches));
  TESSERA_RETURN_IF_ERROR(WriteOut(Line(setup, found)));
  if (setup.data.objective.metrics == nullptr) return OkStatus();
  for (const std::string& sample : setup.data.objective.metrics->Samples(*setup.model)) {
    TESSERA_RETURN_IF_ERROR(WriteOut(sample + "\n"));
  }
  return OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("eval", "the loss and the metrics of a model on data");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("--model", flags->model, "a model folder")->required()->type_name("DIR");
  for (const Option* key : train::RunConfigKeys()) {
    if (key->notes.evaluation) flags->fields.Add(command, *key);
  }
  command->get_option("--data")->required();
  command->add_option("--batches", flags->batches, "at most so many batches (all)")->type_name("N");
  AddComputeFlags(command, &flags->compute);
  command->footer("Example:\n  tessera eval --model runs/book/model --data other.txt");
  command->callback([command, flags, &state] {
    state.run = [command, flags] { return RunEval(*command, *flags); };
  });
}

}  // namespace tessera::tools
