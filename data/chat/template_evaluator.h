// SPDX-License-Identifier: Apache-2.0
// Runs the tree of a chat template over the variables of a conversation.
#ifndef TESSERA_DATA_CHAT_TEMPLATE_EVALUATOR_H_
#define TESSERA_DATA_CHAT_TEMPLATE_EVALUATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/template_syntax.h"
#include "data/chat/template_value.h"

namespace tessera::data::chat {

// Counts what a rendering does and makes, and ends it where that is too much.
class Budget {
 public:
  explicit Budget(int64_t steps) : left_(steps) {}
  void SpendBytes(size_t bytes) { Spend(bytes / 16); }
  void Spend(size_t steps) {
    left_ -= static_cast<int64_t>(std::min<size_t>(steps, INT64_MAX / 2));
    if (left_ < 0) throw TemplateFailure{"the template takes too many steps"};
  }

 private:
  int64_t left_;
};

// Variables of a block. Macros keep the one they are written in.
struct Scope {
  std::shared_ptr<Scope> around;
  std::vector<std::pair<std::string, Value>> variables = {};
};

struct Macro {
  const std::vector<std::pair<std::string, Expr>>* parameters;
  const std::vector<Node>* body;
  std::string name;
  std::shared_ptr<Scope> scope;
  int loops = 0;
};

// Arguments of a call, filter or test.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

class Evaluator {
 public:
  Evaluator(Value::Items variables, const RenderOptions& options);

  Rendering Run(const std::vector<Node>& body);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  // What limits how deep the C++ functions recurse.
  class Level;

  Flow Execute(const std::vector<Node>& body);
  Flow ExecuteOne(const Node& node);
  Flow ExecuteFor(const Node& node);
  void ExecuteCall(const Node& node);
  std::string Captured(const std::vector<Node>& body);
  std::string CapturedInScope(const std::vector<Node>& body);
  void Write(std::string_view text);
  void Assign(const Expr& target, const Value& value);
  void AssignName(const std::string& name, Value value);
  Value Define(const std::vector<std::pair<std::string, Expr>>& parameters,
               const std::vector<Node>& body, std::string name);

  Value Evaluate(const Expr& expr);
  Value EvaluateKind(const Expr& expr);
  Value FindName(const std::string& name);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateCall(const Expr& expr);
  Arguments EvaluateArguments(const Expr& expr);
  Value Call(const Value& callee, Arguments arguments, const Value* caller);
  Value CallMacro(const Macro& macro, Arguments arguments, const Value* caller);
  Value CallFunction(Function function, Arguments arguments);
  Value CallLoop(const Loop& loop, std::string_view name, const Arguments& arguments);

  Value Binary(const std::string& op, const Value& a, const Value& b);
  Value AttributeOf(const Value& object, const std::string& name);
  Value ItemOf(const Value& object, const Value& key);

  // template_filters.cc
  Value Filter(const std::string& name, const Value& input, Arguments arguments);
  Value SequenceFilter(const std::string& name, const Value& input, Arguments arguments);
  Value Mapped(const Value& input, Arguments arguments);
  Value Selected(const std::string& name, const Value& input, Arguments arguments);
  bool Test(const std::string& name, const Value& input, const Arguments& arguments);
  Value PathOf(const Value& object, const Value& path);

  Budget budget_;
  const RenderOptions& options_;
  const Value::Items variables_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Macro>> macros_;
  Rendering result_;
  std::string* out_ = &result_.text;
  int depth_ = 0;
  int loops_ = 0;
};

// Whether values of this kind have such a method (template_methods.cc); and what it gives.
bool HasMethod(const Value& self, std::string_view name);
Value CallMethod(const Value& self, const std::string& name, const Arguments& arguments,
                 Budget* budget);
// Of texts: str.upper, str.lower, str.title, str.capitalize.
std::string UpperCase(std::string_view text);
std::string LowerCase(std::string_view text);
std::string Capitalized(std::string_view text);

// The argument at a place, or of a name; nullptr: it is not given.
const Value* ArgumentOf(const Arguments& arguments, size_t place, std::string_view name);
std::string ReplacedText(const std::string& text, const std::string& from, const std::string& to,
                         int64_t count, Budget* budget);
std::string StrippedOf(std::string_view text, const std::string* characters, bool left, bool right);
// Fails where a call has more than `most`, or an argument that is not among `names`.
void CheckArguments(const std::string& what, const Arguments& arguments, size_t most,
                    std::initializer_list<std::string_view> names);

}  // namespace tessera::data::chat

#endif  // TESSERA_DATA_CHAT_TEMPLATE_EVALUATOR_H_
