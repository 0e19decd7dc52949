// SPDX-License-Identifier: Apache-2.0
// Reads a model's configuration (Hugging Face's config.json) into typed fields.
//
//   ConfigReader reader(json, "gpt2");
//   reader.Read("n_embd", &config.n_embd);            // keeps the default when absent or null
//   reader.ReadNotNegative("layer_norm_epsilon", &config.layer_norm_epsilon);
//   reader.Refuse("add_cross_attention", false);      // only this value is supported
//   TESSERA_RETURN_IF_ERROR(reader.status());         // the first problem, naming its key
//
// Keys that change results and are not supported are refused by name; the rest are kept by whoever
// holds the json.
#ifndef TESSERA_MODELS_CONFIG_READER_H_
#define TESSERA_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string family)
      : json_(json), family_(std::move(family)) {}

  void Read(const char* key, int64_t* value) { ReadAs(key, value, "an integer"); }
  void Read(const char* key, double* value) { ReadAs(key, value, "a number"); }
  void Read(const char* key, bool* value) { ReadAs(key, value, "true or false"); }
  void Read(const char* key, std::string* value) { ReadAs(key, value, "a string"); }
  void Read(const char* key, std::optional<int64_t>* value) {
    int64_t number = 0;
    if (!Has(key)) return;
    Read(key, &number);
    *value = number;
  }

  // A number that is at least 0: an epsilon, a standard deviation.
  void ReadNotNegative(const char* key, double* value) {
    Read(key, value);
    Require(*value >= 0, Concat("'", key, "' must be 0 or more, not ", *value));
  }

  // A key of whose values only `supported` is.
  template <typename T>
  void Refuse(const char* key, const T& supported) {
    if (!Has(key) || json_[key] == nlohmann::json(supported)) return;
    Fail(Concat("'", key, "': ", json_[key].dump(), " is not supported"));
  }
  void Require(bool condition, const std::string& problem) {
    if (!condition) Fail(problem);
  }

  const Status& status() const { return status_; }

 private:
  bool Has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  template <typename T>
  bool Fits(const nlohmann::json& v) const {
    if constexpr (std::is_same_v<T, int64_t>) return v.is_number_integer();
    if constexpr (std::is_same_v<T, double>) return v.is_number();
    if constexpr (std::is_same_v<T, bool>) return v.is_boolean();
    if constexpr (std::is_same_v<T, std::string>) return v.is_string();
    return false;
  }
  template <typename T>
  void ReadAs(const char* key, T* value, const char* kind) {
    if (!Has(key)) return;
    if (Fits<T>(json_[key])) {
      *value = json_[key].get<T>();
    } else {
      Fail(Concat("'", key, "' must be ", kind, ", not ", json_[key].dump()));
    }
  }
  void Fail(const std::string& problem) {
    if (status_.ok()) status_ = InvalidArgument("config of ", family_, ": ", problem);
  }

  const nlohmann::json& json_;
  const std::string family_;
  Status status_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_CONFIG_READER_H_
