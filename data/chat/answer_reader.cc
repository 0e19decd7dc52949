// SPDX-License-Identifier: Apache-2.0
#include "data/chat/answer_reader.h"

#include <algorithm>
#include <utility>

#include "base/json_ordered.h"
#include "base/json_reader.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlanks = " \t\r\n";

constexpr CallForm kTagged = {
    .begin = "<tool_call>", .end = "</tool_call>", .arguments = "arguments"};
constexpr CallForm kListed = {
    .begin = "[TOOL_CALLS]", .end = "", .arguments = "arguments", .list = true};
constexpr CallForm kNamed = {.begin = "[TOOL_CALLS]",
                             .end = "",
                             .arguments = "arguments",
                             .behind_name = "[ARGS]",
                             .id = "[CALL_ID]"};
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

std::string_view WithoutBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Cuts the object or list off that `rest` begins with; empty: it begins with none that ends.
std::string_view CutStructure(std::string_view* rest) {
  if (!rest->starts_with('{') && !rest->starts_with('[')) return {};
  int64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < rest->size(); ++i) {
    const char c = (*rest)[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      const std::string_view all = *rest;
      *rest = all.substr(i + 1);
      return all.substr(0, i + 1);
    }
  }
  return {};
}

// Cuts "NAME[CALL_ID]ID[ARGS]" off.
std::string_view CutName(const CallForm& form, std::string_view* rest) {
  const size_t at = rest->find(form.behind_name);
  if (at == std::string_view::npos) return {};
  std::string_view name = rest->substr(0, at);
  *rest = WithoutBlanks(rest->substr(at + form.behind_name.size()));
  if (!form.id.empty()) name = name.substr(0, name.find(form.id));
  return WithoutBlanks(name);
}

// A call in the model's spelling: the tree of a JSON text would round its numbers.
struct SpelledCall {
  std::string name;
  std::string_view arguments;  // JSON; empty: there are none
};

// The text of a value that the reader passes over. The reader's text is `json`, which is valid.
std::string_view TakeValue(std::string_view json, JsonReader* reader) {
  const size_t begin = reader->position();
  reader->SkipValue();
  return WithoutBlanks(json.substr(begin, reader->position() - begin));
}

// The value of a valid object's member, of several with that key the last; empty: there is none.
std::string_view MemberOf(std::string_view object, std::string_view wanted) {
  JsonReader reader(object);
  std::string_view found;
  reader.Take('{');
  for (std::string key; reader.ReadString(&key) && reader.Take(':'); key.clear()) {
    const std::string_view value = TakeValue(object, &reader);
    if (key == wanted) found = value;
    if (!reader.Take(',')) break;
  }
  return found;
}

// Adds the calls of a valid object or list; false: it holds something else.
bool AddSpelledCalls(std::string_view json, const CallForm& form, std::vector<SpelledCall>* calls) {
  JsonReader reader(json);
  if (reader.Take('[')) {
    while (reader.Next() == '{') {
      if (!AddSpelledCalls(TakeValue(json, &reader), form, calls)) return false;
      reader.Take(',');
    }
    return reader.Take(']');
  }
  SpelledCall call;
  const std::string_view name = MemberOf(json, "name");
  if (!JsonReader(name).ReadString(&call.name)) return false;
  call.arguments = MemberOf(json, form.arguments);
  // Models that learnt both keys mix them up.
  const char* const other = form.arguments == "arguments" ? "parameters" : "arguments";
  if (call.arguments.empty()) call.arguments = MemberOf(json, other);
  calls->push_back(std::move(call));
  return true;
}

// The calls, one behind the other; empty where anything else is there.
std::vector<SpelledCall> CallsIn(std::string_view text, const CallForm& form) {
  std::vector<SpelledCall> calls;
  for (std::string_view rest = WithoutBlanks(text); !rest.empty(); rest = WithoutBlanks(rest)) {
    if (!calls.empty() && rest.starts_with(';')) rest = WithoutBlanks(rest.substr(1));
    const bool again = !calls.empty() && !form.behind_name.empty() && rest.starts_with(form.begin);
    if (again) rest = WithoutBlanks(rest.substr(form.begin.size()));
    const bool named =
        !form.behind_name.empty() && !rest.starts_with('{') && !rest.starts_with('[');
    const std::string_view name = named ? CutName(form, &rest) : std::string_view();
    const std::string_view json = CutStructure(&rest);
    if (!ParseOrderedJson(json, "a call", {.strict = true}).ok()) return {};
    if (named) {
      calls.push_back({std::string(name), json});
    } else if (!AddSpelledCalls(json, form, &calls)) {
      return {};
    }
  }
  return calls;
}

