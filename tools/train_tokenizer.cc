// SPDX-License-Identifier: Apache-2.0
// `tessera train-tokenizer`: a tokenizer from text.
#include "data/tokenizer_training/train_tokenizer.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"

namespace tessera::tools {
namespace {

struct TrainTokenizerFlags : data::TokenizerTrainingOptions {
  std::vector<std::string> input;
  std::string output;
};

// The library asks for memory on threads of its own, where nobody could catch that there is none.
// Nothing is written before it has ended.
[[noreturn]] void EndWithoutMemory() {
  static std::atomic_flag said;
  while (said.test_and_set()) pause();  // another thread says it, and ends the process
  constexpr std::string_view kLine =
      "error: train-tokenizer: out of memory; take less text (with SentencePiece, "
      "--max-sentences)\n";
  static_cast<void>(!write(STDERR_FILENO, kLine.data(), kLine.size()));
  _exit(1);
}

Status RunTrainTokenizer(const TrainTokenizerFlags& flags) {
  TESSERA_RETURN_IF_ERROR(RefuseStandardOutput("--output", flags.output));
  std::set_new_handler(EndWithoutMemory);
  TESSERA_ASSIGN_OR_RETURN(const data::TokenizerTrainingResult result,
                           data::TrainTokenizer(flags.input, flags.output, flags));
  const bool fewer = result.num_pieces < flags.vocab_size;
  return WriteOut(Concat(
      flags.output, "/", result.model_file, ": ", WithThousands(result.num_pieces), " pieces from ",
      WithThousands(result.num_texts), result.of_lines ? " line" : " document",
      result.num_texts == 1 ? "; " : "s; ", WithThousands(result.num_ids), " ids",
      fewer ? "; fewer than asked for, since no other pair comes often enough" : "", "\n"));
}

}  // namespace

void AddTrainTokenizerCommand(CLI::App& app, CommandState& state) {
  using F = TrainTokenizerFlags;
  CLI::App* command = app.add_subcommand("train-tokenizer", "Make a tokenizer from text");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("input", &F::input,
           "files of text or of records (JSON lines, tables, Parquet, Arrow), or directories of "
           "them; "
           "may be given several times",
           {.type = "FILE"})
      .Add("output", &F::output, "the tokenizer's folder", {.type = "DIR"})
      .Include<F, data::TokenizerTrainingOptions>();
  command->footer(
      "Examples:\n"
      "  tessera train-tokenizer --input corpus.txt --output tokenizer --vocab-size 8000\n"
      "  tessera train-tokenizer --input chat.jsonl --json-key prompt --json-key response \\\n"
      "      --output tokenizer --family chatglm\n"
      "  tessera train-tokenizer --input corpus.txt --output tokenizer --family gpt2");
  RunWith<F>(command, state, std::move(table), {.required = {"input", "output"}},
             [](const CLI::App&, const F& flags) { return RunTrainTokenizer(flags); });
}

}  // namespace tessera::tools
