// SPDX-License-Identifier: Apache-2.0
#include "docs/key_tables.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/options.h"
#include "models/generation/generation_config.h"
#include "optim/optimizer_kind.h"
#include "train/config/run_config.h"
#include "train/foreign/accelerate_config.h"
#include "train/foreign/deepspeed_keys.h"
#include "train/foreign/dialect.h"
#include "train/foreign/run_keys.h"

namespace tessera::docs {
namespace {

using train::OptionPart;

std::string Code(const std::string& text) { return "`" + text + "`"; }

std::string DefaultOf(const Option& option) {
  if (option.default_value().empty()) return option.notes.unset;
  const std::string text = option.ToText(option.default_value());
  return option.kind == Option::Kind::kText ? Code(text) : text;
}

// The help, what a text may be, and other systems' names.
std::string Meaning(const Option& option) {
  std::string text = option.help;
  for (size_t i = 0; i < option.notes.choices.size(); ++i) {
    text += (i == 0 ? "; one of " : ", ") + Code(option.notes.choices[i]);
  }
  for (size_t i = 0; i < option.notes.aliases.size(); ++i) {
    const OptionAlias& alias = option.notes.aliases[i];
    text += (i == 0 ? "; " : ", ") + Code(alias.name) + " (" + alias.system + ")";
  }
  return text;
}

std::string Row(const Option& option) {
  return "| " + Code(option.key) + " | " + DefaultOf(option) + " | " + Meaning(option) + " |\n";
}

constexpr char kHead[] = "\n| key | default | meaning |\n|---|---|---|\n";

std::string RunTables() {
  std::string text, section;
  for (const Option& option : train::RunConfig::Table().options()) {
    if (option.section != section) text += "\n**" + option.section + "**\n" + kHead;
    section = option.section;
    text += Row(option);
  }
  return text;
}

// The keys of a kind of parts, each once, with the parts that have it.
std::string PartTable(const std::string& kind) {
  struct Shared {
    const Option* option;
    std::vector<std::string> owners;
    std::vector<std::string> defaults;
  };
  std::vector<Shared> rows;
  for (const OptionPart& part : train::OptionParts()) {
    if (part.key != kind) continue;
    for (const Option& option : part.table->options()) {
      Shared* row = nullptr;
      for (Shared& other : rows) {
        if (other.option->key == option.key && other.option->help == option.help) row = &other;
      }
      if (row == nullptr) row = &rows.emplace_back(Shared{&option, {}, {}});
      row->owners.push_back(Code(part.name));
      row->defaults.push_back(DefaultOf(option));
    }
  }
  std::string text = "\n| key | of | default | meaning |\n|---|---|---|---|\n";
  for (const Shared& row : rows) {
    std::string owners, defaults;
    for (size_t i = 0; i < row.owners.size(); ++i) {
      owners += (i == 0 ? "" : ", ") + row.owners[i];
      if (row.defaults[i] != row.defaults[0]) {
        defaults += "; " + row.defaults[i] + " with " + row.owners[i];
      }
    }
    text += "| " + Code(row.option->key) + " | " + owners + " | " + row.defaults[0] + defaults +
            " | " + Meaning(*row.option) + " |\n";
  }
  return text;
}

std::string OptimizerTables() {
  std::string text = "\n| `optimizer` | |\n|---|---|\n";
  for (const std::string& name : optim::OptimizerNames()) {
    text += "| " + Code(name) + " | " + (*optim::FindOptimizerKind(name))->help + " |\n";
  }
  return text + PartTable("optimizer");
}

Status Replace(const std::string& name, const std::string& content, std::string* page) {
  const size_t mark = page->find("<!-- " + name + ": generated");
  const size_t begin = mark == std::string::npos ? mark : page->find("-->\n", mark);
  const size_t end = begin == std::string::npos ? begin : page->find("<!-- end -->", begin);
  if (end == std::string::npos) return InvalidArgument("the page has no place for ", name);
  page->replace(begin + 4, end - begin - 4, content + "\n");
  return OkStatus();
}

// Names of other systems for keys of ours.
train::ForeignTable AliasesOf(const std::string& system) {
  train::ForeignTable table;
  std::set<std::string> seen;  // parts may share a key
  const auto add = [&](const OptionTable& options) {
    for (const Option& option : options.options()) {
      for (const OptionAlias& alias : option.notes.aliases) {
        if (alias.system.find(system) != std::string::npos && seen.insert(alias.name).second) {
          table.push_back(train::Renamed(alias.name, option.key));
        }
      }
    }
  };
  add(train::RunConfig::Table());
  for (const OptionPart& part : train::OptionParts()) add(*part.table);
  return table;
}

// The keys of one fate, those with one reason on a line, in the order of the first.
std::string FateTable(const train::ForeignTable& table, train::KeyFate fate, const char* head) {
  std::vector<std::pair<std::string, std::string>> rows;  // reason, names
  for (const train::ForeignKey& key : table) {
    if (key.fate != fate) continue;
    std::string reason = key.reason;
    for (size_t i = 0; i < key.neutral.size(); ++i) {
      reason += (i == 0 ? "; may be " : ", ") + Code(key.neutral[i]->dump());
    }
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const auto& known) { return known.first == reason; });
    if (row == rows.end()) row = rows.insert(row, {reason, ""});
    row->second += (row->second.empty() ? "" : ", ") + Code(key.name);
  }
  std::string text = Concat("\n| ", head, " |\n|---|---|\n");
  for (const auto& [reason, names] : rows) {
    const bool keys = fate == train::KeyFate::kTranslated &&
                      train::FindRunConfigKey(train::KeysOf(reason)[0]) != nullptr;
    text += "| " + names + " | " + (keys ? Code(reason) : reason) + " |\n";
  }
  return text;
}

