// SPDX-License-Identifier: Apache-2.0
// `tessera generate`: continues a text.
#include "models/generation/generate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"
#include "models/generation/generation_config.h"
#include "models/generation/special_tokens.h"
#include "models/hub/load_model.h"
#include "serve/answer_config.h"
#include "tools/chat.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/remote_generate.h"

namespace tessera::tools {
namespace {

using models::GenerationConfig;

struct GenerateFlags {
  std::string model;
  std::string server;
  std::string key_file;
  std::string tokenizer;
  std::string adapter;
  std::string prompt;
  std::string ids;
  std::string prompts;
  bool chat = false;
  std::string messages;
  std::string system;
  int64_t batch_size = 16;
  ComputeFlags compute;
  // Values count where the flag is given; generation_config.json has the defaults.
  int64_t max_new_tokens = 0;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t num_beams = 1;
  double length_penalty = 1;
  std::vector<std::string> stop;
  uint64_t seed = 0;
};

// The folder's defaults, overridden by what the flags say.
StatusOr<GenerationConfig> Configure(const CLI::App& command, const GenerateFlags& flags,
                                     const nlohmann::json& model_config) {
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig defaults,
                           models::ReadGenerationConfig(flags.model, model_config));
  WarnOf(models::NotApplied(flags.model, defaults));
  models::GenerationRequest request;
  const auto take = [&](const char* name, const auto& value, auto* asked) {
    if (command.count(name) > 0) *asked = value;
  };
  take("--max-new-tokens", flags.max_new_tokens, &request.max_new_tokens);
  take("--temperature", flags.temperature, &request.temperature);
  take("--top-k", flags.top_k, &request.top_k);
  take("--top-p", flags.top_p, &request.top_p);
  take("--repetition-penalty", flags.repetition_penalty, &request.repetition_penalty);
  take("--presence-penalty", flags.presence_penalty, &request.presence_penalty);
  take("--frequency-penalty", flags.frequency_penalty, &request.frequency_penalty);
  take("--num-beams", flags.num_beams, &request.num_beams);
  take("--length-penalty", flags.length_penalty, &request.length_penalty);
  take("--stop", flags.stop, &request.stop_strings);
  take("--seed", flags.seed, &request.seed);
  return models::WithRequest(std::move(defaults), request);
}

// What a server is asked for, and how; the rest is its own.
StatusOr<RemoteModel> RemoteOf(const CLI::App& command, const GenerateFlags& flags) {
  for (const char* name : {"--tokenizer", "--adapter", "--num-beams", "--length-penalty",
                           "--batch-size", "--dtype", "--device", "--threads"}) {
    if (command.count(name) > 0) return InvalidArgument(name, " does not go with --server");
  }
  RemoteModel remote = {.server = flags.server, .key_file = flags.key_file};
  const auto give = [&](const char* name, const char* field, const auto& value) {
    if (command.count(name) > 0) remote.fields[field] = value;
  };
  give("--model", "model", flags.model);
  give("--max-new-tokens", "max_tokens", flags.max_new_tokens);
  give("--temperature", "temperature", flags.temperature);
  give("--top-k", "top_k", flags.top_k);
  give("--top-p", "top_p", flags.top_p);
  give("--repetition-penalty", "repetition_penalty", flags.repetition_penalty);
  give("--presence-penalty", "presence_penalty", flags.presence_penalty);
  give("--frequency-penalty", "frequency_penalty", flags.frequency_penalty);
  give("--stop", "stop", flags.stop);
  give("--seed", "seed", flags.seed);
  return remote;
}

Status CheckUtf8(const char* flag, const std::string& text) {
  const size_t invalid = data::FindInvalidUtf8(text);
  if (invalid == data::kNoInvalidUtf8) return OkStatus();
  return InvalidArgument(flag, ": invalid UTF-8 at byte ", invalid);
}

Status GenerateIds(models::Model& model, const GenerateFlags& flags, const GenerationConfig& config,
                   const data::Tokenizer* tokenizer) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, ParseIds("--ids", flags.ids));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<models::GenerationResult> results,
                           models::Generate(model, {prompt}, config, {.tokenizer = tokenizer}));
  // A decoder beside an encoder does not continue what it is given.
  std::vector<int64_t> ids;
  if (model.encoder_decoder() == nullptr) ids = results[0].prompt;
  ids.insert(ids.end(), results[0].ids.begin(), results[0].ids.end());
  std::string line;
  for (int64_t id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  return WriteOut(line + "\n");
}

