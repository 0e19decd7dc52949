#include "tools/field_flags.h"

#include <algorithm>
#include <string_view>

#include "train/config/config_aliases.h"

namespace tessera::tools {
namespace {

std::string FlagName(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// "--tp,--tp-size,--model-parallel-size": a key's flag under all its names.
std::string FlagNames(const std::string& key) {
  std::string names = FlagName(key);
  for (const train::ConfigAlias& alias : train::ConfigAliases()) {
    const std::string name = FlagName(alias.name);
    if (alias.key == key && ("," + names + ",").find("," + name + ",") == std::string::npos) {
      names += "," + name;
    }
  }
  return names;
}

}  // namespace

void FieldFlags::Add(CLI::App* command, const std::string& key) {
  const train::RunConfigField& field = *train::FindRunConfigField(key);
  std::string& text = texts_[key];
  if (std::holds_alternative<bool train::RunConfig::*>(field.member)) {
    command->add_flag(FlagNames(key), text, std::string(field.help) + " (or =false)");
  } else {
    command->add_option(FlagNames(key), text, std::string(field.help))->type_name("X");
  }
}

absl::Status FieldFlags::ApplyTo(const CLI::App& command, train::RunConfig* config) const {
  for (const auto& [key, text] : texts_) {
    if (command.count(FlagName(key)) == 0) continue;
    TESSERA_RETURN_IF_ERROR(train::SetRunConfigField(config, key, text));
  }
  return absl::OkStatus();
}

}  // namespace tessera::tools
