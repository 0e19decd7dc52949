// SPDX-License-Identifier: Apache-2.0
// What all commands share: how flags are read, and where output goes. How failures end the program
// is train/ranks/run_on_ranks.h's.
#ifndef TESSERA_TOOLS_COMMAND_LINE_H_
#define TESSERA_TOOLS_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "nn/module.h"
#include "ops/quantized/quant_type.h"
#include "tools/written_names.h"

namespace tessera::tools {

inline constexpr char kExitCodes[] =
    "0: done, also when the reader of standard output has gone away. 2: wrong usage or "
    "configuration, which flags, keys, presets, missing files and unsuitable input give. 1: "
    "everything else, such as damaged files, a full disk or no memory.";

// Settings of every command that runs a model.
struct ComputeFlags {
  std::string dtype = "float32";  // or how weights are held; activations are then float32
  std::string device = "cpu";
  int64_t threads = 0;  // 0: all cores the process may use

  static const OptionTable& Table();
};

// What several commands say of the same flag.
inline constexpr char kModelHelp[] =
    "a Hugging Face folder with weights, a tar archive of one, or a GGUF file";
inline constexpr char kAdapterHelp[] =
    "a folder of an adapter (PEFT's adapter_config.json) beside the model";
inline constexpr char kTokenizerHelp[] = "a folder of a tokenizer, or byte";
inline constexpr char kOverwriteHelp[] =
    "replace an output that exists, also one that this command did not write";

// A help text with no line of more than 100 columns, where there are spaces to break at. What an
// option means stays in its column.
std::string WrappedHelp(std::string_view help);

// What weights are to be held as, if `--dtype` says that.
std::optional<QuantType> QuantizeOf(const ComputeFlags& flags);

// Checks the flags, sets the number of threads, and returns what models are to be built with.
StatusOr<nn::BuildContext> ApplyComputeFlags(const ComputeFlags& flags);

// Every command with the words that call it: "train", "corpus", "corpus dedup".
struct NamedCommand {
  std::string name;
  const CLI::App* command;
};
std::vector<NamedCommand> CommandsOf(const CLI::App& app);

// What a word behind a flag's value is to it: nothing, or one more value, and then how the two are
// given as the flag's: by another flag, or joined to the first by a comma.
enum class NextValue { kNone, kAnotherFlag, kBehindComma };
// `named` says whether the command's positional argument is before the flag.
using ValueJudge =
    std::function<NextValue(const std::string& flag, const std::string& word, bool named)>;

// The arguments after the program's name in the form that CLI11 reads without guessing: underscores
// in flag names become dashes, and a flag's value is joined to it (`--prompt=--x`), so that a value
// may begin with a dash. Several values behind one flag become several flags, or one with commas,
// as `judge` says. An unknown command or flag is an error that suggests the nearest one. `names`
// learns how the flags were written.
StatusOr<std::vector<std::string>> NormaliseArguments(const CLI::App& app,
                                                      const std::vector<std::string>& args,
                                                      const ValueJudge& judge, WrittenNames* names);

// Writes to standard output, at once. Cancelled when its reader has gone away.
Status WriteOut(std::string_view text);

// Writes what a command says of a file that it has written: to standard error where that file is
// standard output.
Status WriteOutBeside(const std::string& output, std::string_view text);

// The path of an output that a flag names: "-" is standard output.
std::string OutputPath(const std::string& given);
// InvalidArgument where an output is standard output, and a folder or several files are written.
Status RefuseStandardOutput(const std::string& flag, const std::string& given);

// Writes "warning: LINE" to standard error; nothing where the line is empty.
void WarnOf(const std::string& line);

// The model (or tokenizer) that a flag names: where it is a file that holds one
// (models/open/model_folder.h), the folder as which it is read for as long as the program runs.
// Else `name` itself.
StatusOr<std::string> FolderOrArchive(const std::string& name);

// "124,439,808".
std::string WithThousands(int64_t value);

// "1,2,3" as numbers; InvalidArgument naming `flag` and the part that is none.
StatusOr<std::vector<int64_t>> ParseIds(const std::string& flag, std::string_view text);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_COMMAND_LINE_H_
