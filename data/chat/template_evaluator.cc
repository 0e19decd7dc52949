// SPDX-License-Identifier: Apache-2.0
#include "data/chat/template_evaluator.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "data/chat/stack_room.h"

namespace tessera::data::chat {
namespace {

using Kind = Expr::Kind;

// Calls of Execute and Evaluate within each other: a macro that calls itself ends here, before the
// stack does.
constexpr int kMaxLevels = 1000;
// The sandbox of Jinja has this one.
constexpr int64_t kMaxRange = 100'000;

// How Jinja's messages call it: "'dict object'", "'None'".
std::string ObjectName(const Value& value) {
  if (value.Is<None>()) return "None";
  return TypeName(value) + " object";
}

[[noreturn]] void FailUndefined(const Value& value) {
  throw TemplateFailure{*value.As<Undefined>()->why};
}

void CheckDefined(const Value& value) {
  if (value.IsUndefined()) FailUndefined(value);
}

int64_t CheckedInteger(const Value& value, const char* what) {
  CheckDefined(value);
  const auto number = value.AsInteger();
  if (!number) throw TemplateFailure{Concat(what, " is a ", TypeName(value), ", not an integer")};
  return *number;
}

[[noreturn]] void FailOverflow() { throw TemplateFailure{"a number is too large"}; }

// As datetime.now().strftime(): %f are microseconds, and there is no time zone to name.
std::string TimeText(const std::string& format, const std::optional<std::tm>& given) {
  timespec clock{};
  std::tm now{};
  if (given) {
    now = *given;
  } else {
    clock_gettime(CLOCK_REALTIME, &clock);
    localtime_r(&clock.tv_sec, &now);
  }
  std::string plain = " ";  // nothing but this can make an empty text
  for (size_t i = 0; i < format.size(); ++i) {
    const std::string_view rest = std::string_view(format).substr(i);
    const bool zone = rest.starts_with("%z") || rest.starts_with("%Z");
    if (rest.starts_with("%f")) {
      const std::string digits = std::to_string(clock.tv_nsec / 1000);
      plain += std::string(6 - digits.size(), '0') + digits;
    } else if (!zone && !rest.starts_with("%:z")) {
      plain += rest.substr(0, rest.starts_with("%%") ? 2 : 1);
    }
    i += rest.starts_with("%:z") ? 2 : zone || rest.starts_with("%f") || rest.starts_with("%%");
  }
  std::string text(256 + 4 * plain.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), plain.c_str(), &now));
  if (text.empty()) throw TemplateFailure{"strftime_now makes too long a text"};
  return text.substr(1);
}

