// SPDX-License-Identifier: Apache-2.0
#include "tools/run_flags.h"

#include "base/options.h"
#include "train/config/run_config.h"

namespace tessera::tools {

void RunFlags::Add(CLI::App* command) {
  AddModel(command, &model_, "a preset (`tessera models`) or a model folder");
  command
      ->add_option("--config", config_,
                   "JSON file with any of the keys below, by any of their names")
      ->type_name("FILE");
  command
      ->add_option(
          "--accelerate", accelerate_,
          "Accelerate's configuration (YAML, or JSON as it stands), which wins over --config")
      ->type_name("FILE");
  command
      ->add_option("--deepspeed", deepspeed_,
                   "DeepSpeed's JSON configuration, which wins over both; flags win over all")
      ->type_name("FILE");
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

StatusOr<train::ResolvedRun> RunFlags::Resolve(const CLI::App& command, int world_size) const {
  train::RunSources sources = {.config = config_,
                               .accelerate = accelerate_,
                               .deepspeed = deepspeed_,
                               .world_size = world_size};
  TESSERA_ASSIGN_OR_RETURN(sources.flags, fields_.Given(command));
  TESSERA_ASSIGN_OR_RETURN(train::ResolvedRun run, train::ResolveRun(sources));
  if (!model_.empty()) run.config.model = model_;
  if (command.count("--resume") > 0) run.resume = resume_;
  return run;
}

}  // namespace tessera::tools
