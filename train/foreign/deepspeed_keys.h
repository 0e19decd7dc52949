// SPDX-License-Identifier: Apache-2.0
// What becomes of each key of DeepSpeed's configuration; train/foreign/deepspeed_config.h is what
// others include.
#ifndef TESSERA_TRAIN_FOREIGN_DEEPSPEED_KEYS_H_
#define TESSERA_TRAIN_FOREIGN_DEEPSPEED_KEYS_H_

#include "train/foreign/foreign_keys.h"

namespace tessera::train {

// The keys, with their sections: "zero_optimization.stage".
const ForeignTable& DeepSpeedKeys();

// What of each section the table leaves to code. The scheduler comes after the optimizer, whose
// learning rate it may need.
void TranslateOptimizer(ForeignKeys& ds);
void TranslateScheduler(ForeignKeys& ds);
void TranslateZero(ForeignKeys& ds);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_DEEPSPEED_KEYS_H_
