// SPDX-License-Identifier: Apache-2.0
// Options: a struct whose fields stand declared once, with everything that flags, files, help,
// documentation and checks want to know of them.
//
//   struct LionOptions {
//     double lr = 1e-4;
//     std::vector<double> betas = {0.9, 0.99};
//     std::optional<double> clip;
//
//     static const OptionTable& Table() {
//       static const auto* table = new OptionTable(
//           OptionTable::Of<LionOptions>("Lion")
//               .Add("lr", &LionOptions::lr, "learning rate", {.least = 0})
//               .Add("betas", &LionOptions::betas, "decay rates", {.least = 0, .below = 1, .count =
//               2}) .Add("clip", &LionOptions::clip, "of every element", {.unset = "off"}));
//       return *table;
//     }
//   };
//   TESSERA_ASSIGN_OR_RETURN(const auto options, ParseOptions<LionOptions>(json, "run.json"));
//
// A field is a bool, an int64_t, a double, a std::string, a std::vector of one of the last three, a
// std::vector<std::vector<int64_t>>, a std::map<int64_t, double>, or a std::optional of one of the
// first four, which is for what has no natural default. Its default is the struct's own. An empty
// text is none.
#ifndef TESSERA_BASE_OPTIONS_H_
#define TESSERA_BASE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera {

// A key of other systems that means the same, with the same unit.
struct OptionAlias {
  std::string name;
  std::string system;  // "Hugging Face"
};

// Another key with one of these values, as ToText writes them: {"zero", {"1", "2", "3"}}. Without
// values: with any at all; "" among them: also without.
struct OptionValue {
  std::string key;
  std::vector<std::string> values = {};
};

// What is known of an option beside its name, type, default and help.
struct OptionNotes {
  // Bounds of a number, or of every number of a list: least <= x <= most, above < x < below.
  std::optional<double> least = {};
  std::optional<double> above = {};
  std::optional<double> most = {};
  std::optional<double> below = {};
  int count = 0;                          // of a list; 0: any number
  std::string type = {};                  // of values, in a help text: "FILE"; empty: by the kind
  std::vector<std::string> choices = {};  // of a text
  std::string unset = {};                 // what it is without a value: "the model's"
  // It means something where, of each of these lists, one holds. A value that asks for nothing
  // passes everywhere: `neutral`, and of a switch its default.
  std::vector<std::vector<OptionValue>> needs = {};
  JsonMember neutral = {};
  bool changes_results = true;  // false: where a run lives, what it prints, how it is laid out
  bool evaluation = false;      // an evaluation takes it too
  std::vector<OptionAlias> aliases = {};
  // Texts of other systems and what they are here: {{"fp16", "float16"}}.
  std::vector<std::pair<std::string, std::string>> values = {};
};

namespace options_internal {

// The notes of an option that is declared without any: made once, not at every declaration.
const OptionNotes& NoNotes();

// How a field of one type is read and written, whatever struct it is in.
struct Access {
  nlohmann::json (*get)(const void* field);
  void (*set)(void* field, const nlohmann::json& converted);
  void (*copy)(void* to, const void* from);
};
const Access& AccessTo(const bool*);
const Access& AccessTo(const int64_t*);
const Access& AccessTo(const double*);
const Access& AccessTo(const std::string*);
const Access& AccessTo(const std::vector<double>*);
const Access& AccessTo(const std::vector<std::string>*);
const Access& AccessTo(const std::vector<int64_t>*);
const Access& AccessTo(const std::vector<std::vector<int64_t>>*);
const Access& AccessTo(const std::map<int64_t, double>*);
const Access& AccessTo(const std::optional<bool>*);
const Access& AccessTo(const std::optional<int64_t>*);
const Access& AccessTo(const std::optional<double>*);
const Access& AccessTo(const std::optional<std::string>*);

}  // namespace options_internal

// What one field of the struct is, as flags, files and help want to know it.
class Option {
 public:
  enum class Kind {
    kBool,
    kInteger,
    kNumber,
    kText,
    kNumbers,
    kTexts,
    kIntegers,
    kIntegerLists,
    kWeights  // numbers by integers: an object, whose keys are decimal
  };

