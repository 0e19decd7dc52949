// SPDX-License-Identifier: Apache-2.0
// `tessera train-tokenizer`: a SentencePiece tokenizer from text.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_training/train_sentence_piece.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace tessera::tools {
namespace {

struct TrainTokenizerFlags {
  std::vector<std::string> input;
  std::string output;
  data::TokenizerTrainingOptions options;
};

// The library asks for memory on threads of its own, where nobody could catch that there is none.
// Nothing is written before it has ended.
[[noreturn]] void EndWithoutMemory() {
  static std::atomic_flag said;
  while (said.test_and_set()) pause();  // another thread says it, and ends the process
  constexpr std::string_view kLine =
      "error: train-tokenizer: out of memory; take fewer lines (--max-sentences)\n";
  static_cast<void>(!write(STDERR_FILENO, kLine.data(), kLine.size()));
  _exit(1);
}

Status RunTrainTokenizer(const TrainTokenizerFlags& flags) {
  std::set_new_handler(EndWithoutMemory);
  TESSERA_ASSIGN_OR_RETURN(const data::TokenizerTrainingResult result,
                           data::TrainSentencePiece(flags.input, flags.output, flags.options));
  return WriteOut(Concat(
      flags.output, "/", result.model_file, ": ", WithThousands(result.num_pieces), " pieces from ",
      WithThousands(result.num_sentences), " lines; ", WithThousands(result.num_ids), " ids\n"));
}

}  // namespace

void AddTrainTokenizerCommand(CLI::App& app, CommandState& state) {
  auto flags = std::make_shared<TrainTokenizerFlags>();
  data::TokenizerTrainingOptions& options = flags->options;
  CLI::App* command =
      app.add_subcommand("train-tokenizer", "Make a SentencePiece tokenizer from text");
  command
      ->add_option("--input", flags->input,
                   "text or JSON-lines files, or directories of them; may be given several times")
      ->type_name("FILE")
      ->required();
  command->add_option("--output", flags->output, "the tokenizer's folder")
      ->type_name("DIR")
      ->required();
  command->add_option("--vocab-size", options.vocab_size, "number of pieces (8000)")
      ->type_name("N");
  command->add_option("--type", options.type, "unigram or bpe (unigram)")->type_name("TYPE");
  command
      ->add_option("--family", options.family,
                   "whose special tokens and files: t5, llama, glm or chatglm (t5)")
      ->type_name("NAME");
  command->add_flag("--lower-case", options.lower_case, "fold text to lower case");
  command
      ->add_option("--normalization", options.normalization,
                   "nmt_nfkc, nfkc or identity (nmt_nfkc for t5, else identity)")
      ->type_name("NAME");
  command
      ->add_option("--character-coverage", options.character_coverage,
                   "share of the text's characters that become pieces (0.9995)")
      ->type_name("SHARE");
  command
      ->add_option("--max-sentences", options.max_sentences,
                   "learn from so many lines, spread over the text (all)")
      ->type_name("N");
  command
      ->add_option("--json-key", options.json_keys,
                   "member of JSON lines that holds text (text); may be given several times")
      ->type_name("KEY");
  command->footer(
      "Examples:\n"
      "  tessera train-tokenizer --input corpus.txt --output tokenizer --vocab-size 8000\n"
      "  tessera train-tokenizer --input chat.jsonl --json-key prompt --json-key response \\\n"
      "      --output tokenizer --family chatglm");
  command->callback([&state, flags] { state.run = [flags] { return RunTrainTokenizer(*flags); }; });
}

}  // namespace tessera::tools