int64_t FloorDivide(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) FailOverflow();
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value IntegerBinary(char op, bool doubled, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == '+' && !__builtin_add_overflow(a, b, &result)) return Value::Of(result);
  if (op == '-' && !__builtin_sub_overflow(a, b, &result)) return Value::Of(result);
  if (op == '*' && !doubled && !__builtin_mul_overflow(a, b, &result)) return Value::Of(result);
  if (op == '/' || op == '%') {
    if (b == 0) throw TemplateFailure{"division by zero"};
    if (op == '%') return Value::Of(b == -1 ? int64_t{0} : a - FloorDivide(a, b) * b);
    if (doubled) return Value::Of(FloorDivide(a, b));
    return Value::Of(static_cast<double>(a) / static_cast<double>(b));
  }
  if (op == '*' && doubled) {
    if (b < 0) {
      if (a == 0) throw TemplateFailure{"zero cannot be raised to a negative power"};
      return Value::Of(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    result = 1;
    if (a == 0 || a == 1) return Value::Of(b == 0 ? int64_t{1} : a);
    if (a == -1) return Value::Of(b % 2 == 0 ? int64_t{1} : int64_t{-1});
    for (int64_t i = 0; i < b; ++i) {
      if (__builtin_mul_overflow(result, a, &result)) FailOverflow();
    }
    return Value::Of(result);
  }
  FailOverflow();
}

Value FloatBinary(char op, bool doubled, double a, double b) {
  if (op == '+') return Value::Of(a + b);
  if (op == '-') return Value::Of(a - b);
  if (op == '*') return Value::Of(doubled ? std::pow(a, b) : a * b);
  if (b == 0) throw TemplateFailure{"division by zero"};
  if (op == '/') return Value::Of(doubled ? std::floor(a / b) : a / b);
  const double rest = std::fmod(a, b);
  return Value::Of(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

}  // namespace

class Evaluator::Level {
 public:
  explicit Level(Evaluator* evaluator) : evaluator_(evaluator) {
    if (++evaluator_->depth_ > kMaxLevels || !StackHasRoom()) {
      --evaluator_->depth_;
      throw TemplateFailure{"the template recurses too deeply"};
    }
  }
  ~Level() { --evaluator_->depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Evaluator* evaluator_;
};

Evaluator::Evaluator(Value::Items variables, const RenderOptions& options)
    : budget_(options.max_steps), options_(options), variables_(std::move(variables)) {}

Rendering Evaluator::Run(const std::vector<Node>& body) {
  Execute(body);
  return std::move(result_);
}

// --- Statements ----------------------------------------------------------------------------------

Evaluator::Flow Evaluator::Execute(const std::vector<Node>& body) {
  const Level level(this);
  for (const Node& node : body) {
    budget_.Spend(1);
    try {
      const Flow flow = ExecuteOne(node);
      if (flow != Flow::kOn) return flow;
    } catch (TemplateFailure& failure) {
      if (failure.line == 0) failure.line = node.line;
      throw;
    }
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::ExecuteOne(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kText:
      Write(node.text);
      break;
    case Node::Kind::kOutput: {
      const Value value = Evaluate(node.expr);
      budget_.Spend(value.weight());
      Write(Text(value));
      break;
    }
    case Node::Kind::kIf:
      for (const Node::Branch& branch : node.branches) {
        if (branch.condition.kind == Kind::kNothing || IsTrue(Evaluate(branch.condition))) {
          return Execute(branch.body);
        }
      }
      break;
    case Node::Kind::kFor:
      return ExecuteFor(node);
    case Node::Kind::kSet:
      Assign(node.target, Evaluate(node.expr));
      break;
    case Node::Kind::kSetBlock:
    case Node::Kind::kFilter: {
      Value text = Value::Of(CapturedInScope(node.body));
      if (node.expr.kind == Kind::kFilter) {
        // From the innermost filter, which is on nothing, outwards.
        std::vector<const Expr*> filters;
        for (const Expr* e = &node.expr; e->kind == Kind::kFilter; e = &e->parts[0]) {
          filters.insert(filters.begin(), e);
        }
        for (const Expr* filter : filters) {
          text = Filter(filter->name, text, EvaluateArguments(*filter));
        }
      }
      if (node.kind == Node::Kind::kFilter) {
        Write(Text(text));
      } else {
        Assign(node.target, text);
      }
      break;
    }
    case Node::Kind::kMacro:
      AssignName(node.text, Define(node.parameters, node.body, node.text));
      break;
    case Node::Kind::kCall:
      ExecuteCall(node);
      break;
    case Node::Kind::kWith: {
      std::vector<std::pair<std::string, Value>> variables;
      for (const auto& [name, expr] : node.parameters) variables.emplace_back(name, Evaluate(expr));
      const auto around = scope_;
      scope_ = std::make_shared<Scope>(Scope{around, std::move(variables)});
      const Flow flow = Execute(node.body);
      scope_ = around;
      return flow;
    }
    case Node::Kind::kGeneration: {
      const bool is_shown = out_ == &result_.text;
      const size_t begin = out_->size();
      const std::string text = CapturedInScope(node.body);
      Write(text);
      if (is_shown) result_.generated.push_back({begin, begin + text.size()});
      break;
    }
    case Node::Kind::kBreak:
      return Flow::kBreak;
    case Node::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::ExecuteFor(const Node& node) {
  Value::List items = Elements(Evaluate(node.expr));
  budget_.Spend(4 * items.size());  // scopes and the like
  const auto around = scope_;
  if (node.condition.kind != Kind::kNothing) {
    Value::List kept;
    for (Value& item : items) {
      scope_ = std::make_shared<Scope>(Scope{around});
      Assign(node.target, item);
      if (IsTrue(Evaluate(node.condition))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  scope_ = around;
  if (items.empty()) return Execute(node.otherwise);
  const Value all = Value::ListOf(std::move(items));
  const auto sequence = *all.As<std::shared_ptr<const Sequence>>();
  ++loops_;
  for (size_t i = 0; i < sequence->items.size(); ++i) {
    scope_ = std::make_shared<Scope>(Scope{around});
    AssignName("loop", Value::Of(Value::Any(std::make_shared<const Loop>(
                           Loop{.items = sequence, .index = i, .nesting = loops_}))));
    Assign(node.target, sequence->items[i]);
    if (Execute(node.body) == Flow::kBreak) break;
  }
  --loops_;
  scope_ = around;
  return Flow::kOn;
}

void Evaluator::ExecuteCall(const Node& node) {
  const Value caller = Define(node.parameters, node.body, "caller");
  const Value callee = Evaluate(node.expr.parts[0]);
  Write(Text(Call(callee, EvaluateArguments(node.expr), &caller)));
}

std::string Evaluator::Captured(const std::vector<Node>& body) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  Execute(body);
  out_ = out;
  return text;
}

std::string Evaluator::CapturedInScope(const std::vector<Node>& body) {
  const auto around = scope_;
  scope_ = std::make_shared<Scope>(Scope{around});
  std::string text = Captured(body);
  scope_ = around;
  return text;
}

void Evaluator::Write(std::string_view text) {
  budget_.SpendBytes(text.size());
  if (out_->size() + text.size() > options_.max_output) {
    throw TemplateFailure{"the template writes too much"};
  }
  *out_ += text;
}

void Evaluator::AssignName(const std::string& name, Value value) {
  for (auto& [mine, held] : scope_->variables) {
    if (mine == name) {
      held = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

void Evaluator::Assign(const Expr& target, const Value& value) {
  if (target.kind == Kind::kName) return AssignName(target.name, value);
  if (target.kind == Kind::kAttribute) {
    const Value object = FindName(target.parts[0].name);
    Namespace* const* const space = object.As<Namespace*>();
    if (space == nullptr) {
      throw TemplateFailure{"cannot assign attribute on non-namespace object"};
    }
    budget_.Spend((*space)->items.size() / 8);
    for (auto& [name, held] : (*space)->items) {
      if (name == target.name) {
        held = value;
        return;
      }
    }
    (*space)->items.emplace_back(target.name, value);
    return;
  }
  const Value::List items = Elements(value);
  if (items.size() != target.parts.size()) {
    throw TemplateFailure{Concat(items.size() < target.parts.size() ? "not enough" : "too many",
                                 " values to unpack (expected ", target.parts.size(), ", got ",
                                 items.size(), ")")};
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
}

Value Evaluator::Define(const std::vector<std::pair<std::string, Expr>>& parameters,
                        const std::vector<Node>& body, std::string name) {
  macros_.push_back(std::make_unique<Macro>(Macro{.parameters = &parameters,
                                                  .body = &body,
                                                  .name = std::move(name),
                                                  .scope = scope_,
                                                  .loops = loops_}));
  return Value::Of(Value::Any(static_cast<const Macro*>(macros_.back().get())));
}

// --- Expressions ---------------------------------------------------------------------------------

Value Evaluator::Evaluate(const Expr& expr) {
  const Level level(this);
  budget_.Spend(1);
  try {
    return EvaluateKind(expr);
  } catch (TemplateFailure& failure) {
    if (failure.line == 0) failure.line = expr.line;
    throw;
  }
}

Value Evaluator::EvaluateKind(const Expr& expr) {
  switch (expr.kind) {
    case Kind::kNothing:
      return Value();
    case Kind::kConstant:
      return expr.constant;
    case Kind::kName:
      return FindName(expr.name);
    case Kind::kList:
    case Kind::kTuple: {
      Value::List items;
      for (const Expr& part : expr.parts) items.push_back(Evaluate(part));
      return expr.kind == Kind::kList ? Value::ListOf(std::move(items))
                                      : Value::TupleOf(std::move(items));
    }
    case Kind::kMapping: {
      Value::Items items;
      for (size_t i = 0; i < expr.parts.size(); i += 2) {
        Value key = Evaluate(expr.parts[i]);
        Value value = Evaluate(expr.parts[i + 1]);
        budget_.Spend(items.size() * key.weight() / 8);
        const auto found = std::find_if(items.begin(), items.end(),
                                        [&](const auto& item) { return Equal(item.first, key); });
        if (key.AsMapping() != nullptr ||
            (key.AsSequence() != nullptr && key.AsSequence()->form == Sequence::Form::kList)) {
          throw TemplateFailure{Concat("unhashable type: '", TypeName(key), "'")};
        }
        if (found != items.end()) {
          found->second = std::move(value);
        } else {
          items.emplace_back(std::move(key), std::move(value));
        }
      }
      return Value::MappingOf(std::move(items));
    }
    case Kind::kAttribute:
      return AttributeOf(Evaluate(expr.parts[0]), expr.name);
    case Kind::kItem: {
      const Value object = Evaluate(expr.parts[0]);
      return ItemOf(object, Evaluate(expr.parts[1]));
    }
    case Kind::kSlice:
      return EvaluateSlice(expr);
    case Kind::kCall:
      return EvaluateCall(expr);
    case Kind::kFilter: {
      const Value input = Evaluate(expr.parts[0]);
      return Filter(expr.name, input, EvaluateArguments(expr));
    }
    case Kind::kTest: {
      const Value input = Evaluate(expr.parts[0]);
      return Value::Of(Test(expr.name, input, EvaluateArguments(expr)));
    }
    case Kind::kCompare:
      return EvaluateCompare(expr);
    case Kind::kAnd:
    case Kind::kOr: {
      Value left = Evaluate(expr.parts[0]);
      return IsTrue(left) == (expr.kind == Kind::kOr) ? left : Evaluate(expr.parts[1]);
    }
    case Kind::kNot:
      return Value::Of(!IsTrue(Evaluate(expr.parts[0])));
    case Kind::kNegative:
    case Kind::kPositive: {
      const Value value = Evaluate(expr.parts[0]);
      CheckDefined(value);
      const bool negative = expr.kind == Kind::kNegative;
      if (const auto integer = value.AsInteger()) {
        return Value::Of(negative ? *Binary("-", Value::Of(int64_t{0}), value).AsInteger()
                                  : *integer);
      }
      const auto number = value.AsNumber();
      if (!number) throw TemplateFailure{Concat("bad operand type for unary: ", TypeName(value))};
      return Value::Of(negative ? -*number : *number);
    }
    case Kind::kBinary: {
      const Value left = Evaluate(expr.parts[0]);
      return Binary(expr.name, left, Evaluate(expr.parts[1]));
    }
    case Kind::kConcat: {
      std::string text;
      for (const Expr& part : expr.parts) {
        const Value value = Evaluate(part);
        budget_.Spend(value.weight());
        text += Text(value);
      }
      return Value::Of(std::move(text));
    }
    case Kind::kCondition:
      if (IsTrue(Evaluate(expr.parts[0]))) return Evaluate(expr.parts[1]);
      if (expr.parts[2].kind == Kind::kNothing) {
        return Value::Missing("the inline if-expression evaluated to false and no else was given");
      }
      return Evaluate(expr.parts[2]);
  }
  return Value();
}

Value Evaluator::FindName(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get()) {
    budget_.Spend(scope->variables.size() / 8);
    for (const auto& [mine, value] : scope->variables) {
      if (mine == name) return value;
    }
  }
  for (const auto& [mine, value] : variables_) {
    if (*mine.AsString() == name) return value;
  }
  static constexpr std::pair<const char*, Function> kFunctions[] = {
      {"range", Function::kRange},
      {"dict", Function::kDict},
      {"namespace", Function::kNamespace},
      {"raise_exception", Function::kRaiseException},
      {"strftime_now", Function::kStrftimeNow}};
  for (const auto& [mine, function] : kFunctions) {
    if (name == mine) return Value::Of(Value::Any(function));
  }
  return Value::Missing(Concat("'", name, "' is undefined"));
}

Value Evaluator::EvaluateSlice(const Expr& expr) {
  const Value object = Evaluate(expr.parts[0]);
  CheckDefined(object);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.parts[i + 1].kind == Kind::kNothing) continue;
    const Value bound = Evaluate(expr.parts[i + 1]);
    if (!bound.Is<None>()) bounds[i] = CheckedInteger(bound, "a slice's bound");
  }
  const std::string* const text = object.AsString();
  const Sequence* const sequence = object.AsSequence();
  if (text == nullptr && (sequence == nullptr || !sequence->has_elements())) {
    return Value::Missing(Concat(ObjectName(object), " has no slices"));
  }
  const auto size = static_cast<int64_t>(Length(object));
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) throw TemplateFailure{"slice step cannot be zero"};
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    if (*bound < 0) return *bound < -size ? lowest : std::max(*bound + size, lowest);
    return std::min(*bound, highest);
  };
  const int64_t begin = place(bounds[0], step > 0 ? 0 : size - 1);
  const int64_t end = place(bounds[1], step > 0 ? size : -1);
  std::vector<size_t> places;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    places.push_back(static_cast<size_t>(i));
    if (step > size || step < -size) break;
    i += step;
  }
  budget_.Spend(static_cast<size_t>(size) + places.size());
  if (text != nullptr) {
    const std::vector<size_t> offsets = CharacterOffsets(*text);
    std::string out;
    for (const size_t i : places) out.append(*text, offsets[i], offsets[i + 1] - offsets[i]);
    return Value::Of(std::move(out));
  }
  Value::List items;
  for (const size_t i : places) items.push_back(sequence->items[i]);
  if (sequence->form == Sequence::Form::kTuple) return Value::TupleOf(std::move(items));
  if (sequence->form == Sequence::Form::kRange) return Value::RangeOf(std::move(items));
  return Value::ListOf(std::move(items));
}

Value Evaluator::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const std::string& op = expr.ops[i];
    Value right = Evaluate(expr.parts[i + 1]);
    bool holds = false;
    budget_.Spend(std::min(left.weight(), right.weight()));
    if (op == "==" || op == "!=") {
      holds = Equal(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      budget_.Spend(right.weight());
      holds = Contains(right, left) == (op == "in");
    } else {
      const int order = Compare(left, right, op.c_str());
      holds = (order < 0 && op[0] == '<') || (order > 0 && op[0] == '>') ||
              (order == 0 && op.size() == 2);
    }
    if (!holds) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

Arguments Evaluator::EvaluateArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.parts.size(); ++i) {
    arguments.values.push_back(Evaluate(expr.parts[i]));
  }
  for (const auto& [name, part] : expr.named) arguments.named.emplace_back(name, Evaluate(part));
  return arguments;
}

Value Evaluator::EvaluateCall(const Expr& expr) {
  const Value callee = Evaluate(expr.parts[0]);
  return Call(callee, EvaluateArguments(expr), nullptr);
}

Value Evaluator::Call(const Value& callee, Arguments arguments, const Value* caller) {
  CheckDefined(callee);
  if (const auto* macro = callee.As<const Macro*>()) {
    return CallMacro(**macro, std::move(arguments), caller);
  }
  if (const auto* function = callee.As<Function>()) {
    return CallFunction(*function, std::move(arguments));
  }
  if (const auto* method = callee.As<std::shared_ptr<const Method>>()) {
    if (const auto* loop = (*method)->self.As<std::shared_ptr<const Loop>>()) {
      return CallLoop(**loop, (*method)->name, arguments);
    }
    return CallMethod((*method)->self, (*method)->name, arguments, &budget_);
  }
  throw TemplateFailure{Concat("'", TypeName(callee), "' object is not callable")};
}

Value Evaluator::CallMacro(const Macro& macro, Arguments arguments, const Value* caller) {
  const auto& parameters = *macro.parameters;
  if (arguments.values.size() > parameters.size()) {
    throw TemplateFailure{
        Concat("macro '", macro.name, "' takes not more than ", parameters.size(), " argument(s)")};
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&name = name](const auto& p) { return p.first == name; });
    if (found == parameters.end()) {
      throw TemplateFailure{
          Concat("macro '", macro.name, "' takes no keyword argument '", name, "'")};
    }
    if (static_cast<size_t>(found - parameters.begin()) < arguments.values.size()) {
      throw TemplateFailure{
          Concat("macro '", macro.name, "' got multiple values for argument '", name, "'")};
    }
  }
  const auto around = std::exchange(scope_, std::make_shared<Scope>(Scope{macro.scope}));
  const int loops = std::exchange(loops_, macro.loops);
  if (caller != nullptr) AssignName("caller", *caller);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, otherwise] = parameters[i];
    const Value* const given = ArgumentOf(arguments, i, name);
    Value value = given != nullptr ? *given
                  : otherwise.kind != Kind::kNothing
                      ? Evaluate(otherwise)
                      : Value::Missing(Concat("parameter '", name, "' was not provided"));
    AssignName(name, std::move(value));
  }
  std::string text = Captured(*macro.body);
  scope_ = around;
  loops_ = loops;
  return Value::Of(std::move(text));
}

Value Evaluator::CallFunction(Function function, Arguments arguments) {
  switch (function) {
    case Function::kRange: {
      CheckArguments("range", arguments, 3, {});
      if (arguments.values.empty()) throw TemplateFailure{"range expects an argument"};
      int64_t bounds[3] = {0, 0, 1};
      for (size_t i = 0; i < arguments.values.size(); ++i) {
        bounds[arguments.values.size() == 1 ? 1 : i] = CheckedInteger(arguments.values[i], "range");
      }
      const auto [begin, end, step] = bounds;
      if (step == 0) throw TemplateFailure{"range() arg 3 must not be zero"};
      Value::List items;
      for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        items.push_back(Value::Of(i));
        if (std::ssize(items) > kMaxRange) {
          throw TemplateFailure{Concat("a range has more than ", kMaxRange, " numbers")};
        }
        if (__builtin_add_overflow(i, step, &i)) break;
      }
      budget_.Spend(items.size());
      return Value::RangeOf(std::move(items));
    }
    case Function::kDict:
    case Function::kNamespace: {
      CheckArguments("dict", {arguments.values, {}}, 1, {});
      Value::Items items;
      if (!arguments.values.empty()) {
        const Mapping* const first = arguments.values[0].AsMapping();
        if (first == nullptr) throw TemplateFailure{"expected a dict"};
        items = first->items;
      }
      for (auto& [name, value] : arguments.named) {
        const auto found =
            std::find_if(items.begin(), items.end(), [&name = name](const auto& item) {
              return item.first.AsString() != nullptr && *item.first.AsString() == name;
            });
        if (found != items.end()) {
          found->second = std::move(value);
        } else {
          items.emplace_back(Value::Of(name), std::move(value));
        }
      }
      budget_.Spend(items.size());
      if (function == Function::kDict) return Value::MappingOf(std::move(items));
      namespaces_.push_back(std::make_unique<Namespace>());
      for (auto& [name, value] : items) {
        namespaces_.back()->items.emplace_back(Text(name), std::move(value));
      }
      return Value::Of(Value::Any(namespaces_.back().get()));
    }
    case Function::kRaiseException: {
      const Value* const message = ArgumentOf(arguments, 0, "message");
      throw TemplateFailure{message == nullptr ? "the template refuses" : Text(*message)};
    }
    case Function::kStrftimeNow: {
      const Value* const format = ArgumentOf(arguments, 0, "format");
      if (format == nullptr || format->AsString() == nullptr) {
        throw TemplateFailure{"strftime_now expects a format"};
      }
      budget_.SpendBytes(format->AsString()->size());
      return Value::Of(TimeText(*format->AsString(), options_.now));
    }
  }
  return Value();
}

