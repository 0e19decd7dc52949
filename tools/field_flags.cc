#include "tools/field_flags.h"

#include <algorithm>
#include <string_view>

namespace tessera::tools {
namespace {

std::string FlagName(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// "--tp,--model-parallel-size,--tp-size": a key's flag under all its names.
std::string FlagNames(const Option& key) {
  std::string names = FlagName(key.key);
  for (const OptionAlias& alias : key.notes.aliases) {
    const std::string name = FlagName(alias.name);
    if (("," + names + ",").find("," + name + ",") == std::string::npos) names += "," + name;
  }
  return names;
}

// What a help text has no use for: marks of code, and links.
std::string Plain(std::string text) {
  std::erase(text, '`');
  for (size_t open = text.find("](");; open = text.find("](", open)) {
    if (open == std::string::npos) break;
    text.erase(open, text.find(')', open) - open + 1);
    text.erase(text.rfind('[', open), 1);
  }
  return text;
}

std::string Help(const Option& key) {
  std::string text = key.help;
  for (size_t i = 0; i < key.notes.choices.size(); ++i) {
    text += (i == 0 ? "; one of " : ", ") + key.notes.choices[i];
  }
  const std::string usual =
      key.default_value().is_null() ? key.notes.unset : key.ToText(key.default_value());
  return Plain(text + (usual.empty() ? "" : " [" + usual + "]"));
}

std::string TypeName(const Option& key) {
  switch (key.kind) {
    case Option::Kind::kInteger:
      return "N";
    case Option::Kind::kNumber:
      return "X";
    case Option::Kind::kNumbers:
      return "X,X";
    default:
      return "TEXT";
  }
}

}  // namespace

void FieldFlags::Add(CLI::App* command, const Option& key) {
  std::vector<std::string>& texts = texts_[key.key];
  CLI::Option* flag =
      key.kind == Option::Kind::kBool
          ? command->add_flag(FlagNames(key), texts, Help(key) + " (or =false)")
          : command->add_option(FlagNames(key), texts, Help(key))->type_name(TypeName(key));
  if (key.kind != Option::Kind::kBool) flag->expected(1)->allow_extra_args(false);
  flag->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  flag->group(key.section);
}

bool FieldFlags::Gives(const CLI::App& command, const std::string& key) const {
  return texts_.count(key) > 0 && command.count(FlagName(key)) > 0;
}

Status FieldFlags::ApplyTo(const CLI::App& command, train::RunConfig* config) const {
  for (const auto& [key, texts] : texts_) {
    const std::string flag = FlagName(key);
    if (command.count(flag) == 0) continue;
    const Option& option = *train::FindRunConfigKey(key);
    if (option.kind == Option::Kind::kTexts) {
      TESSERA_RETURN_IF_ERROR(train::SetRunConfigKey(config, key, texts, flag));
      continue;
    }
    for (const std::string& text : texts) {
      if (text == texts[0]) continue;
      return InvalidArgument(flag, " is given twice, as ", texts[0], " and ", text);
    }
    TESSERA_RETURN_IF_ERROR(train::SetRunConfigField(config, key, texts[0]));
  }
  return OkStatus();
}

}  // namespace tessera::tools