  std::string key;
  std::string help;
  OptionNotes notes;
  Kind kind = Kind::kText;
  std::string section;  // the title of the table that declares it
  const nlohmann::json& default_value() const { return default_; }

  // Of the struct behind `object`; null: not set.
  nlohmann::json Get(const void* object) const;
  // From a file: checks type and range, understands other systems' values; null leaves the default.
  // `where` is what messages call it.
  Status Set(void* object, const nlohmann::json& value, const std::string& where) const;
  // The value that Set would give; null: the default.
  StatusOr<nlohmann::json> Convert(const nlohmann::json& value, const std::string& where) const;
  // The same of a value without a field.
  static StatusOr<nlohmann::json> Convert(Kind kind, const OptionNotes& notes,
                                          const nlohmann::json& value, const std::string& where);
  // The struct's member gets its default.
  void Reset(void* object) const {
    access_->copy(static_cast<char*>(object) + offset_,
                  static_cast<const char*>(defaults_.get()) + offset_);
  }
  // From a flag: "1e-3", "true", "0.9,0.95", "7;1,2" (lists of integers), "15:-1,27:0.5" (weights).
  nlohmann::json FromText(const std::string& text) const;
  static nlohmann::json FromText(Kind kind, const std::string& text);
  // Whether a value is in range.
  Status Check(const nlohmann::json& value, const std::string& where) const;
  // As a flag or a table shows it: "0.9,0.95".
  std::string ToText(const nlohmann::json& value) const;
  bool IsNeutral(const nlohmann::json& value) const;

 private:
  friend class OptionTable;

  const options_internal::Access* access_ = nullptr;
  ptrdiff_t offset_ = 0;  // of the field, within the struct
  std::shared_ptr<const void> defaults_;
  JsonMember default_;
};

// A key that other programs have and nobody here applies.
struct UnsupportedKey {
  std::string key;
  JsonMember neutral;  // the value that asks for nothing, beside null and an empty list
};

class OptionTable {
 public:
  // Out of line: every struct with options has a table.
  OptionTable(const OptionTable& other);
  OptionTable(OptionTable&& other) noexcept;
  OptionTable& operator=(const OptionTable& other);
  OptionTable& operator=(OptionTable&& other) noexcept;
  ~OptionTable();

  // The options of a struct S that has a default constructor. `title` heads them in a help text.
  template <typename S>
  static OptionTable Of(std::string title) {
    OptionTable table;
    table.title_ = std::move(title);
    table.defaults_ = std::make_shared<const S>();
    return table;
  }
  template <typename S, typename T>
  OptionTable& Add(const char* key, T S::*member, const char* help,
                   const OptionNotes& notes = options_internal::NoNotes());
  // Keys without a field, for SupportedOf.
  OptionTable& AddUnsupported(std::vector<UnsupportedKey> keys);
  // Those of Base, a base class of S.
  template <typename S, typename Base>
  OptionTable& Include();

  const std::string& title() const { return title_; }
  const std::vector<Option>& options() const { return options_; }
  // By the key itself; nullptr when there is none.
  const Option* Find(std::string_view key) const;
  // By the key or one of its aliases.
  const Option* FindByAnyName(std::string_view name) const;

  // The keys that are there, by any of their names, into the struct behind `object`. An unknown one
  // is an error that suggests the nearest.
  Status Apply(const nlohmann::json& json, const std::string& source, void* object) const;
  // Of another program's file: the keys with a field, by their own names, without null. Adds
  // "'key': value" to `not_applied` for a key of AddUnsupported that asks for something. Others are
  // left out.
  StatusOr<nlohmann::json> SupportedOf(const nlohmann::json& json, const std::string& source,
                                       std::vector<std::string>* not_applied) const;
  // SupportedOf into the struct behind `object`; a key of AddUnsupported that asks for something is
  // an error.
  Status ApplySupported(const nlohmann::json& json, const std::string& source, void* object) const;
  // Every key with its value, null where there is none.
  nlohmann::ordered_json ToJson(const void* object) const;
  // Whether all values are in range: of members that were assigned in C++.
  Status Check(const void* object) const;

 private:
  OptionTable& AddField(const char* key, const char* help, const OptionNotes& notes,
                        Option::Kind kind, const options_internal::Access* access,
                        ptrdiff_t offset);
  OptionTable();
  OptionTable& IncludeTable(const OptionTable& base, ptrdiff_t offset);