Value Evaluator::CallLoop(const Loop& loop, std::string_view name, const Arguments& arguments) {
  if (name != "cycle") throw TemplateFailure{Concat("loop.", name, " cannot be called")};
  if (arguments.values.empty()) throw TemplateFailure{"no items for cycling given"};
  return arguments.values[loop.index % arguments.values.size()];
}

// --- Operators and members -----------------------------------------------------------------------

Value Evaluator::Binary(const std::string& op, const Value& a, const Value& b) {
  CheckDefined(a);
  CheckDefined(b);
  for (const Value* side : {&a, &b}) {
    if (side->Is<BigInteger>()) throw TemplateFailure{"an integer beyond 64 bits is computed with"};
  }
  const bool doubled = op.size() == 2;
  const auto x = a.AsInteger();
  const auto y = b.AsInteger();
  if (x && y) return IntegerBinary(op[0], doubled, *x, *y);
  if (a.AsNumber() && b.AsNumber()) {
    return FloatBinary(op[0], doubled, *a.AsNumber(), *b.AsNumber());
  }
  const std::string* const text = a.AsString();
  const Sequence* const list = a.AsSequence();
  if (op == "+" && text != nullptr && b.AsString() != nullptr) {
    budget_.SpendBytes(text->size() + b.AsString()->size());
    return Value::Of(*text + *b.AsString());
  }
  if (op == "+" && list != nullptr && b.AsSequence() != nullptr &&
      list->form == b.AsSequence()->form && list->has_elements() &&
      list->form != Sequence::Form::kRange) {
    Value::List items = list->items;
    items.insert(items.end(), b.AsSequence()->items.begin(), b.AsSequence()->items.end());
    budget_.Spend(items.size());
    return list->form == Sequence::Form::kTuple ? Value::TupleOf(std::move(items))
                                                : Value::ListOf(std::move(items));
  }
  if (op == "*" && x) return Binary(op, b, a);
  if (op == "*" && y && text != nullptr) {
    const auto times = static_cast<size_t>(std::max<int64_t>(0, *y));
    if (!text->empty())
      budget_.SpendBytes(times > (size_t{1} << 40) ? times : times * text->size());
    std::string out;
    for (size_t i = 0; i < times && !text->empty(); ++i) out += *text;
    return Value::Of(std::move(out));
  }
  if (op == "*" && y && list != nullptr && list->form == Sequence::Form::kList) {
    const auto times = static_cast<size_t>(std::max<int64_t>(0, *y));
    Value::List items;
    for (size_t i = 0; i < times && !list->items.empty(); ++i) {
      budget_.Spend(list->items.size());
      items.insert(items.end(), list->items.begin(), list->items.end());
    }
    return Value::ListOf(std::move(items));
  }
  if (op == "%" && text != nullptr) throw TemplateFailure{"texts are not formatted with %"};
  throw TemplateFailure{Concat("unsupported operand type(s) for ", op, ": '", TypeName(a),
                               "' and '", TypeName(b), "'")};
}

