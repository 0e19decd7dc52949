// SPDX-License-Identifier: Apache-2.0
#include "tools/field_flags.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "train/foreign/run_keys.h"

namespace tessera::tools {

std::string FlagName(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

namespace {

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
  std::string usual =
      key.default_value().empty() ? key.notes.unset : key.ToText(key.default_value());
  if (key.default_value() == false) usual.clear();
  for (size_t i = 0; i < key.notes.aliases.size(); ++i) {
    const std::string& name = key.notes.aliases[i].name;
    if (i == 0 || name != key.notes.aliases[i - 1].name) text += "; also " + FlagName(name);
  }
  return Plain(text + (usual.empty() ? "" : " [" + usual + "]"));
}

std::string TypeName(const Option& key) {
  if (!key.notes.type.empty()) return key.notes.type;
  if (!key.notes.choices.empty()) return "NAME";
  switch (key.kind) {
    case Option::Kind::kInteger:
      return "N";
    case Option::Kind::kNumber:
      return "X";
    case Option::Kind::kNumbers:
      return "X,X";
    case Option::Kind::kIntegers:
      return "N,N";
    case Option::Kind::kIntegerLists:
      return "N,N;N";
    case Option::Kind::kWeights:
      return "N:X,N:X";
    default:
      return "TEXT";
  }
}

// An empty path comes from a script whose variable is not set. It names no file, and it does not
// mean the same as leaving out the flag.
bool IsEmptyPath(const Option& option, const nlohmann::json& value) {
  const std::string& type = option.notes.type;
  if (type != "FILE" && type != "DIR" && type != "PREFIX") return false;
  if (!value.is_array()) return value == "";
  return std::find(value.begin(), value.end(), "") != value.end();
}

// The parts of a text between commas.
std::vector<std::string> AtCommas(const std::vector<std::string>& texts) {
  if (texts.empty()) return {};
  return absl::StrSplit(absl::StrJoin(texts, ","), ',');
}

// A list of another system's: `--data-path a b`.
bool IsForeignList(const std::string& name) {
  return std::ranges::any_of(train::RunKeys(), [&](const train::ForeignKey& key) {
    return key.is_list && key.name == name;
  });
}

bool IsNumber(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// What is recorded beside outputs (config.json, a journal) is JSON, which holds UTF-8 alone.
Status CheckText(const std::string& flag, const std::string& text) {
  if (FindInvalidUtf8(text) == kNoInvalidUtf8) return OkStatus();
  return InvalidArgument(flag, ": '", ReplaceInvalidUtf8(text),
                         "' is not UTF-8 (of a file's name: rename it, or make a link to it)");
}

}  // namespace

NextValue GoesOnList(const std::string& flag, const std::string& word, bool named) {
  std::string name = flag.substr(std::min<size_t>(2, flag.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  const Option* const option = train::FindRunConfigKey(name);
  if (option == nullptr && !word.empty() && word[0] != '-' && named && IsForeignList(name)) {
    return NextValue::kAnotherFlag;
  }
  if (option == nullptr || word.empty()) return NextValue::kNone;
  if (option->kind == Option::Kind::kNumbers) {
    return IsNumber(word) ? NextValue::kBehindComma : NextValue::kNone;
  }
  if (option->kind != Option::Kind::kTexts || word[0] == '-') return NextValue::kNone;
  const std::vector<std::string>& choices = option->notes.choices;
  const bool fits =
      choices.empty() ? named : std::find(choices.begin(), choices.end(), word) != choices.end();
  return fits ? NextValue::kAnotherFlag : NextValue::kNone;
}

void FieldFlags::Add(CLI::App* command, const Option& key, const FlagForms& forms) {
  const auto is_in = [&](const std::vector<std::string>& keys) {
    return std::find(keys.begin(), keys.end(), key.key) != keys.end();
  };
  std::vector<std::string>& texts = texts_[key.key];
  keys_[key.key] = &key;
  const bool by_place = is_in(forms.by_place);
  const std::string names = (by_place ? key.key + "," : "") + FlagName(key.key);
  CLI::Option* flag = key.kind == Option::Kind::kBool
                          ? command->add_flag(names, texts, Help(key) + " (or =false)")
                          : command->add_option(names, texts, Help(key))->type_name(TypeName(key));
  if (by_place && key.kind == Option::Kind::kTexts) {
    flag->expected(-1);
  } else if (key.kind != Option::Kind::kBool) {
    flag->expected(1)->allow_extra_args(false);
  }
  if (is_in(forms.required)) flag->required();
  flag->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  flag->group(key.section);
  for (const OptionAlias& alias : key.notes.aliases) {
    CLI::Option* const other = AddHidden(command, alias.name, key.kind == Option::Kind::kBool);
    if (other != nullptr) other->each([flag](const std::string&) { flag->required(false); });
    keys_[alias.name] = &key;
  }
}

void FieldFlags::AddEvaluation(CLI::App* command) {
  for (const Option* key : train::RunConfigKeys()) {
    if (key->notes.evaluation) Add(command, *key, {.required = {"data"}});
  }
  // What nobody may ask for is not unknown: `--dataset_name` is refused with the reason.
  for (const train::ForeignKey& key : train::RunKeys()) {
    if (key.fate != train::KeyFate::kRefused || !key.neutral.empty() || key.is_switch) continue;
    AddRefused(command, key.name, "is refused: " + key.reason);
  }
}

void FieldFlags::AddRefused(CLI::App* command, const std::string& name, const std::string& reason) {
  CLI::Option* const option = AddHidden(command, name, false);
  if (option == nullptr) return;
  option->check([said = Concat(FlagName(name), " ", reason)](const std::string&) -> std::string {
    throw CLI::ParseError(said, CLI::ExitCodes::ValidationError);
  });
}

CLI::Option* FieldFlags::AddHidden(CLI::App* command, const std::string& name, bool is_switch) {
  const std::string flag = FlagName(name);
  const bool is_word = name[0] != '_' && name.find('.') == std::string::npos;
  if (!is_word || command->get_option_no_throw(flag) != nullptr) return nullptr;
  std::vector<std::string>& texts = texts_[name];
  CLI::Option* option =
      is_switch ? command->add_flag(flag, texts)
                : command->add_option(flag, texts)->expected(1)->allow_extra_args(false);
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->group("");
}

void FieldFlags::AddOtherNames(CLI::App* command) {
  for (const Option* key : train::RunConfigKeys()) {
    AddHidden(command, key->key, key->kind == Option::Kind::kBool);
  }
  for (const train::ForeignKey& key : train::RunKeys()) {
    AddHidden(command, key.name, key.is_switch);
  }
  AddHidden(command, "fsdp_config", false);  // a file, or its content
}

StatusOr<nlohmann::json> FieldFlags::Given(const CLI::App& command,
                                           std::vector<std::string>* notes) const {
  return Given(command, Texts::kUtf8, notes);
}

Status FieldFlags::Read(const CLI::App& command, void* settings) const {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json given, Given(command, Texts::kAnyBytes, nullptr));
  for (const auto& [name, value] : given.items()) {
    const Option& option = *keys_.at(name);
    if (IsEmptyPath(option, value)) {
      return InvalidArgument(FlagName(name), " is empty; give a ", option.notes.type);
    }
    TESSERA_RETURN_IF_ERROR(option.Set(settings, value, FlagName(name)));
  }
  return OkStatus();
}

StatusOr<nlohmann::json> FieldFlags::Given(const CLI::App& command, Texts kind,
                                           std::vector<std::string>* notes) const {
  nlohmann::json given = nlohmann::json::object();
  std::map<std::string, std::string> known;  // of one key's names
  for (const auto& [name, texts] : texts_) {
    if (command.count(FlagName(name)) == 0) continue;
    const auto own = keys_.find(name);
    const Option* option = own == keys_.end() ? train::FindRunConfigKey(name) : own->second;
    const std::string flag = FlagName(option == nullptr ? name : option->key);
    const std::string asked = FlagName(name);
    const bool is_foreign_list = option == nullptr && IsForeignList(name);
    const bool is_text =
        is_foreign_list || (option != nullptr && (option->kind == Option::Kind::kText ||
                                                  option->kind == Option::Kind::kTexts));
    for (const std::string& text : texts) {
      if (is_text && kind == Texts::kAnyBytes) break;
      TESSERA_RETURN_IF_ERROR(CheckText(asked, text));
    }
    if (option != nullptr && option->kind == Option::Kind::kTexts) {
      given[name] = option->notes.choices.empty() ? texts : AtCommas(texts);
      continue;
    }
    if (is_foreign_list) {
      given[name] = texts;
      continue;
    }
    // The parsers of other systems take the last.
    std::string value_text = texts.back();
    const bool is_foreign = option == nullptr || option->key != name;
    for (const std::string& text : texts) {
      if (text == value_text) continue;
      if (!is_foreign || notes == nullptr) {
        return InvalidArgument(asked, " is given twice, as ", texts[0], " and ",
                               text == texts[0] ? value_text : text);
      }
      notes->push_back(
          Concat(asked, " is given ", texts.size(), " times; the last, ", value_text, ", counts"));
      break;
    }
    const std::string& first = known.emplace(flag, value_text).first->second;
    if (value_text != first) {
      return InvalidArgument(flag, " is given twice, as ", first, " and ", value_text);
    }
    if (option != nullptr) {
      given[name] = option->FromText(value_text);
    } else {
      const nlohmann::json value = Option::FromText(Option::Kind::kNumber, value_text);
      given[name] = value;
      if (!value.is_structured()) continue;
      TESSERA_ASSIGN_OR_RETURN(given[name], ParseJson(value_text, flag, {.unique_keys = true}));
    }
  }
  return given;
}

void AddNames(const std::vector<train::KeyVerdict>& verdicts, const nlohmann::json& given,
              WrittenNames* names) {
  for (const train::KeyVerdict& verdict : verdicts) {
    const bool is_flag = given.contains(verdict.key);
    const std::string written = is_flag ? names->FlagOf(verdict.key) : verdict.key;
    const bool becomes_keys = verdict.fate == train::KeyFate::kTranslated;
    const bool is_given =
        verdict.fate == train::KeyFate::kHonoured || verdict.fate == train::KeyFate::kRefused;
    if (!becomes_keys && !is_given) continue;
    for (const std::string& key : train::KeysOf(becomes_keys ? verdict.reason : verdict.key)) {
      const Option* const option = train::FindRunConfigKey(key);
      if (option != nullptr) names->AddKey(option->key, written);
    }
  }
}

Status FieldFlags::ApplyTo(const CLI::App& command, train::RunConfig* config,
                           WrittenNames* names) const {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json given, Given(command));
  const train::Translation run = train::TranslateRunFlags(given);
  TESSERA_RETURN_IF_ERROR(run.status());
  AddNames(run.verdicts, given, names);
  for (const auto& [key, value] : run.keys->items()) {
    TESSERA_RETURN_IF_ERROR(train::SetRunConfigKey(config, key, value, FlagName(key)));
  }
  return OkStatus();
}

}  // namespace tessera::tools