Status GenerateText(models::Model& model, const GenerateFlags& flags,
                    const GenerationConfig& config, const data::Tokenizer& tokenizer) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt,
                           models::EncodePrompt(tokenizer, model.config(), flags.prompt));
  // The prompt is shown with the first text, so that a refused one shows nothing.
  std::string pending = model.encoder_decoder() == nullptr ? flags.prompt : std::string();
  const auto show = [&](int64_t, int64_t, std::string_view text) -> Status {
    if (text.empty()) return OkStatus();
    Status written = WriteOut(pending + data::ReplaceInvalidUtf8(text));
    pending.clear();
    return written;
  };
  TESSERA_RETURN_IF_ERROR(
      models::Generate(model, {prompt}, config, {.tokenizer = &tokenizer, .on_token = show})
          .status());
  return WriteOut(pending + "\n");
}

std::string OnOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return data::ReplaceInvalidUtf8(text);
}

StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TESSERA_RETURN_IF_ERROR(CheckUtf8(path.c_str(), text));
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// A line of output for every line of a file: what is new, without its prompt.
Status GenerateLines(models::Model& model, const GenerateFlags& flags,
                     const GenerationConfig& config, const data::Tokenizer& tokenizer) {
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
                          {.tokenizer = &tokenizer, .on_result = show, .slots = flags.batch_size})
      .status();
}

Status CheckFlags(const CLI::App& command, const GenerateFlags& flags) {
  for (const std::string& text : flags.stop) TESSERA_RETURN_IF_ERROR(CheckUtf8("--stop", text));
  TESSERA_RETURN_IF_ERROR(CheckUtf8("--prompt", flags.prompt));
  TESSERA_RETURN_IF_ERROR(CheckUtf8("--system", flags.system));
  if (flags.model.empty() && flags.server.empty()) return InvalidArgument("--model is required");
  if (!flags.key_file.empty() && flags.server.empty()) {
    return InvalidArgument("--api-key-file needs --server");
  }
  size_t given = 0;
  for (const char* name : {"--prompt", "--ids", "--prompts", "--chat"}) {
    given += command.count(name) > 0 ? 1 : 0;
  }
  if (given != 1) {
    return InvalidArgument("give one of --prompt TEXT, --prompts FILE, --ids 1,2,3 and --chat");
  }
  for (const char* name : {"--messages", "--system"}) {
    if (command.count(name) > 0 && !flags.chat) return InvalidArgument(name, " needs --chat");
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

Status RunOnServer(const CLI::App& command, const GenerateFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const RemoteModel remote, RemoteOf(command, flags));
  if (flags.chat) return Chat(command, flags, RemoteAnswerOf(remote));
  if (command.count("--ids") > 0) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, ParseIds("--ids", flags.ids));
    return GenerateIdsRemotely(remote, prompt);
  }
  if (command.count("--prompts") == 0) return GenerateTextRemotely(remote, flags.prompt);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadLines(flags.prompts));
  return GenerateLinesRemotely(remote, prompts);
}

Status RunGenerate(const CLI::App& command, GenerateFlags flags) {
  TESSERA_RETURN_IF_ERROR(CheckFlags(command, flags));
  if (!flags.server.empty()) return RunOnServer(command, flags);
  const bool has_ids = command.count("--ids") > 0;
  TESSERA_ASSIGN_OR_RETURN(flags.model, FolderOrArchive(flags.model));
  if (flags.tokenizer.empty()) flags.tokenizer = flags.model;
  TESSERA_ASSIGN_OR_RETURN(flags.tokenizer, FolderOrArchive(flags.tokenizer));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags.compute));
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json json, models::ReadModelConfig(flags.model));
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, Configure(command, flags, json));
  models::LoadOptions options = {.build = build, .require_weights = true, .map_weights = true};
  options.quantize = QuantizeOf(flags.compute);
  if (!flags.adapter.empty()) options.adapters = {flags.adapter};
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!has_ids || !config.stop_strings.empty() || models::LacksTokenIds(json)) {
    // A preset has neither weights nor a tokenizer; the former is said.
    if (!IsDirectory(flags.model)) {
      TESSERA_RETURN_IF_ERROR(models::LoadModel(flags.model, options).status());
    }
    TESSERA_ASSIGN_OR_RETURN(tokenizer, data::LoadTokenizer(flags.tokenizer));
    options.config_changes = models::TokenIdsFromTokenizer(*tokenizer, json);
    json.update(options.config_changes);
    TESSERA_ASSIGN_OR_RETURN(config, Configure(command, flags, json));
  }
  std::optional<data::ChatFormat> format;
  if (flags.chat) {
    TESSERA_ASSIGN_OR_RETURN(format, data::ChatFormat::OfFolder(flags.tokenizer));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> model,
                           models::LoadModel(flags.model, options));
  if (format) {
    return Chat(command, flags, AnswerOf({*model, *tokenizer, *format, config}));
  }
  if (has_ids) return GenerateIds(*model, flags, config, tokenizer.get());
  return command.count("--prompts") > 0 ? GenerateLines(*model, flags, config, *tokenizer)
                                        : GenerateText(*model, flags, config, *tokenizer);
}

