// SPDX-License-Identifier: Apache-2.0
// `tessera generate`: continues a text.
#include "models/generation/generate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json_ordered.h"
#include "base/options.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/generation/grammar/json_grammar.h"
#include "models/generation/special_tokens.h"
#include "models/open/answer_config.h"
#include "models/open/open_model.h"
#include "tools/chat.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/remote_generate.h"
#include "tools/settings.h"
#include "tools/text_lines.h"

namespace tessera::tools {
namespace {

using models::GenerationConfig;

using Grammar = std::shared_ptr<const models::TokenGrammar>;

struct GenerateFlags : ComputeFlags {
  std::string model;
  std::string server;
  std::string api_key_file;
  std::string prompt;
  std::string ids;
  std::string prompts;
  bool chat = false;
  std::string messages;
  std::string system;
  std::string json_schema;
  int64_t batch_size = 16;
  std::string tokenizer;
  std::string adapter;
  const FieldFlags* settings = nullptr;  // GenerationConfig's
};

// The settings whose flags were given, by their keys.
StatusOr<nlohmann::json> Asked(const CLI::App& command, const GenerateFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json given, flags.settings->Given(command));
  nlohmann::json asked = nlohmann::json::object();
  for (const auto& [name, value] : given.items()) {
    const Option& option = *GenerationConfig::Table().FindByAnyName(name);
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json converted, option.Convert(value, FlagName(name)));
    nlohmann::json& all = asked[option.key];
    if (all.is_array() && option.kind == Option::Kind::kTexts) {  // --stop and --stop-strings
      all.insert(all.end(), converted.begin(), converted.end());
    } else {
      all = std::move(converted);
    }
  }
  return asked;
}

// OpenAI's name, where a setting has one.
std::string FieldOf(const std::string& key) {
  for (const OptionAlias& alias : GenerationConfig::Table().Find(key)->notes.aliases) {
    if (alias.system == "OpenAI") return alias.name;
  }
  return key;
}

// What a server is asked for, and how; the rest is its own.
StatusOr<RemoteModel> RemoteOf(const CLI::App& command, const GenerateFlags& flags) {
  for (const char* name :
       {"--tokenizer", "--adapter", "--batch-size", "--dtype", "--device", "--threads"}) {
    if (command.count(name) > 0) return InvalidArgument(name, " does not go with --server");
  }
  RemoteModel remote = {.server = flags.server, .key_file = flags.api_key_file};
  if (!flags.model.empty()) remote.fields["model"] = flags.model;
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json asked, Asked(command, flags));
  for (const auto& [key, value] : asked.items()) remote.fields[FieldOf(key)] = value;
  if (!flags.json_schema.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.json_schema));
    TESSERA_ASSIGN_OR_RETURN(nlohmann::ordered_json schema,
                             ParseOrderedJson(text, flags.json_schema));
    remote.fields["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "schema"}, {"schema", std::move(schema)}}}};
  }
  return remote;
}

Status CheckUtf8(const char* flag, const std::string& text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == kNoInvalidUtf8) return OkStatus();
  return InvalidArgument(flag, ": invalid UTF-8 at byte ", invalid);
}

Status GenerateIds(models::Model& model, const GenerateFlags& flags, const GenerationConfig& config,
                   const data::Tokenizer* tokenizer, const Grammar& grammar) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, ParseIds("--ids", flags.ids));
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<models::GenerationResult> results,
      models::Generate(model, {prompt}, config, {.tokenizer = tokenizer, .grammar = grammar}));
  // A decoder beside an encoder does not continue what it is given.
  std::string lines;
  for (const models::GenerationResult& result : results) {
    std::vector<int64_t> ids;
    if (model.encoder_decoder() == nullptr) ids = result.prompt;
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    lines += absl::StrJoin(ids, ",") + "\n";
  }
  return WriteOut(lines);
}

Status GenerateText(models::Model& model, const GenerateFlags& flags,
                    const GenerationConfig& config, const data::Tokenizer& tokenizer,
                    const Grammar& grammar) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt,
                           models::EncodePrompt(tokenizer, model.config(), flags.prompt));
  const std::string begin = model.encoder_decoder() == nullptr ? flags.prompt : std::string();
  models::GenerateOptions options = {.tokenizer = &tokenizer, .grammar = grammar};
  // Several are written at the same time, and shown one after the other.
  if (config.num_return_sequences > 1) {
    options.on_result = [&](int64_t, const models::GenerationResult& result) {
      return WriteOut(begin + ReplaceInvalidUtf8(result.text) + "\n");
    };
    return models::Generate(model, {prompt}, config, options).status();
  }
  // The prompt is shown with the first text, so that a refused one shows nothing.
  std::string pending = begin;
  options.on_token = [&](int64_t, int64_t, std::string_view text) -> Status {
    if (text.empty()) return OkStatus();
    Status written = WriteOut(pending + ReplaceInvalidUtf8(text));
    pending.clear();
    return written;
  };
  TESSERA_RETURN_IF_ERROR(models::Generate(model, {prompt}, config, options).status());
  return WriteOut(pending + "\n");
}

