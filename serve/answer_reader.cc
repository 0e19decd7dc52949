// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_reader.h"

#include <algorithm>
#include <utility>

#include "base/json_ordered.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlanks = " \t\r\n";

constexpr CallForm kTagged = {
    .begin = "<tool_call>", .end = "</tool_call>", .arguments = "arguments"};
constexpr CallForm kListed = {
    .begin = "[TOOL_CALLS]", .end = "", .arguments = "arguments", .list = true};
constexpr CallForm kBare = {
    .begin = "<|python_tag|>", .end = "", .arguments = "parameters", .bare = true};

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t BegunMark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (mark.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

// A call's arguments as JSON text; "": they are none.
std::string ArgumentsOf(const ordered_json& call, std::string_view key) {
  const auto found = call.find(key);
  if (found == call.end() || found->is_null()) return "{}";
  if (found->is_object()) {
    return found->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
  const bool spelled = found->is_string() && ordered_json::accept(found->get<std::string>());
  return spelled ? found->get<std::string>() : std::string();
}

}  // namespace

const CallForm* CallFormOf(std::string_view chat_template) {
  // Others begin alike and do not write JSON.
  if (Has(chat_template, "<tool_call>")) {
    return Has(chat_template, "<function=") ? nullptr : &kTagged;
  }
  if (Has(chat_template, "[TOOL_CALLS]")) {
    return Has(chat_template, "[ARGS]") ? nullptr : &kListed;
  }
  const bool llama = Has(chat_template, "<|python_tag|>") ||
                     Has(chat_template, R"({"name": function name, "parameters")");
  return llama ? &kBare : nullptr;
}

bool KnowsReasoning(std::string_view chat_template) { return Has(chat_template, kThinkEnd); }

AnswerReader::AnswerReader(AnswerReaderOptions options) : options_(std::move(options)) {
  using Begin = AnswerReaderOptions::Begin;
  if (options_.begin == Begin::kReasoning) state_ = State::kReasoning;
  if (options_.begin == Begin::kCall) state_ = State::kCall;
  skips_blanks_ = state_ == State::kReasoning;
}

bool AnswerReader::IsMark(std::string_view text) const {
  if (options_.reasons && (text == kThink || text == kThinkEnd)) return true;
  const CallForm* const calls = options_.calls;
  return calls != nullptr && (text == calls->begin || (!text.empty() && text == calls->end));
}

std::vector<AnswerPart> AnswerReader::Push(std::string_view text) {
  Parts parts;
  held_ += text;
  while (!held_.empty() && Step(&parts)) {
  }
  return parts;
}

std::vector<AnswerPart> AnswerReader::Finish() {
  Parts parts;
  const std::string rest = std::exchange(held_, {});
  if (state_ == State::kCall) {
    AddCalls(rest, &parts);
  } else if (state_ == State::kContent && !rest.empty()) {
    parts.push_back({AnswerPart::Kind::kContent, rest});
  } else if (const size_t last = rest.find_last_not_of(kBlanks); last != std::string::npos) {
    parts.push_back({AnswerPart::Kind::kReasoning, rest.substr(0, last + 1)});
  }
  return parts;
}

// Moves what is held on as far as it is certain; false: it takes more of the answer.
bool AnswerReader::Step(Parts* parts) {
  if (state_ == State::kCall) {
    const std::string_view end = options_.calls->end;
    const size_t at = end.empty() ? std::string::npos : held_.find(end);
    if (at == std::string::npos) return false;
    AddCalls(std::string_view(held_).substr(0, at), parts);
    held_.erase(0, at + end.size());
    state_ = State::kContent;
    return true;
  }
  if (skips_blanks_) {
    held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
    if (held_.empty()) return false;
    skips_blanks_ = false;
  }
  return state_ == State::kContent ? StepContent(parts) : StepReasoning(parts);
}

bool AnswerReader::StepContent(Parts* parts) {
  const CallForm* const calls = options_.calls;
  if (begins_ && calls != nullptr && calls->bare) {
    const size_t first = held_.find_first_not_of(kBlanks);
    if (first == std::string::npos) return false;
    begins_ = false;
    if (held_[first] == '{') {
      state_ = State::kCall;
      return true;
    }
  }
  size_t at = std::string::npos;
  size_t begun = 0;
  State next = State::kContent;
  const auto look = [&](std::string_view mark, State state) {
    begun = std::max(begun, BegunMark(held_, mark));
    const size_t found = held_.find(mark);
    if (found >= at) return;
    at = found;
    mark_ = mark;
    next = state;
  };
  if (calls != nullptr) look(calls->begin, State::kCall);
  if (options_.reasons) look(kThink, State::kReasoning);
  if (at == std::string::npos) {
    Add(AnswerPart::Kind::kContent, held_.size() - begun, parts);
    return false;
  }
  Add(AnswerPart::Kind::kContent, at, parts);
  held_.erase(0, mark_.size());
  state_ = next;
  skips_blanks_ = next == State::kReasoning;
  return true;
}

bool AnswerReader::StepReasoning(Parts* parts) {
  const size_t end = held_.find(kThinkEnd);
  const size_t certain =
      end == std::string::npos ? held_.size() - BegunMark(held_, kThinkEnd) : end;
  // Blanks at the end of the reasoning are the template's.
  const size_t last = held_.find_last_not_of(kBlanks, certain == 0 ? 0 : certain - 1);
  Add(AnswerPart::Kind::kReasoning, certain == 0 || last == std::string::npos ? 0 : last + 1,
      parts);
  if (end == std::string::npos) return false;
  held_.erase(0, held_.find(kThinkEnd) + kThinkEnd.size());
  state_ = State::kContent;
  skips_blanks_ = true;
  return true;
}

void AnswerReader::Add(AnswerPart::Kind kind, size_t size, Parts* parts) {
  if (size > 0) parts->push_back({kind, held_.substr(0, size)});
  held_.erase(0, size);
}

void AnswerReader::AddCalls(std::string_view text, Parts* parts) {
  Parts found;
  // The first reading bounds how deep it is.
  const bool reads = ParseOrderedJson(text, "a call").ok();
  ordered_json json = reads ? ordered_json::parse(text, nullptr, false) : ordered_json();
  if (json.is_object()) json = ordered_json::array({std::move(json)});
  bool fits = json.is_array() && !json.empty();
  for (size_t i = 0; fits && i < json.size(); ++i) {
    const auto name = json[i].is_object() ? json[i].find("name") : json[i].end();
    fits = name != json[i].end() && name->is_string() &&
           options_.names.contains(name->get<std::string>());
    if (!fits) break;
    std::string arguments = ArgumentsOf(json[i], options_.calls->arguments);
    fits = !arguments.empty();
    found.push_back({AnswerPart::Kind::kCall, std::move(arguments), name->get<std::string>()});
  }
  if (!fits) {
    std::string words = Concat(mark_, text);
    if (!words.empty()) parts->push_back({AnswerPart::Kind::kContent, std::move(words)});
    return;
  }
  skips_blanks_ = true;
  for (AnswerPart& call : found) {
    if (calls_ >= options_.most_calls) break;
    ++calls_;
    parts->push_back(std::move(call));
  }
}

}  // namespace tessera::serve
