// SPDX-License-Identifier: Apache-2.0
#include "tools/run_flags.h"

#include "base/options.h"
#include "nlohmann/json.hpp"
#include "train/config/run_config.h"

namespace tessera::tools {

namespace {

struct Sources {
  std::string model;
  std::string config;
  std::string accelerate;
  std::string deepspeed;
};

const OptionTable& SourceTable() {
  using S = Sources;
  static const auto* table = new OptionTable(
      OptionTable::Of<S>("Options")
          .Add("model", &S::model, "a preset (`tessera models`) or a model folder",
               {.type = "MODEL"})
          .Add("config", &S::config,
               "JSON or YAML file with any of the keys below, by any of their names",
               {.type = "FILE"})
          .Add("accelerate", &S::accelerate,
               "Accelerate's configuration (YAML or JSON), which wins over --config",
               {.type = "FILE"})
          .Add("deepspeed", &S::deepspeed,
               "DeepSpeed's JSON configuration, which wins over both; flags win over all",
               {.type = "FILE"}));
  return *table;
}

}  // namespace

void RunFlags::Add(CLI::App* command) {
  for (const Option& option : SourceTable().options()) {
    source_flags_.Add(command, option, {.by_place = {"model"}});
  }
  command
      ->add_option("--resume", resume_,
                   "continue from the newest checkpoint in --out, or from the one named")
      ->expected(0, 1)
      ->type_name("[DIR]");
  for (const Option* key : train::RunConfigKeys()) {
    if (key->key != "model") fields_.Add(command, *key);
  }
  fields_.AddOtherNames(command);
}

StatusOr<train::ResolvedRun> RunFlags::Resolve(const CLI::App& command, int world_size,
                                               WrittenNames* names) const {
  Sources given;
  TESSERA_RETURN_IF_ERROR(source_flags_.Read(command, &given));
  train::RunSources sources = {.config = given.config,
                               .accelerate = given.accelerate,
                               .deepspeed = given.deepspeed,
                               .world_size = world_size};
  std::vector<std::string> notes;
  TESSERA_ASSIGN_OR_RETURN(sources.flags, fields_.Given(command, &notes));
  TESSERA_ASSIGN_OR_RETURN(train::ResolvedRun run, train::ResolveRun(sources));
  AddNames(run.verdicts, sources.flags, names);
  run.notes.insert(run.notes.begin(), notes.begin(), notes.end());
  if (!given.model.empty()) run.config.model = given.model;
  if (command.count("--resume") > 0) run.resume = resume_;
  return run;
}

}  // namespace tessera::tools
