// Reads an object of somebody else's configuration, key by key, so that no key goes unnoticed.
//
//   Status status;
//   ForeignKeys fp16(json, "ds.json", "fp16", &status);
//   const std::optional<bool> enabled = fp16.Bool("enabled");
//   fp16.OnlyIf("auto_cast", false, "what to run in which dtype is fixed");
//   fp16.Finish();                                   // a key that nobody asked for is unknown
//   TESSERA_RETURN_IF_ERROR(status);                 // the first failure
//
// A key that is absent, null or "auto" reads as nullopt. Failures name the key with the sections
// that it stands in: "ds.json: 'fp16.hysteresis' must be an integer, not 2.5".
#ifndef TESSERA_TRAIN_CONFIG_FOREIGN_KEYS_H_
#define TESSERA_TRAIN_CONFIG_FOREIGN_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

class ForeignKeys {
 public:
  // The keys of `object`, which stands in `source` under `section` ("" at the top).
  ForeignKeys(const nlohmann::json& object, const std::string& source, const std::string& section,
              Status* status);

  std::optional<bool> Bool(const char* key);
  // 5e8 is an integer too.
  std::optional<int64_t> Integer(const char* key, int64_t least);
  std::optional<double> Number(const char* key, double least);
  std::optional<std::string> String(const char* key);
  std::optional<std::vector<double>> Numbers(const char* key);
  // A section; without keys where it is absent.
  ForeignKeys Section(const char* key);

  // Whether the key stands there, "auto" and null included.
  bool Has(const char* key) const { return object_.contains(key); }

  // The key may be there only with this value: it asks for what holds anyway.
  void OnlyIf(const char* key, const nlohmann::json& value, std::string_view reason);
  // The key may not be there.
  void Refuse(const char* key, std::string_view reason);
  // A section of a feature that is not here: it may be there switched off.
  void OnlyDisabled(const char* key, std::string_view reason);
  // "<source>: '<section>.<key>' <text>", unless something failed before.
  void Fail(const char* key, std::string_view text);

  // Refuses the keys that nothing above asked for.
  void Finish();

 private:
  const nlohmann::json* Find(const char* key);
  std::string Path(std::string_view key) const;

  nlohmann::json object_;
  std::string source_;
  std::string section_;
  std::vector<std::string> known_;
  Status* status_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_FOREIGN_KEYS_H_
