// Names under which users of other systems know the keys of a run's configuration.
//
//   CanonicalKey("model_parallel_size") == "tp";     CanonicalKey("lr") == "lr"
//   CanonicalValue("dtype", "fp16") == "float16";    CanonicalValue("lr", "1e-3") == "1e-3"
//
// A name is here only where it means the same, with the same unit: a fraction of the steps is not
// a number of steps. docs/migration.md has the table with remarks, and what differs.
#ifndef TESSERA_TRAIN_CONFIG_CONFIG_ALIASES_H_
#define TESSERA_TRAIN_CONFIG_CONFIG_ALIASES_H_

#include <string_view>
#include <vector>

namespace tessera::train {

struct ConfigAlias {
  std::string_view name;    // there
  std::string_view key;     // of RunConfig
  std::string_view system;  // "FlagAI", "Colossal-AI", "Hugging Face"
};
const std::vector<ConfigAlias>& ConfigAliases();

// RunConfig's key for a name of another system; every other name is returned as it is.
std::string_view CanonicalKey(std::string_view name);

// RunConfig's text for a value of `key` (a canonical one) as another system writes it; every other
// text is returned as it is.
std::string_view CanonicalValue(std::string_view key, std::string_view text);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_CONFIG_ALIASES_H_