void AddSamplingFlags(CLI::App* command, GenerateFlags* flags) {
  command
      ->add_option(
          "--max-new-tokens", flags->max_new_tokens,
          Concat("at most so many new tokens (", models::kDefaultNewTokens, ", of a chat's answer ",
                 serve::kLongestAnswer, ", or what fits the model)"))
      ->type_name("N");
  command
      ->add_option("--temperature", flags->temperature,
                   "sample with this temperature; 0 takes the likeliest token (0)")
      ->type_name("T");
  command->add_option("--top-k", flags->top_k, "sample among the K likeliest tokens (0: all)")
      ->type_name("K");
  command
      ->add_option("--top-p", flags->top_p,
                   "sample among the likeliest tokens that reach probability P (1: all)")
      ->type_name("P");
  command
      ->add_option("--repetition-penalty", flags->repetition_penalty,
                   "makes tokens that occurred less likely (1: off)")
      ->type_name("X");
  command
      ->add_option("--presence-penalty", flags->presence_penalty,
                   "subtracted from the scores of tokens that were written (0)")
      ->type_name("X");
  command
      ->add_option("--frequency-penalty", flags->frequency_penalty,
                   "the same, as often as they were (0)")
      ->type_name("X");
  command->add_option("--num-beams", flags->num_beams, "beam search with B beams (1: off)")
      ->type_name("B");
  command
      ->add_option("--length-penalty", flags->length_penalty,
                   "beam search divides by length^X; above 0 favours longer texts (1)")
      ->type_name("X");
  command->add_option("--stop", flags->stop, "end before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--seed", flags->seed, "the same seed gives the same text (0)")
      ->type_name("S");
}

}  // namespace

void AddGenerateCommand(CLI::App& app, CommandState& state) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a model");
  command
      ->add_option("--model", flags->model,
                   "a Hugging Face folder with weights, or a tar archive of one; of a server, a "
                   "name")
      ->type_name("DIR");
  command
      ->add_option("--server", flags->server,
                   "a server that writes instead (`tessera serve`): http://127.0.0.1:8000")
      ->type_name("URL");
  command
      ->add_option("--api-key-file", flags->key_file,
                   "with --server: a file whose first line is its key")
      ->type_name("FILE");
  command
      ->add_option("--prompt", flags->prompt,
                   "the text to continue, printed with its continuation; or an encoder's source")
      ->type_name("TEXT");
  command
      ->add_option(
          "--ids", flags->ids,
          "token ids instead of a prompt: prints all ids (an encoder-decoder's: the new ones)")
      ->type_name("1,2,3");
  command
      ->add_option("--prompts", flags->prompts,
                   "a file with a prompt on each line: prints a line of new text for each")
      ->type_name("FILE");
  command->add_flag("--chat", flags->chat,
                    "a conversation, as the folder's chat template writes it: lines of standard "
                    "input are answered; /clear forgets what was said, /exit ends it");
  command
      ->add_option("--messages", flags->messages,
                   "with --chat: answers this conversation instead, a JSON array of messages or an "
                   "object with `messages` and `tools`; - is standard input")
      ->type_name("FILE");
  command->add_option("--system", flags->system, "with --chat: the system's message before it")
      ->type_name("TEXT");
  command
      ->add_option("--batch-size", flags->batch_size, "with --prompts: how many run together (16)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--tokenizer", flags->tokenizer, "a folder or byte (the model's folder)")
      ->type_name("DIR");
  AddAdapterFlag(command, &flags->adapter);
  AddSamplingFlags(command, flags.get());
  AddComputeFlags(command, &flags->compute);
  command->footer(
      "Defaults in parentheses; generation_config.json in the model's folder overrides them.\n"
      "Examples:\n"
      "  tessera generate --model out/model --prompt \"Once upon\" --temperature 0.8 --top-k 40\n"
      "  tessera generate --model gpt2-folder --ids 15496,995 --max-new-tokens 5\n"
      "  tessera generate --model qwen-folder --chat --system \"Be brief.\" --temperature 0.7");
  command->callback([&state, flags, command] {
    state.run = [flags, command] { return RunGenerate(*command, *flags); };
  });
}

}  // namespace tessera::tools