std::string OnOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return ReplaceInvalidUtf8(text);
}

StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  TESSERA_RETURN_IF_ERROR(ForEachLine(path, [&](std::string_view line) {
    lines.emplace_back(line);
    return OkStatus();
  }));
  return lines;
}

// A line of output for every text of every line of a file: what is new, without its prompt.
Status GenerateLines(models::Model& model, const GenerateFlags& flags,
                     const GenerationConfig& config, const data::Tokenizer& tokenizer,
                     const Grammar& grammar) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLines(flags.prompts));
  std::vector<std::vector<int64_t>> prompts;
  for (const std::string& line : lines) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> prompt,
                             models::EncodePrompt(tokenizer, model.config(), line));
    prompts.push_back(std::move(prompt));
  }
  const auto show = [](int64_t, const models::GenerationResult& result) {
    return WriteOut(OnOneLine(result.text) + "\n");
  };
  return models::Generate(model, prompts, config,
                          {.tokenizer = &tokenizer,
                           .on_result = show,
                           .slots = flags.batch_size,
                           .grammar = grammar})
      .status();
}

Status CheckFlags(const CLI::App& command, const GenerateFlags& flags) {
  TESSERA_RETURN_IF_ERROR(CheckUtf8("--prompt", flags.prompt));
  TESSERA_RETURN_IF_ERROR(CheckUtf8("--system", flags.system));
  if (flags.model.empty() && flags.server.empty()) return InvalidArgument("MODEL is missing");
  if (!flags.api_key_file.empty() && flags.server.empty()) {
    return InvalidArgument("--api-key-file needs --server");
  }
  for (const char* name : {"--messages", "--system"}) {
    if (command.count(name) > 0 && !flags.chat) return InvalidArgument(name, " needs --chat");
  }
  size_t given = 0;
  for (const char* name : {"--prompt", "--ids", "--prompts", "--chat"}) {
    given += command.count(name) > 0 ? 1 : 0;
  }
  if (given != 1) {
    return InvalidArgument("give one of --prompt TEXT, --prompts FILE, --ids 1,2,3 and --chat");
  }
  if (command.count("--batch-size") > 0 && command.count("--prompts") == 0) {
    return InvalidArgument("--batch-size needs --prompts");
  }
  if (command.count("--messages") > 0 && command.count("--system") > 0) {
    return InvalidArgument(
        "--system begins a conversation in the terminal; --messages has its own");
  }
  return OkStatus();
}

Status Chat(const CLI::App& command, const GenerateFlags& flags, const Answer& answer) {
  return command.count("--messages") > 0 ? AnswerMessages(answer, flags.messages)
                                         : Converse(answer, flags.system);
}

// A conversation continues with one answer.
Status CheckChat(const nlohmann::json& asked) {
  if (asked.value("num_return_sequences", 1) == 1) return OkStatus();
  return InvalidArgument("--num-return-sequences above 1 does not go with --chat");
}

Status RunOnServer(const CLI::App& command, const GenerateFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const RemoteModel remote, RemoteOf(command, flags));
  if (flags.chat) {
    TESSERA_ASSIGN_OR_RETURN(const nlohmann::json asked, Asked(command, flags));
    TESSERA_RETURN_IF_ERROR(CheckChat(asked));
    return Chat(command, flags, RemoteAnswerOf(remote));
  }
  if (command.count("--ids") > 0) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, ParseIds("--ids", flags.ids));
    return GenerateIdsRemotely(remote, prompt);
  }
  if (command.count("--prompts") == 0) return GenerateTextRemotely(remote, flags.prompt);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadLines(flags.prompts));
  return GenerateLinesRemotely(remote, prompts);
}

// What the texts must fit; nullptr: anything.
StatusOr<Grammar> GrammarOf(const GenerateFlags& flags, const data::Tokenizer* tokenizer) {
  if (flags.json_schema.empty()) return Grammar();
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.json_schema));
  return models::TokenGrammarOfSchema(text, flags.json_schema, *tokenizer);
}