  std::string title_;
  std::vector<Option> options_;
  std::vector<UnsupportedKey> unsupported_;
  std::shared_ptr<const void> defaults_;
};

// S with the keys of `json`; `source` is what messages name.
template <typename S>
StatusOr<S> ParseOptions(const nlohmann::json& json, const std::string& source) {
  S options;
  TESSERA_RETURN_IF_ERROR(S::Table().Apply(json, source, &options));
  return options;
}

// Of the type of a field, or of a std::optional's value.
template <typename T>
constexpr Option::Kind KindOf() {
  using Kind = Option::Kind;
  if constexpr (std::is_same_v<T, bool>) return Kind::kBool;
  if constexpr (std::is_same_v<T, int64_t>) return Kind::kInteger;
  if constexpr (std::is_same_v<T, double>) return Kind::kNumber;
  if constexpr (std::is_same_v<T, std::vector<double>>) return Kind::kNumbers;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return Kind::kTexts;
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return Kind::kIntegers;
  if constexpr (std::is_same_v<T, std::vector<std::vector<int64_t>>>) return Kind::kIntegerLists;
  if constexpr (std::is_same_v<T, std::map<int64_t, double>>) return Kind::kWeights;
  return Kind::kText;
}

// One value without a table: the same kinds, conversions and messages; null leaves `value`.
template <typename T>
Status ReadValue(const nlohmann::json& json, const std::string& where, T* value,
                 const OptionNotes& notes = options_internal::NoNotes());

// One member of an object that has no table: the same kinds, conversions and messages. An absent
// member, or null, leaves `value`.
//
//   TESSERA_RETURN_IF_ERROR(ReadMember(root, "use_regex", path, &use_regex));
//   // tokenizer.json: 'use_regex' must be true or false, not "no"
template <typename T>
Status ReadMember(const nlohmann::json& object, std::string_view key, const std::string& source,
                  T* value, const OptionNotes& notes = options_internal::NoNotes());

// --- Implementation ------------------------------------------------------------------------------

namespace options_internal {

template <typename T>
struct Optional {
  using Value = T;
};
template <typename T>
struct Optional<std::optional<T>> {
  using Value = T;
};
template <typename T>
constexpr Option::Kind KindOfField() {
  return KindOf<typename Optional<T>::Value>();
}

// `access` belongs to the type that `value` points to.
Status ReadValue(const nlohmann::json& json, const std::string& where, Option::Kind kind,
                 const Access& access, void* value, const OptionNotes& notes);
Status ReadMember(const nlohmann::json& object, std::string_view key, const std::string& source,
                  Option::Kind kind, const Access& access, void* value, const OptionNotes& notes);

}  // namespace options_internal

template <typename T>
Status ReadValue(const nlohmann::json& json, const std::string& where, T* value,
                 const OptionNotes& notes) {
  using namespace options_internal;
  return ReadValue(json, where, KindOfField<T>(), AccessTo(value), value, notes);
}

template <typename T>
Status ReadMember(const nlohmann::json& object, std::string_view key, const std::string& source,
                  T* value, const OptionNotes& notes) {
  using namespace options_internal;
  return ReadMember(object, key, source, KindOfField<T>(), AccessTo(value), value, notes);
}

template <typename S, typename T>
OptionTable& OptionTable::Add(const char* key, T S::*member, const char* help,
                              const OptionNotes& notes) {
  const auto* const defaults = static_cast<const S*>(defaults_.get());
  return AddField(key, help, notes, options_internal::KindOfField<T>(),
                  &options_internal::AccessTo(&(defaults->*member)),
                  reinterpret_cast<const char*>(&(defaults->*member)) -
                      reinterpret_cast<const char*>(defaults));
}

template <typename S, typename Base>
OptionTable& OptionTable::Include() {
  const auto* const derived = static_cast<const S*>(defaults_.get());
  const Base* const base = derived;
  return IncludeTable(Base::Table(),
                      reinterpret_cast<const char*>(base) - reinterpret_cast<const char*>(derived));
}

}  // namespace tessera

#endif  // TESSERA_BASE_OPTIONS_H_
