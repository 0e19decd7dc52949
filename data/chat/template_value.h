// SPDX-License-Identifier: Apache-2.0
// The values of a chat template: Python's, as Jinja shows them, and immutable but for namespaces.
//
//   const Value role = Value::Of("user");
//   Text(role);                  // str(): "user"
//   Repr(role);                  // repr(): "'user'"
//   Json(role, {});              // json.dumps(): "\"user\""
//
// Whatever cannot be throws TemplateFailure, which the evaluator gives a line and ChatTemplate
// makes a status of. Containers know how deep they are, so that neither printing nor destroying one
// exhausts the stack, and how much printing or comparing one takes: parts are shared, so that a few
// steps make what would print as more than there is memory.
#ifndef TESSERA_DATA_CHAT_TEMPLATE_VALUE_H_
#define TESSERA_DATA_CHAT_TEMPLATE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace tessera::data::chat {

struct TemplateFailure {
  std::string message;
  int line = 0;  // 0: not known yet
};

// Containers within each other.
inline constexpr int kMaxValueDepth = 100;
// Values and sixteens of bytes within one, shared ones each time.
inline constexpr size_t kMaxValueWeight = 10'000'000;

class Value;
struct Sequence;
struct Mapping;
struct Namespace;
struct Macro;
struct Loop;
struct Method;

// A name or member that is not there. It prints as nothing; to look into it is an error.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};
// An integer beyond 64 bits: it is shown and compared, and not computed with.
struct BigInteger {
  std::shared_ptr<const std::string> digits;  // with their sign
};
// What templates find by name without being given it.
enum class Function { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

class Value {
 public:
  using List = std::vector<Value>;
  using Items = std::vector<std::pair<Value, Value>>;
  // Namespaces and macros are the evaluator's: those that hold one another must not keep each
  // other.
  using Any = std::variant<Undefined, None, bool, int64_t, BigInteger, double,
                           std::shared_ptr<const std::string>, std::shared_ptr<const Sequence>,
                           std::shared_ptr<const Mapping>, Namespace*, const Macro*,
                           std::shared_ptr<const Loop>, std::shared_ptr<const Method>, Function>;

  Value() : any_(None()) {}
  static Value Missing(std::string why);
  static Value Of(bool value) { return Value(Any(value)); }
  static Value Of(int64_t value) { return Value(Any(value)); }
  static Value Of(double value) { return Value(Any(value)); }
  static Value Of(std::string text);
  static Value Of(std::string_view text) { return Of(std::string(text)); }
  static Value Of(const char* text) { return Of(std::string(text)); }
  static Value ListOf(List items);
  static Value TupleOf(List items);
  static Value RangeOf(List items);
  static Value ViewOf(List items);       // dict.items()
  static Value GeneratorOf(List items);  // map, select
  static Value MappingOf(Items items);
  static Value Of(Any any) { return Value(std::move(any)); }
  static Value FromJson(const nlohmann::ordered_json& json);

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&any_);
  }
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(any_);
  }
  const std::string* AsString() const;
  const Sequence* AsSequence() const;
  const Mapping* AsMapping() const;
  bool IsUndefined() const { return Is<Undefined>(); }
  // A bool counts as a number, as in Python.
  std::optional<int64_t> AsInteger() const;
  std::optional<double> AsNumber() const;
  int depth() const;
  size_t weight() const;

 private:
  explicit Value(Any any) : any_(std::move(any)) {}

  Any any_;
};

struct Sequence {
  enum class Form { kList, kTuple, kRange, kView, kGenerator };
  Value::List items;
  Form form = Form::kList;
  int depth = 1;
  size_t weight = 1;

  bool has_length() const { return form != Form::kGenerator; }
  bool has_elements() const { return form != Form::kView && form != Form::kGenerator; }
};

struct Mapping {
  Value::Items items;  // in the order of insertion
  int depth = 1;
  size_t weight = 1;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index = 0;
  int nesting = 1;  // 1: the outermost
};

// A method that is not called yet: `message.items`.
struct Method {
  Value self;
  std::string name;
};

// Python's name of the type: "str".
std::string TypeName(const Value& value);
bool IsTrue(const Value& value);
bool Equal(const Value& a, const Value& b);
// Negative, 0, positive; fails for what has no order. `op` is what the message calls it.
int Compare(const Value& a, const Value& b, const char* op);
bool Contains(const Value& container, const Value& item);

std::string Text(const Value& value);
std::string Repr(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent = {};
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string Json(const Value& value, const JsonStyle& style);

// The elements that a loop goes through: of a mapping the keys, of a text the characters.
Value::List Elements(const Value& value);
size_t Length(const Value& value);
// Where the characters of a text begin, and its end.
std::vector<size_t> CharacterOffsets(std::string_view text);

}  // namespace tessera::data::chat

#endif  // TESSERA_DATA_CHAT_TEMPLATE_VALUE_H_
