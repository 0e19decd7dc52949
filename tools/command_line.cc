// SPDX-License-Identifier: Apache-2.0
#include "tools/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/mounted_folder.h"
#include "base/nearest_name.h"
#include "base/open_file.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"

namespace tessera::tools {
namespace {

constexpr int kMostThreads = 4096;

std::vector<const CLI::App*> DirectCommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "tessera corpus dedup".
std::string FullName(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? command.get_name() : FullName(*parent) + " " + command.get_name();
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : DirectCommands(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "--batch_size=8" as "--batch-size" and "=8".
std::pair<std::string, std::string> SplitFlag(const std::string& argument) {
  const size_t equals = std::min(argument.find('='), argument.size());
  std::string name = argument.substr(0, equals);
  std::replace(name.begin(), name.end(), '_', '-');
  return {name, argument.substr(equals)};
}

// "=true" or "=false" where a switch is followed by such a word, as scripts for other systems have
// it: `--bf16 True`, `--log_on_each_node 0`.
std::string SwitchValue(const CLI::Option& option, const std::vector<std::string>& args,
                        size_t* i) {
  if (option.get_items_expected_max() > 1 || *i + 1 == args.size()) return "";
  const std::string& next = args[*i + 1];
  const nlohmann::json truth = Option::FromText(Option::Kind::kBool, next);
  if (!truth.is_boolean()) return "";
  ++*i;
  if (option.get_items_expected_max() == 1) return "=" + next;  // reads its value itself
  return truth == true ? "=true" : "=false";
}

// Takes the words behind a flag's first value that are values of it, too.
void TakeFurtherValues(const std::string& flag, bool named, const ValueJudge& judge,
                       const std::vector<std::string>& args, size_t* i,
                       std::vector<std::string>* values) {
  while (*i + 1 < args.size()) {
    const std::string& word = args[*i + 1];
    const NextValue next = judge(flag, word, named);
    if (next == NextValue::kNone) return;
    if (next == NextValue::kBehindComma) {
      values->back() += "," + word;
    } else {
      values->push_back(word);
    }
    ++*i;
  }
}

// "`tessera corpus --help` lists them".
std::string Hint(const CLI::App& command) {
  return Concat("`", FullName(command), " --help` lists them");
}

// A command of a command: `corpus dedup`.
Status TakeInnerCommand(const std::vector<std::string>& args, size_t* i, const CLI::App** command,
                        std::vector<std::string>* result) {
  const std::vector<std::string> names = CommandNames(**command);
  const std::string hint = Hint(**command);
  if (names.empty() || (*i < args.size() && args[*i].rfind('-', 0) == 0)) return OkStatus();
  if (*i == args.size()) {
    return InvalidArgument("`", (*command)->get_name(), "` needs one of its commands; ", hint);
  }
  if (std::find(names.begin(), names.end(), args[*i]) == names.end()) {
    return InvalidArgument("unknown command '", (*command)->get_name(), " ", args[*i], "'",
                           DidYouMean(args[*i], names), " (", hint, ")");
  }
  *command = (*command)->get_subcommand(args[*i]);
  result->push_back(args[(*i)++]);
  return OkStatus();
}

// "; did you mean 'convert'?" of a command's name in other systems, or of the nearest name.
std::string CommandMeant(const std::string& word, const std::vector<std::string>& known) {
  static const std::pair<const char*, const char*> kElsewhere[] = {
      {"api", "serve"},
      {"chat", "generate --chat"},
      {"dpo", "train --task preference"},
      {"export", "convert"},
      {"finetune", "train"},
      {"import", "convert"},
      {"inference", "generate"},
      {"preprocess", "tokenize"},
      {"pretrain", "train"},
      {"sft", "train --task chat"}};
  for (const auto& [theirs, ours] : kElsewhere) {
    const std::string_view command =
        std::string_view(ours).substr(0, std::string_view(ours).find(' '));
    if (word == theirs && std::ranges::find(known, command) != known.end()) {
      return Concat("; did you mean '", ours, "'?");
    }
  }
  return DidYouMean(word, known);
}

// A word in the place of the command that `launch` starts, which other launchers give a script.
Status NothingToLaunch(const CLI::App& app, const std::string& word) {
  const bool script = word.ends_with(".py") || word.starts_with("python");
  return InvalidArgument("`", FullName(app), " launch` starts a command of its own, and '", word,
                         "' is none", DidYouMean(word, CommandNames(app)),
                         script ? "; give `train` and its flags in the script's place" : "", " (",
                         Hint(app), ")");
}

Status UnknownFlag(const CLI::App& command, const std::string& name) {
  return InvalidArgument("unknown flag '", name, "' of `", FullName(command), "`",
                         DidYouMean(name, FlagNames(command)));
}

}  // namespace

const OptionTable& ComputeFlags::Table() {
  using F = ComputeFlags;
  static const auto* table = new OptionTable(
      OptionTable::Of<F>("Options")
          .Add("dtype", &F::dtype,
               Concat("float32, bfloat16, float16 or float64, or weights held, on the CPU, as one "
                      "of ",
                      QuantTypeNames())
                   .c_str(),
               {.type = "TYPE"})
          .Add("device", &F::device, "cpu or cuda:0", {.type = "DEVICE"})
          .Add("threads", &F::threads, "threads on the CPU; 0: all cores",
               {.least = 0, .most = kMostThreads}));
  return *table;
}

std::string WrappedHelp(std::string_view help) {
  constexpr size_t kWidth = 100;
  constexpr size_t kMeaning = 30;  // CLI11's column
  std::string text;
  while (!help.empty()) {
    const size_t end = std::min(help.find('\n'), help.size());
    std::string_view line = help.substr(0, end);
    help.remove_prefix(std::min(end + 1, help.size()));
    const size_t margin = std::min(line.find_first_not_of(' '), line.size());
    const bool is_option =
        line.size() > kMeaning && margin > 0 && line[kMeaning - 1] == ' ' && line[kMeaning] != ' ';
    const size_t indent = is_option ? kMeaning : margin;
    size_t width = kWidth;
    while (line.size() > width) {
      const size_t least = width == kWidth ? indent : 0;
      size_t end_of_line = line.rfind(' ', width);
      size_t next = end_of_line + 1;
      if (end_of_line == std::string_view::npos || end_of_line <= least) {
        end_of_line = next = line.rfind(',', width - 1) + 1;  // a list without spaces
        if (end_of_line <= least) break;
      }
      text += std::string(line.substr(0, end_of_line)) + "\n" + std::string(indent, ' ');
      line.remove_prefix(next);
      width = kWidth - indent;
    }
    text += std::string(line) + "\n";
  }
  return text;
}

std::optional<QuantType> QuantizeOf(const ComputeFlags& flags) {
  return ParseQuantType(flags.dtype);
}

StatusOr<nn::BuildContext> ApplyComputeFlags(const ComputeFlags& flags) {
  nn::BuildContext build;
  const std::optional<DType> dtype = QuantizeOf(flags) ? DType::kFloat32 : ParseDType(flags.dtype);
  if (!dtype || !IsFloating(*dtype)) {
    return InvalidArgument("--dtype: '", flags.dtype,
                           "' is none of float32, bfloat16, float16, float64, ", QuantTypeNames());
  }
  build.dtype = *dtype;
  TESSERA_ASSIGN_OR_RETURN(build.device, Device::Parse(flags.device));
  if (build.device.is_meta()) {
    return InvalidArgument("--device: '", flags.device, "' has no data to compute with");
  }
  TESSERA_RETURN_IF_ERROR(CheckDeviceAvailable(build.device));
  if (flags.threads > 0) SetNumThreads(static_cast<int>(flags.threads));
  return build;
}

std::vector<NamedCommand> CommandsOf(const CLI::App& app) {
  std::vector<NamedCommand> commands;
  for (const CLI::App* command : DirectCommands(app)) {
    commands.push_back({command->get_name(), command});
    for (const NamedCommand& inner : CommandsOf(*command)) {
      commands.push_back({command->get_name() + " " + inner.name, inner.command});
    }
  }
  return commands;
}

StatusOr<std::vector<std::string>> NormaliseArguments(const CLI::App& app,
                                                      const std::vector<std::string>& args,
                                                      const ValueJudge& judge,
                                                      WrittenNames* names) {
  const std::string hint = Hint(app);
  if (args.empty()) return InvalidArgument("a command is missing; ", hint);
  const CLI::App* command = &app;
  std::vector<std::string> result;
  size_t i = 0;
  if (args[0].rfind('-', 0) != 0) {
    const std::vector<std::string> known = CommandNames(app);
    if (std::find(known.begin(), known.end(), args[0]) == known.end()) {
      return InvalidArgument("unknown command '", args[0], "'", CommandMeant(args[0], known), " (",
                             hint, ")");
    }
    command = app.get_subcommand(args[0]);
    result.push_back(args[i++]);
    TESSERA_RETURN_IF_ERROR(TakeInnerCommand(args, &i, &command, &result));
  }
  bool named = false;  // by a word that is no flag's
  for (; i < args.size(); ++i) {
    const std::string& argument = args[i];
    if (argument == "--") {
      const std::string word = i + 1 < args.size() ? args[i + 1] : "";
      const bool launches = command->get_name() == "launch" && !word.empty() && word[0] != '-';
      const std::vector<std::string> known = CommandNames(app);
      if (launches && std::find(known.begin(), known.end(), word) == known.end()) {
        return NothingToLaunch(app, word);
      }
      result.insert(result.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      // A command behind `launch` has flags of its own.
      const std::vector<std::string> known = CommandNames(app);
      if (command->get_name() == "launch" &&
          std::find(known.begin(), known.end(), argument) != known.end()) {
        result.push_back("--");
        result.insert(result.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
        break;
      }
      if (command->get_name() == "launch") return NothingToLaunch(app, argument);
      named = true;
      result.push_back(argument);
      continue;
    }
    const auto [name, value] = SplitFlag(argument);
    names->AddFlag(argument.substr(0, argument.size() - value.size()));
    const CLI::Option* option = command->get_option_no_throw(name);
    if (option == nullptr && command->get_allow_extras()) {
      result.push_back(argument);
      continue;
    }
    if (option == nullptr) return UnknownFlag(*command, name);
    const bool takes_one =
        option->get_items_expected_min() == 1 && option->get_items_expected_max() == 1;
    if (!takes_one) {
      result.push_back(name + (value.empty() ? SwitchValue(*option, args, &i) : value));
      continue;
    }
    std::string text = value.empty() ? "" : value.substr(1);
    if (value.empty()) {
      if (++i == args.size()) return InvalidArgument(name, " needs a value");
      text = args[i];
    }
    std::vector<std::string> values = {text};
    if (value.empty() && judge != nullptr) TakeFurtherValues(name, named, judge, args, &i, &values);
    // Neither an empty value nor a short name's can be joined: `--name=` would take what comes
    // next, and `-H=hosts` is the value "=hosts".
    for (const std::string& one : values) {
      if (one.empty() || name.rfind("--", 0) != 0) {
        result.insert(result.end(), {name, one});
      } else {
        result.push_back(name + "=" + one);
      }
    }
  }
  return result;
}

Status WriteOut(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return OkStatus();
  if (errno == EPIPE) return Failure(StatusCode::kCancelled, "standard output was closed");
  return Internal("standard output: ", std::strerror(errno));
}

Status WriteOutBeside(const std::string& output, std::string_view text) {
  if (NamedDescriptor(output) != STDOUT_FILENO) return WriteOut(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return OkStatus();
}

std::string OutputPath(const std::string& given) { return given == "-" ? "/dev/stdout" : given; }

Status RefuseStandardOutput(const std::string& flag, const std::string& given) {
  if (NamedDescriptor(OutputPath(given)) < 0) return OkStatus();
  return InvalidArgument(flag, " ", given, ": what is written is no stream; give a path",
                         given == "-" ? " (./- is a file of that name)" : "");
}

std::string WithThousands(int64_t value) {
  std::string text = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

StatusOr<std::vector<int64_t>> ParseIds(const std::string& flag, std::string_view text) {
  std::vector<int64_t> ids;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    int64_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size()) {
      return InvalidArgument(flag, ": '", part, "' is not a token id");
    }
    ids.push_back(id);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return ids;
}

void WarnOf(const std::string& line) {
  if (!line.empty()) std::fprintf(stderr, "warning: %s\n", line.c_str());
}

StatusOr<std::string> FolderOrArchive(const std::string& name) {
  static auto* const mounted = new std::list<std::optional<MountedFolder>>;
  return models::ModelFolderAt(name, &mounted->emplace_back());
}

}  // namespace tessera::tools
