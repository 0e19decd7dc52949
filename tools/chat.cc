// SPDX-License-Identifier: Apache-2.0
#include "tools/chat.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <vector>

#include "base/file.h"
#include "base/utf8.h"
#include "data/chat/chat_tokens.h"
#include "models/generation/generate.h"
#include "models/open/answer_config.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"

namespace tessera::tools {
namespace {

using data::Conversation;

nlohmann::ordered_json MessageOf(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// What somebody types.
class Terminal {
 public:
  // False at the end of input.
  bool Next(std::string* line) const {
    if (interactive_) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    if (!std::getline(std::cin, *line)) return false;
    if (line->ends_with('\r')) line->pop_back();
    return true;
  }
  void Say(const std::string& text) const { std::fprintf(stderr, "error: %s\n", text.c_str()); }

 private:
  const bool interactive_ = isatty(STDIN_FILENO) != 0;
};

StatusOr<Conversation> ReadMessages(const std::string& path) {
  const std::string where = path == "-" ? "standard input" : path;
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    TESSERA_ASSIGN_OR_RETURN(text, ReadFile(path));
  }
  return data::ParseConversation(text, where);
}

}  // namespace

Answer AnswerOf(ChatPartner partner) {
  return [partner = std::move(partner)](const Conversation& chat,
                                        uint64_t turn) -> StatusOr<std::string> {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             data::TokenizePrompt(partner.format, partner.tokenizer, chat));
    TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config,
                             models::ConfigOfAnswer(partner.model, /*adapter=*/0, partner.format,
                                                    partner.tokenizer, ids.size(), partner.config));
    // Wraps around, as unsigned numbers do.
    config.seed = static_cast<int64_t>(static_cast<uint64_t>(config.seed) + turn);
    const auto show = [](int64_t, int64_t, std::string_view text) {
      return text.empty() ? OkStatus() : WriteOut(ReplaceInvalidUtf8(text));
    };
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<models::GenerationResult> results,
        models::Generate(
            partner.model, {ids}, config,
            {.tokenizer = &partner.tokenizer, .on_token = show, .grammar = partner.grammar}));
    TESSERA_RETURN_IF_ERROR(WriteOut("\n"));
    return ReplaceInvalidUtf8(results[0].text);
  };
}

Status AnswerMessages(const Answer& answer, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const Conversation chat, ReadMessages(path));
  return answer(chat, /*turn=*/0).status();
}

Status Converse(const Answer& answer, const std::string& system) {
  Conversation beginning;
  if (!system.empty()) beginning.messages->push_back(MessageOf("system", system));
  Conversation chat = beginning;
  uint64_t turn = 0;
  const Terminal terminal;
  for (std::string line; terminal.Next(&line);) {
    if (line == "/exit") break;
    if (line == "/clear") chat = beginning;
    if (line.empty() || line == "/clear") continue;
    const size_t invalid = FindInvalidUtf8(line);
    if (invalid != kNoInvalidUtf8) {
      terminal.Say(Concat("invalid UTF-8 at byte ", invalid, " of the line"));
      continue;
    }
    chat.messages->push_back(MessageOf("user", line));
    const StatusOr<std::string> text = answer(chat, turn);
    if (text.ok()) {
      chat.messages->push_back(MessageOf("assistant", *text));
      ++turn;
    } else if (text.status().code() == StatusCode::kInvalidArgument) {
      terminal.Say(Message(text.status()));
      chat.messages->erase(chat.messages->size() - 1);
    } else {
      return text.status();
    }
  }
  return OkStatus();
}

}  // namespace tessera::tools
