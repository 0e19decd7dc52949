// SPDX-License-Identifier: Apache-2.0
// What an assistant's answer consists of: words, reasoning, and calls of tools.
//
//   AnswerReader reader({.calls = CallFormOf(template_text), .names = {"weather"}});
//   for (const AnswerPart& part : reader.Push("<tool_call>{\"name\": \"weather\", ...")) ...
//   for (const AnswerPart& part : reader.Finish()) ...
//
// A call is returned once it is complete, with its arguments as the model spelled them. An end mark
// within a string of the arguments belongs to the string. What looks like a call and is none stays
// words: text that is no JSON, no tool of that name, or arguments that are neither absent, null, an
// object, nor a string that spells an object.
#ifndef TESSERA_DATA_CHAT_ANSWER_READER_H_
#define TESSERA_DATA_CHAT_ANSWER_READER_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// How a model writes calls: {"name": NAME, ARGUMENTS: {...}} between `begin` and `end`, one or
// several, in a list, or one behind the other with blanks or ";" between them.
struct CallForm {
  std::string_view begin;
  std::string_view end;        // "": the answer's end
  std::string_view arguments;  // the key
  bool list = false;           // written as a JSON list
  bool bare = false;           // an object that an answer begins with is a call, too
  // Written as NAME, this mark and {...}, and `begin` again before the next; "": as an object.
  std::string_view behind_name = "";
  std::string_view id = "";  // a mark behind the name that begins the call's id
};

// The form that a chat template shows or writes; nullptr: none that is known. Qwen 2.5 and Hermes
// (<tool_call>), Llama 3 (<|python_tag|>, "parameters"), and Mistral ([TOOL_CALLS] with a list, or
// with names before [ARGS]).
const CallForm* CallFormOf(std::string_view chat_template);

// Whether a template knows reasoning, <think>...</think>.
bool KnowsReasoning(std::string_view chat_template);

// The marks that parts begin and end with, which may be special tokens.
std::vector<std::string> MarksOf(const CallForm* calls, bool reasons);

struct AnswerPart {
  enum class Kind { kContent, kReasoning, kCall };
  Kind kind;
  // Of a call its arguments: an object as JSON without blanks, a string as it is; {}: there are
  // none.
  std::string text;
  std::string name = {};  // of a call
};

struct AnswerReaderOptions {
  const CallForm* calls = nullptr;   // nullptr: calls stay words
  std::set<std::string> names = {};  // the tools
  int64_t most_calls = INT64_MAX;    // later ones are left out
  bool reasons = false;              // <think> begins reasoning
  // What the prompt ends within.
  enum class Begin { kContent, kReasoning, kCall };
  Begin begin = Begin::kContent;
};

class AnswerReader {
 public:
  explicit AnswerReader(AnswerReaderOptions options);

  // The parts that are certain with more of the answer. Special tokens that are marks are given as
  // their text.
  std::vector<AnswerPart> Push(std::string_view text);
  // The rest, at the answer's end: a call whose end mark did not come counts where it is complete,
  // and reasoning without its end stays reasoning.
  std::vector<AnswerPart> Finish();

  int64_t calls() const { return calls_; }

 private:
  using Parts = std::vector<AnswerPart>;
  enum class State { kContent, kReasoning, kCall };

  bool Step(Parts* parts);
  bool StepContent(Parts* parts);
  bool StepReasoning(Parts* parts);
  // The mark behind the calls is at `at` of what is held.
  void EndCalls(size_t at, Parts* parts);
  // `end`: the mark behind the text.
  void AddCalls(std::string_view text, std::string_view end, Parts* parts);
  void Add(AnswerPart::Kind kind, size_t size, Parts* parts);

  const AnswerReaderOptions options_;
  State state_ = State::kContent;
  std::string held_;           // what is not certain yet
  std::string_view mark_;      // that began the call
  bool skips_blanks_ = false;  // before the words behind another part
  bool begins_ = true;         // nothing but blanks was there
  int64_t calls_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_ANSWER_READER_H_