Value Evaluator::AttributeOf(const Value& object, const std::string& name) {
  CheckDefined(object);
  if (Namespace* const* space = object.As<Namespace*>()) {
    for (const auto& [mine, value] : (*space)->items) {
      if (mine == name) return value;
    }
  }
  if (const auto* held = object.As<std::shared_ptr<const Loop>>()) {
    const Loop& loop = **held;
    const auto index = static_cast<int64_t>(loop.index);
    const auto length = std::ssize(loop.items->items);
    if (name == "index") return Value::Of(index + 1);
    if (name == "index0") return Value::Of(index);
    if (name == "revindex") return Value::Of(static_cast<int64_t>(length - index));
    if (name == "revindex0") return Value::Of(static_cast<int64_t>(length - index - 1));
    if (name == "first") return Value::Of(index == 0);
    if (name == "last") return Value::Of(index + 1 == length);
    if (name == "length") return Value::Of(static_cast<int64_t>(length));
    if (name == "depth") return Value::Of(int64_t{1});
    if (name == "depth0") return Value::Of(int64_t{0});
    if (name == "previtem") {
      return index > 0 ? loop.items->items[loop.index - 1]
                       : Value::Missing("there is no previous item");
    }
    if (name == "nextitem") {
      return index + 1 < length ? loop.items->items[loop.index + 1]
                                : Value::Missing("there is no next item");
    }
  }
  if (HasMethod(object, name)) {
    return Value::Of(Value::Any(std::make_shared<const Method>(Method{object, name})));
  }
  if (const Mapping* mapping = object.AsMapping()) {
    budget_.Spend(mapping->items.size() / 8);
    if (const Value* value = mapping->Find(name)) return *value;
  }
  return Value::Missing(Concat("'", ObjectName(object), "' has no attribute '", name, "'"));
}

