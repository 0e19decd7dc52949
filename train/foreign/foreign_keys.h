// SPDX-License-Identifier: Apache-2.0
// Keys of somebody else's configuration, each declared once: what becomes of it, and why. Reading a
// file, `tessera explain` and the tables of docs/migration.md follow from the declarations.
//
//   const ForeignTable& keys = DeepSpeedKeys();
//   // {Renamed("steps_per_print", "log_interval"),
//   //  NoEffect("fp32_allreduce", "sums of half precision go through float32"),
//   //  Refused("sparse_gradients", "gradients of embeddings are dense", {false}),
//   //  Read("fp16.enabled", "dtype"), ...}
//   ForeignKeys ds(json, "ds.json", keys);
//   const std::optional<bool> half = ds.Bool("fp16.enabled");     // what the table leaves to code
//   if (half) ds.Put("dtype", *half ? "float16" : "float32");
//   Translation done = std::move(ds).Finish();      // the keys of a run, and each key's fate
//
// A key that is absent, null, "None" or "auto" reads as nullopt: it is left to the run's own
// settings. A failure is one line that names the key with the sections that it is in: "ds.json:
// 'fp16.hysteresis' must be an integer, not 2.5".
#ifndef TESSERA_TRAIN_FOREIGN_FOREIGN_KEYS_H_
#define TESSERA_TRAIN_FOREIGN_FOREIGN_KEYS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_member.h"
#include "base/options.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

enum class KeyFate {
  kHonoured,    // one of our own keys
  kTranslated,  // becomes keys of ours
  kNoEffect,    // changes nothing, for a reason
  kRefused,     // a run with it does not start
  kDefault,     // not given: the default of the system whose words the run is in
};
// "honoured", "translated", "no-effect", "refused", "default".
const char* FateName(KeyFate fate);

// What became of one key that somebody gave.
struct KeyVerdict {
  std::string key;  // "zero_optimization.stage"
  KeyFate fate = KeyFate::kNoEffect;
  std::string reason;  // of kTranslated the keys that it becomes: "zero"
  Status failure;      // of kRefused
};

// The verdict on a key that is null, or DeepSpeed's "auto".
inline constexpr char kLeftToRun[] = "left to the run's own settings";
bool IsLeftToRun(const nlohmann::json& value);

// The verdict on a value that asks for nothing: "--bf16 False".
inline constexpr char kHoldsAnyway[] = "asks for what holds anyway";

// The reason of kHonoured.
inline constexpr char kOwnKey[] = "a key of a run";

// "True" and "5e8" as values, where the text is one.
nlohmann::json Plain(const nlohmann::json& value);
// The same of a value whose kind is known: a switch may be "yes" or 1, a text stays.
nlohmann::json PlainAs(Option::Kind kind, const nlohmann::json& value);
// A switch: true, false, or the value itself where it is neither.
nlohmann::json Truth(const nlohmann::json& value);
// A value as messages show it, whatever its bytes.
std::string Printed(const nlohmann::json& value);

// The keys that the reason of kTranslated lists: "cpu_offload, offload_parameters".
std::vector<std::string> KeysOf(const std::string& reason);

// Keys of a run (train/config/run_config.h) that a value stands for; null: it asks for nothing.
using KeyConversion = std::function<StatusOr<nlohmann::json>(const nlohmann::json& value)>;

// A declared key.
struct ForeignKey {
  std::string name;  // with its sections: "zero_optimization.stage"
  KeyFate fate = KeyFate::kNoEffect;
  std::string reason;
  // Values of a refused key that ask for what holds anyway.
  std::vector<JsonMember> neutral = {};
  KeyConversion convert = nullptr;  // of kTranslated; null: code reads it
  bool is_switch = false;           // a flag may go without a value
  bool is_list = false;             // a flag may have several values, which are an array
};
using ForeignTable = std::vector<ForeignKey>;

// The same value under another name.
ForeignKey Renamed(std::string name, std::string ours);
// Becomes `ours` (as a person reads it: "lr_schedule, min_lr").
ForeignKey Becomes(std::string name, std::string ours, KeyConversion convert);
// Likewise, but in view of other keys.
ForeignKey Read(std::string name, std::string ours);
ForeignKey NoEffect(std::string name, std::string reason);
ForeignKey Refused(std::string name, std::string reason, std::vector<JsonMember> neutral = {});
// The same key as a flag that may go without a value.
ForeignKey Switch(ForeignKey key);
// The same key as a flag of several values.
ForeignKey List(ForeignKey key);

