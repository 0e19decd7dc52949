// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that others replace.
//
//   ChangeConfig({{"vocab_size", 257}, {"bos_token_id", nullptr}}, &config);
#ifndef TESSERA_MODELS_HUB_CHANGE_CONFIG_H_
#define TESSERA_MODELS_HUB_CHANGE_CONFIG_H_

#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Null removes a key. `pad_token_id` stays as null, which says that no token is padding: where it
// is absent, several types have one, which a smaller vocabulary may lack.
void ChangeConfig(const nlohmann::json& keys, nlohmann::json* config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_CHANGE_CONFIG_H_