Value Evaluator::ItemOf(const Value& object, const Value& key) {
  CheckDefined(object);
  if (const Mapping* mapping = object.AsMapping()) {
    budget_.Spend(mapping->items.size() * key.weight() / 8);
    if (const Value* value = mapping->Find(key)) return *value;
  }
  const auto index = key.AsInteger();
  const Sequence* const sequence = object.AsSequence();
  const bool indexed =
      object.AsString() != nullptr || (sequence != nullptr && sequence->has_elements());
  if (index && indexed) {
    const auto size = static_cast<int64_t>(Length(object));
    const int64_t place = *index < 0 ? *index + size : *index;
    if (place >= 0 && place < size) {
      if (sequence != nullptr) return sequence->items[static_cast<size_t>(place)];
      budget_.SpendBytes(static_cast<size_t>(size));
      const std::vector<size_t> offsets = CharacterOffsets(*object.AsString());
      const size_t begin = offsets[static_cast<size_t>(place)];
      return Value::Of(
          object.AsString()->substr(begin, offsets[static_cast<size_t>(place) + 1] - begin));
    }
  }
  if (const std::string* name = key.AsString()) return AttributeOf(object, *name);
  return Value::Missing(Concat(ObjectName(object), " has no element ", Text(key)));
}

}  // namespace tessera::data::chat