// All of `names` with one fate and reason.
ForeignTable& Add(ForeignTable& table, const std::vector<std::string>& names,
                  const std::function<ForeignKey(std::string)>& declare);

// The reason of the first refusal, if there is one.
Status FirstRefusal(const std::vector<KeyVerdict>& verdicts);

struct Translation {
  JsonMember keys = JsonMember::Object();      // of a run
  JsonMember defaults = JsonMember::Object();  // where neither a file nor a flag says more
  // Keys of a run that are shares of its lr, which another source may give: {"min_lr": 0.1}.
  JsonMember shares_of_lr = JsonMember::Object();
  std::vector<KeyVerdict> verdicts;  // in the order of the file
  Status status() const { return FirstRefusal(verdicts); }
};

class ForeignKeys {
 public:
  // What messages call a key: "ds.json: 'fp16.enabled'".
  using Namer = std::function<std::string(const std::string& key)>;

  // Walks through the object and does what the table says. Both must outlive this. `own` is what
  // keys of the run beside it gave; a foreign key that contradicts one of them is refused.
  ForeignKeys(const nlohmann::json& object, const std::string& source, const ForeignTable& table);
  ForeignKeys(const nlohmann::json& object, Namer name_of, const ForeignTable& table,
              const Translation* own = nullptr);

  std::optional<bool> Bool(const std::string& key);  // also "true", "False"
  // 5e8 is an integer too, and so is "2" (YAML).
  std::optional<int64_t> Integer(const std::string& key, int64_t least);
  std::optional<double> Number(const std::string& key, double least);
  std::optional<std::string> String(const std::string& key);
  std::optional<std::vector<double>> Numbers(const std::string& key);
  // Whatever it is; nullptr where it is absent, null or "auto".
  const nlohmann::json* Find(const std::string& key);
  // Whether it is there, "auto" and null included.
  bool Has(const std::string& key) const;

  // A key of the run.
  void Put(const std::string& ours, const nlohmann::json& value);
  template <typename T>
  void Put(const std::string& ours, const std::optional<T>& value) {
    if (value) Put(ours, JsonMember(*value));
  }
  nlohmann::json& keys() { return *result_.keys; }
  nlohmann::json& defaults() { return *result_.defaults; }
  nlohmann::json& shares_of_lr() { return *result_.shares_of_lr; }

  // The key, where it was given, turns out to be refused, or without effect. Ignore is also for a
  // key of our own.
  void Fail(const std::string& key, std::string_view text);
  void Ignore(const std::string& key, std::string_view reason);
  // All keys of a section.
  void IgnoreSection(const std::string& section, std::string_view reason);

  // Keys that the table leaves to code and that no code asked for are refused: they mean nothing
  // beside the others.
  Translation Finish() &&;

 private:
  struct Given {
    const nlohmann::json* value;
    const ForeignKey* declared;
    bool read = false;
  };

  template <typename T>
  std::optional<T> Get(const std::string& key, const OptionNotes& notes = {});
  void Walk(const nlohmann::json& object, const std::string& section);
  void Meet(const std::string& key, const nlohmann::json& value);
  void Convert(const ForeignKey& declared, const nlohmann::json& value);
  void Merge(const std::string& key, const nlohmann::json& keys);
  void Withdraw(const std::string& key);
  void Judge(const std::string& key, KeyFate fate, std::string reason, Status failure = {});
  bool BecameSomething(const ForeignKey& declared) const;
  bool IsSection(const std::string& key) const;
  const ForeignKey* Declared(const std::string& key) const;
  std::vector<std::string> KnownNear(const std::string& key) const;
  KeyVerdict* VerdictOf(const std::string& key);

  const Namer name_of_;
  const ForeignTable& table_;
  const bool beside_own_keys_;
  std::map<std::string, Given> given_;
  std::map<std::string, std::string> origin_;  // of a key of the run: who gave it
  Translation result_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_FOREIGN_KEYS_H_
