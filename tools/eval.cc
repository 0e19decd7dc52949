// `tessera eval`: the loss of a model on text.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "core/file.h"
#include "data/dataset/indexed_dataset.h"
#include "models/hub/load_model.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

struct EvalFlags {
  std::string model;
  std::string data;
  std::string tokenizer;
  std::string json_key = "text";
  int64_t seq_len = 0;
  int64_t batch_size = 8;
  int64_t batches = 0;
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

absl::Status RunEval(const EvalFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags.compute));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<models::Model> model,
      models::LoadModel(flags.model, {.build = build, .require_weights = true}));
  TESSERA_RETURN_IF_ERROR(train::CheckIsCausal(*model));
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!data::IndexedDatasetPrefix(flags.data)) {
    TESSERA_ASSIGN_OR_RETURN(
        tokenizer, data::LoadTokenizer(flags.tokenizer.empty() ? flags.model : flags.tokenizer));
  }
  train::RunConfig config;
  config.batch_size = flags.batch_size;
  config.seq_len = flags.seq_len > 0 ? flags.seq_len : model->max_positions();
  TESSERA_RETURN_IF_ERROR(config.Validate());
  if (model->max_positions() > 0 && config.seq_len > model->max_positions()) {
    return InvalidArgument("--seq-len ", config.seq_len, " is longer than the model's ",
                           model->max_positions(), " positions");
  }
  const ScratchDirectory scratch;
  TESSERA_ASSIGN_OR_RETURN(
      const auto dataset,
      train::OpenEvaluationData(flags.data, tokenizer.get(), JoinPath(scratch.path(), "data"),
                                config.seq_len, model->vocab_size(), flags.json_key));
  train::Trainer trainer(config, *model, dataset, nullptr);
  TESSERA_ASSIGN_OR_RETURN(const double loss, trainer.EvaluateLoss(*dataset, flags.batches));
  char line[160];
  std::snprintf(line, sizeof(line),
                "loss %.6f  perplexity %.4f  samples %ld  tokens per sample %ld\n", loss,
                std::exp(loss), dataset->size(), config.seq_len);
  return WriteOut(line);
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("eval", "the loss and perplexity of a model on text");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("--model", flags->model, "a model folder")->required()->type_name("DIR");
  command->add_option("--data", flags->data, "a text file, a directory or an indexed dataset")
      ->required()
      ->type_name("PATH");
  command->add_option("--tokenizer", flags->tokenizer, "a folder or 'byte' (the model's own)")
      ->type_name("DIR");
  command->add_option("--json-key", flags->json_key, "member of JSON lines that holds the text")
      ->type_name("KEY");
  command->add_option("--seq-len", flags->seq_len, "tokens per row (the model's positions)")
      ->type_name("N");
  command->add_option("--batch-size", flags->batch_size, "rows per forward pass (8)")
      ->type_name("N");
  command->add_option("--batches", flags->batches, "at most so many batches (all)")->type_name("N");
  AddComputeFlags(command, &flags->compute);
  command->footer("Example:\n  tessera eval --model runs/book/model --data other.txt");
  command->callback([flags, &state] { state.run = [flags] { return RunEval(*flags); }; });
}

}  // namespace tessera::tools
