// Flags for the keys of a run's configuration, each under all its names.
//
//   flags->Add(command, *train::FindRunConfigKey("batch_size"));
//   TESSERA_RETURN_IF_ERROR(flags->ApplyTo(command, &config));   // those that were given
#ifndef TESSERA_TOOLS_FIELD_FLAGS_H_
#define TESSERA_TOOLS_FIELD_FLAGS_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "core/options.h"
#include "core/status.h"
#include "train/config/run_config.h"

namespace tessera::tools {

class FieldFlags {
 public:
  // The flag of one key, with its help. This object must outlive the parsing.
  void Add(CLI::App* command, const Option& key);
  // Overrides the keys whose flags were given.
  Status ApplyTo(const CLI::App& command, train::RunConfig* config) const;
  // Whether a key's flag was given.
  bool Gives(const CLI::App& command, const std::string& key) const;

 private:
  std::map<std::string, std::vector<std::string>> texts_;  // by key
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_FIELD_FLAGS_H_