Status RunGenerate(const CLI::App& command, GenerateFlags flags) {
  TESSERA_RETURN_IF_ERROR(CheckFlags(command, flags));
  if (!flags.server.empty()) return RunOnServer(command, flags);
  const bool has_ids = command.count("--ids") > 0;
  const bool has_schema = !flags.json_schema.empty();
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  models::OpenOptions options = {
      .load = {.build = build, .require_weights = true, .map_weights = true, .warn = WarnOf},
      .tokenizer =
          has_ids && !has_schema ? models::OpenOptions::Want::kNo : models::OpenOptions::Want::kYes,
      .tokenizer_folder = flags.tokenizer};
  options.load.quantize = QuantizeOf(flags);
  if (!flags.adapter.empty()) options.load.adapters = {flags.adapter};
  TESSERA_ASSIGN_OR_RETURN(options.settings, Asked(command, flags));
  if (has_schema && options.settings->value("num_beams", 1) > 1) {
    return InvalidArgument("--json-schema does not go with --num-beams above 1");
  }
  if (has_schema) options.settings["num_beams"] = 1;  // whatever the folder asks for
  if (flags.chat) {
    TESSERA_RETURN_IF_ERROR(CheckChat(options.settings));
    options.settings["num_return_sequences"] = 1;  // whatever the folder asks for
    options.before_weights = [](const models::OpenedModel& opened) { return opened.chat.status(); };
  }
  TESSERA_ASSIGN_OR_RETURN(const models::OpenedModel opened,
                           models::OpenModel(flags.model, options));
  models::Model& model = *opened.model;
  if (!models::Generates(model)) {
    return InvalidArgument(flags.model, ": this model does not generate text");
  }
  const GenerationConfig& config = opened.generation;
  TESSERA_ASSIGN_OR_RETURN(const Grammar grammar, GrammarOf(flags, opened.tokenizer.get()));
  if (flags.chat) {
    return Chat(command, flags,
                AnswerOf({model, *opened.tokenizer, *opened.chat, config, grammar}));
  }
  if (has_ids) return GenerateIds(model, flags, config, opened.tokenizer.get(), grammar);
  const auto write = command.count("--prompts") > 0 ? GenerateLines : GenerateText;
  return write(model, flags, config, *opened.tokenizer, grammar);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, CommandState& state) {
  using F = GenerateFlags;
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a model");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("model", &F::model, Concat(kModelHelp, "; with --server a name of its").c_str(),
           {.type = "MODEL"})
      .Add("server", &F::server,
           "a server that writes instead (`tessera serve`): http://127.0.0.1:8000", {.type = "URL"})
      .Add("api_key_file", &F::api_key_file, "with --server: a file whose first line is its key",
           {.type = "FILE"})
      .Add("prompt", &F::prompt,
           "the text to continue, printed with its continuation; or an encoder's source")
      .Add("ids", &F::ids,
           "token ids instead of a prompt: prints all ids (an encoder-decoder's: the new ones)",
           {.type = "1,2,3"})
      .Add("prompts", &F::prompts,
           "a file with a prompt on each line: prints a line of new text for each; -: standard "
           "input",
           {.type = "FILE"})
      .Add("chat", &F::chat,
           "a conversation, as the folder's chat template writes it: lines of standard input are "
           "answered; /clear forgets what was said, /exit ends it")
      .Add("messages", &F::messages,
           "with --chat: answers this conversation instead, a JSON array of messages or an object "
           "with `messages` and `tools`; - is standard input",
           {.type = "FILE"})
      .Add("system", &F::system, "with --chat: the system's message before it")
      .Add("json_schema", &F::json_schema, "a JSON Schema: the new text is JSON that fits it",
           {.type = "FILE"})
      .Add("batch_size", &F::batch_size, "with --prompts: how many run together", {.least = 1})
      .Add("tokenizer", &F::tokenizer, kTokenizerHelp,
           {.type = "DIR", .unset = "the model's folder"})
      .Add("adapter", &F::adapter, kAdapterHelp, {.type = "DIR"})
      .Include<F, ComputeFlags>();
  command->footer(
      "Defaults in brackets; generation_config.json in the model's folder overrides them.\n"
      "Examples:\n"
      "  tessera generate --model out/model --prompt \"Once upon\" --temperature 0.8 --top-k 40\n"
      "  tessera generate --model gpt2-folder --ids 15496,995 --max-new-tokens 5\n"
      "  tessera generate --model qwen-folder --chat --system \"Be brief.\" --temperature 0.7");
  auto generation = std::make_shared<FieldFlags>();
  RunWith<F>(command, state, std::move(table), {.by_place = {"model"}},
             [generation](const CLI::App& given, F flags) {
               flags.settings = generation.get();
               return RunGenerate(given, flags);
             });
  for (const Option& option : GenerationConfig::Table().options()) generation->Add(command, option);
  for (const models::UnsupportedSetting& one : models::UnsupportedSettings()) {
    generation->AddRefused(command, one.key, "is refused: " + one.Reason());
  }
}

}  // namespace tessera::tools
