// SPDX-License-Identifier: Apache-2.0
// The fields of a request's JSON object. The first that is wrong is kept, so that a reader reads
// on:
//
//   Fields fields(body);
//   const auto temperature = fields.Number("temperature", 0, 2);       // absent or null: nullopt
//   const auto stop = fields.Texts("stop", 16);                        // a text, or a list of them
//   fields.Allow({"user", "metadata"});                                // without effect here
//   fields.Refuse("suffix", "texts are continued at their end alone");
//   TESSERA_RETURN_IF_ERROR(fields.Finish());   // or a field that nobody asked for, by its name
#ifndef TESSERA_SERVE_FIELDS_H_
#define TESSERA_SERVE_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::serve {

class Fields {
 public:
  // `body` outlives this.
  explicit Fields(const nlohmann::ordered_json& body);

  // A value of T's kind, within the range.
  template <typename T>
  std::optional<T> Get(const std::string& key, const OptionNotes& notes = {}) {
    const nlohmann::json value = Convert(KindOf<T>(), notes, key);
    if (value.is_null()) return std::nullopt;
    return value.get<T>();
  }
  std::optional<double> Number(const std::string& key, double least, double most) {
    return Get<double>(key, {.least = least, .most = most});
  }
  std::optional<int64_t> Integer(const std::string& key, int64_t least,
                                 int64_t most = std::numeric_limits<int64_t>::max());
  std::optional<bool> Flag(const std::string& key) { return Get<bool>(key); }
  std::optional<std::string> Text(const std::string& key) { return Get<std::string>(key); }
  std::optional<std::vector<std::string>> Texts(const std::string& key, size_t most);
  // A declared setting, by its key or another system's name, into asked[key].
  void Setting(const Option& option, nlohmann::json* asked);
  // Whatever it is; nullptr for an absent field, or null.
  const nlohmann::ordered_json* Any(const std::string& key);

  // Fields that mean nothing here and change no text.
  void Allow(std::initializer_list<const char*> keys);
  // A field that may only be absent, null, empty, `neutral`, or false where that is not true.
  void Refuse(const std::string& key, const std::string& why,
              const nlohmann::ordered_json& neutral = nullptr);
  // `key` is wrong: "key: message", or a failure of another kind.
  void Fail(const std::string& key, const std::string& message);
  void Fail(const std::string& key, const Status& status);

  // The first failure so far.
  const Status& status() const { return status_; }
  // The first failure; else one for a key that was not asked for, whose value is not null.
  Status Finish();
  // The key of the failure; "": of none.
  const std::string& failed() const { return failed_; }

 private:
  // Null: absent, or wrong.
  nlohmann::json Convert(Option::Kind kind, const OptionNotes& notes, const std::string& key);

  const nlohmann::ordered_json& body_;
  std::set<std::string> asked_;
  std::string failed_;
  Status status_;
};

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_FIELDS_H_
