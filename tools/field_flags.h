// SPDX-License-Identifier: Apache-2.0
// Flags for the keys of a run's configuration: our own keys, with their help, and every other name
// that a key has (train/foreign/run_keys.h), which the help leaves out.
//
//   flags->Add(command, *train::FindRunConfigKey("batch_size"));
//   flags->AddOtherNames(command);
//   const nlohmann::json given = flags->Given(command);      // {"batch_size": 8}
#ifndef TESSERA_TOOLS_FIELD_FLAGS_H_
#define TESSERA_TOOLS_FIELD_FLAGS_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/command_line.h"
#include "train/config/run_config.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::tools {

// Whether a word behind a flag's value is one more value of it (`--report_to tensorboard csv`,
// `--betas 0.9 0.95`): a number of a list of numbers; a choice of a list that has choices; any word
// behind a list without, where what the command is about was named before (`train gpt-mini --data
// a.txt b.txt`). Never what begins with a dash, unless it is a number.
NextValue GoesOnList(const std::string& flag, const std::string& word, bool named);

// The same of `tessera corpus`: any word that is no flag continues a list.
NextValue CorpusGoesOnList(const std::string& flag, const std::string& word, bool named);

// "--batch-size" of batch_size.
std::string FlagName(std::string_view key);

// How some keys of a command are given: by their place as well (`generate MODEL`), in this order,
// and always.
struct FlagForms {
  std::vector<std::string> by_place = {};
  std::vector<std::string> required = {};
};

// What the user called the keys that were given: flags, where `given` has the name, or names in a
// file.
void AddNames(const std::vector<train::KeyVerdict>& verdicts, const nlohmann::json& given,
              WrittenNames* names);

class FieldFlags {
 public:
  // The flags of one key under all its names. This object must outlive the parsing, the key it.
  void Add(CLI::App* command, const Option& key, const FlagForms& forms = {});
  // Those of the keys that an evaluation takes; `data` must be given. Other systems' keys that are
  // always refused are so here, too.
  void AddEvaluation(CLI::App* command);
  // A flag that is always refused, with the reason.
  void AddRefused(CLI::App* command, const std::string& name, const std::string& reason);
  // Those of all names that are not there yet.
  void AddOtherNames(CLI::App* command);
  // The flags that were given, by the name they were given under. A flag that was given twice with
  // two values is an error, unless it is another system's and `notes` takes a line on it: its
  // last value counts then.
  StatusOr<nlohmann::json> Given(const CLI::App& command,
                                 std::vector<std::string>* notes = nullptr) const;
  // The same, into the struct that declares the keys. Texts may hold any bytes, as names of files
  // do.
  Status Read(const CLI::App& command, void* settings) const;
  // Overrides the keys whose flags were given; `names` learns by what names.
  Status ApplyTo(const CLI::App& command, train::RunConfig* config, WrittenNames* names) const;

 private:
  enum class Texts { kUtf8, kAnyBytes };
  StatusOr<nlohmann::json> Given(const CLI::App& command, Texts texts,
                                 std::vector<std::string>* notes) const;
  // nullptr: the name is there already, or cannot be a flag's.
  CLI::Option* AddHidden(CLI::App* command, const std::string& name, bool is_switch);

  std::map<std::string, std::vector<std::string>> texts_;  // by name
  std::map<std::string, const Option*> keys_;              // those that were added
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_FIELD_FLAGS_H_
