// SPDX-License-Identifier: Apache-2.0
// T5's own keys. B rows, S source tokens, T target tokens, C width, H heads.
#ifndef TESSERA_MODELS_T5_T5_KEYS_H_
#define TESSERA_MODELS_T5_T5_KEYS_H_

#include "models/model_keys.h"

namespace tessera::keys {

inline constexpr TensorKey kDecoderAttentionMask{"decoder_attention_mask", KeyElements::kAny,
                                                 "[B, T]", "0 is padding of the target"};
inline constexpr TensorKey kMemory{"memory", KeyElements::kFloating, "[B, S, C]",
                                   "what the encoder made of the source"};
inline constexpr TensorKey kEncoderLastHiddenState{
    "encoder_last_hidden_state", KeyElements::kFloating, "[B, S, C]", "the same, returned"};
inline constexpr TensorKey kEncoderBias{"local.encoder_bias", KeyElements::kFloating, "[H, S, S]",
                                        "of the encoder's distances"};
inline constexpr TensorKey kDecoderBias{"local.decoder_bias", KeyElements::kFloating, "[H, T, T]",
                                        "of the decoder's distances"};

}  // namespace tessera::keys

#endif  // TESSERA_MODELS_T5_T5_KEYS_H_
