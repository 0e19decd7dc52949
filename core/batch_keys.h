// SPDX-License-Identifier: Apache-2.0
// What datasets make and models take. B rows, T tokens, L labels.
#ifndef TESSERA_CORE_BATCH_KEYS_H_
#define TESSERA_CORE_BATCH_KEYS_H_

#include "core/bundle.h"

namespace tessera::keys {

inline constexpr TensorKey kInputIds{"input_ids", KeyElements::kInt64, "[B, T]", "tokens"};
inline constexpr TensorKey kAttentionMask{
    "attention_mask", KeyElements::kAny, "[B, T]",
    "0 is padding, on either side or in between; other forms as the family says"};
inline constexpr TensorKey kPositionIds{"position_ids", KeyElements::kInt64, "[B, T] or [B, N, T]",
                                        "places of tokens, in N coordinates"};
inline constexpr TensorKey kDocumentIds{"document_ids", KeyElements::kInt32, "[B, T]",
                                        "tokens see their own document only"};
inline constexpr TensorKey kTokenMask{
    "token_mask", KeyElements::kAny, "[B, T]",
    "0 fills up a row from behind: it counts in no balance of experts"};
inline constexpr TensorKey kTokenTypeIds{"token_type_ids", KeyElements::kInt64, "[B, T]",
                                         "which of a row's texts a token belongs to"};
inline constexpr TensorKey kPixelValues{"pixel_values", KeyElements::kFloating,
                                        "[B, channels, H, W]", "pictures, normalised"};
inline constexpr TensorKey kLabels{
    "labels", KeyElements::kAny, "[B, T], [B] or [B, L]",
    "Hugging Face's meaning: shifted by models of next tokens, -100 ignored"};
inline constexpr TensorKey kTargets{"targets", KeyElements::kAny, "[B, T], [B] or [B, L]",
                                    "labels that are aligned with the logits already"};

}  // namespace tessera::keys

#endif  // TESSERA_CORE_BATCH_KEYS_H_
