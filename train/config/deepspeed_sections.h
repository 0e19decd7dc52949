// The sections of DeepSpeed's configuration that are translated in files of their own
// (train/config/deepspeed_config.h is what others include).
#ifndef TESSERA_TRAIN_CONFIG_DEEPSPEED_SECTIONS_H_
#define TESSERA_TRAIN_CONFIG_DEEPSPEED_SECTIONS_H_

#include <optional>

#include "nlohmann/json.hpp"
#include "train/config/foreign_keys.h"

namespace tessera::train {

// Each reads its section of `ds` and adds keys of a run to `keys`; the scheduler after the
// optimizer, whose learning rate it may need.
void TranslateOptimizer(ForeignKeys& ds, nlohmann::json* keys);
void TranslateScheduler(ForeignKeys& ds, nlohmann::json* keys);
void TranslateZero(ForeignKeys& ds, nlohmann::json* keys);

template <typename T>
void Put(nlohmann::json* keys, const char* key, const std::optional<T>& value) {
  if (value) (*keys)[key] = *value;
}

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DEEPSPEED_SECTIONS_H_