// Where the mark behind calls begins; npos: it has not come yet. Within a string of JSON it is a
// part of an argument, unless the calls are malformed.
size_t EndOfCalls(std::string_view text, const CallForm& form) {
  const size_t first = form.end.empty() ? std::string_view::npos : text.find(form.end);
  if (first == std::string_view::npos) return first;
  const std::string_view begin = WithoutBlanks(text);
  if (!begin.starts_with('{') && !begin.starts_with('[')) return first;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (static_cast<unsigned char>(c) < 0x20) return first;  // JSON has it escaped
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (text.substr(i).starts_with(form.end)) {
      return i == first || !CallsIn(text.substr(0, i), form).empty() ? i : first;
    } else {
      quoted = c == '"';
    }
  }
  return std::string_view::npos;
}

std::string WithoutBlanksBetween(std::string_view json) {
  std::string text;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!quoted && kBlanks.find(c) != std::string_view::npos) continue;
    text += c;
    if (c == '"') quoted = !quoted;
    if (c == '\\') text += json[++i];
  }
  return text;
}

// A call's arguments as the text of an object, in the model's spelling; "": they are none.
std::string ArgumentsOf(const SpelledCall& call) {
  const std::string_view json = call.arguments;
  if (json.empty() || json == "null") return "{}";
  if (json.starts_with('{')) return WithoutBlanksBetween(json);
  std::string text;
  if (!JsonReader(json).ReadString(&text)) return "";
  const bool object =
      WithoutBlanks(text).starts_with('{') && ParseOrderedJson(text, "", {.strict = true}).ok();
  return object ? text : "";
}

}  // namespace

const CallForm* CallFormOf(std::string_view chat_template) {
  if (Has(chat_template, "<tool_call>")) {
    // Others begin alike and do not write JSON.
    return Has(chat_template, "<function=") ? nullptr : &kTagged;
  }
  if (Has(chat_template, "[TOOL_CALLS]")) {
    return Has(chat_template, "[ARGS]") ? &kNamed : &kListed;
  }
  const bool llama = Has(chat_template, "<|python_tag|>") ||
                     Has(chat_template, R"({"name": function name, "parameters")");
  return llama ? &kBare : nullptr;
}

bool KnowsReasoning(std::string_view chat_template) { return Has(chat_template, kThinkEnd); }

std::vector<std::string> MarksOf(const CallForm* calls, bool reasons) {
  std::vector<std::string> marks;
  if (reasons) marks = {std::string(kThink), std::string(kThinkEnd)};
  if (calls == nullptr) return marks;
  for (const std::string_view mark : {calls->begin, calls->end, calls->behind_name, calls->id}) {
    if (!mark.empty()) marks.emplace_back(mark);
  }
  return marks;
}

AnswerReader::AnswerReader(AnswerReaderOptions options) : options_(std::move(options)) {
  using Begin = AnswerReaderOptions::Begin;
  if (options_.begin == Begin::kReasoning) state_ = State::kReasoning;
  if (options_.begin == Begin::kCall) state_ = State::kCall;
  skips_blanks_ = state_ == State::kReasoning;
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
  // What a string that never ended has held back may hold the end of its call, and more.
  while (state_ == State::kCall) {
    const std::string_view end = options_.calls->end;
    const size_t first = end.empty() ? std::string::npos : held_.find(end);
    if (first == std::string::npos || !CallsIn(held_, *options_.calls).empty()) break;
    EndCalls(first, &parts);
    while (!held_.empty() && Step(&parts)) {
    }
  }
  const std::string rest = std::exchange(held_, {});
  if (state_ == State::kCall) {
    AddCalls(rest, "", &parts);
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
    const size_t at = EndOfCalls(held_, *options_.calls);
    if (at == std::string::npos) return false;
    EndCalls(at, parts);
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

void AnswerReader::EndCalls(size_t at, Parts* parts) {
  const std::string_view end = options_.calls->end;
  AddCalls(std::string_view(held_).substr(0, at), end, parts);
  held_.erase(0, at + end.size());
  state_ = State::kContent;
}

void AnswerReader::AddCalls(std::string_view text, std::string_view end, Parts* parts) {
  Parts found;
  const std::vector<SpelledCall> calls = CallsIn(text, *options_.calls);
  bool fits = !calls.empty();
  for (const SpelledCall& call : calls) {
    std::string arguments = ArgumentsOf(call);
    fits = options_.names.contains(call.name) && !arguments.empty();
    if (!fits) break;
    found.push_back({AnswerPart::Kind::kCall, std::move(arguments), call.name});
  }
  if (!fits) {
    std::string words = Concat(mark_, text, end);
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

}  // namespace tessera::data