// A column a dialect, a row a key; where a dialect says nothing our own default holds.
std::string DialectTable() {
  std::vector<std::string> keys;
  std::string text = "\n| key | Tessera |";
  std::string line = "|---|---|";
  for (const train::Dialect& dialect : train::Dialects()) {
    text += " " + Code(dialect.name) + " |";
    line += "---|";
    for (const auto& [key, value] : dialect.defaults) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  text += "\n" + line + "\n";
  for (const std::string& key : keys) {
    const Option* const option = train::FindRunConfigKey(key);
    text += "| " + Code(key) + " | " + DefaultOf(*option) + " |";
    for (const train::Dialect& dialect : train::Dialects()) {
      const auto own = std::find_if(dialect.defaults.begin(), dialect.defaults.end(),
                                    [&](const auto& entry) { return entry.first == key; });
      text += own == dialect.defaults.end() ? " |" : " " + option->ToText(own->second) + " |";
    }
    text += "\n";
  }
  return text;
}

std::string SystemTables(const train::ForeignTable& table) {
  return FateTable(table, train::KeyFate::kTranslated, "known as | here") +
         FateTable(table, train::KeyFate::kNoEffect, "no effect | because") +
         FateTable(table, train::KeyFate::kRefused, "refused | because");
}

// Of names that are known in order to say what to use instead.
std::string AdviceTables(const train::ForeignTable& table) {
  return FateTable(table, train::KeyFate::kRefused, "there | here") +
         FateTable(table, train::KeyFate::kNoEffect, "no effect | because");
}

std::string SystemTables(const train::ForeignSystem& system) {
  train::ForeignTable table = AliasesOf(system.name);
  table.insert(table.end(), system.keys.begin(), system.keys.end());
  return SystemTables(table);
}

}  // namespace

StatusOr<std::string> WithMigrationTables(const std::string& page) {
  std::string text = page;
  const std::pair<const char*, std::string> tables[] = {
      {"hugging-face", SystemTables(train::HuggingFace())},
      {"trl", SystemTables(train::Trl())},
      {"flagai", SystemTables(train::FlagAi())},
      {"colossal-ai", SystemTables(train::ColossalAi())},
      {"megatron", SystemTables(train::MegatronLm())},
      {"other-systems", AdviceTables(train::OtherSystems().keys)},
      {"dialects", DialectTable()},
      {"deepspeed", SystemTables(train::DeepSpeedKeys())},
      {"accelerate", SystemTables(train::AccelerateKeys())}};
  for (const auto& [name, content] : tables) {
    TESSERA_RETURN_IF_ERROR(Replace(name, content, &text));
  }
  return text;
}

StatusOr<std::string> WithTables(const std::string& page) {
  std::string text = page;
  TESSERA_RETURN_IF_ERROR(Replace("keys", RunTables(), &text));
  TESSERA_RETURN_IF_ERROR(Replace("optimizers", OptimizerTables(), &text));
  TESSERA_RETURN_IF_ERROR(Replace("tasks", PartTable("task"), &text));
  std::string generation = kHead;
  for (const Option& option : models::GenerationConfig::Table().options()) {
    generation += Row(option);
  }
  TESSERA_RETURN_IF_ERROR(Replace("generation", generation, &text));
  return text;
}

}  // namespace tessera::docs
