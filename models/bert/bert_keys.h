// SPDX-License-Identifier: Apache-2.0
// BERT's own keys. B rows, T tokens, V vocabulary.
#ifndef TESSERA_MODELS_BERT_BERT_KEYS_H_
#define TESSERA_MODELS_BERT_BERT_KEYS_H_

#include "models/model_keys.h"

namespace tessera::keys {

inline constexpr TensorKey kNextSentenceLabel{"next_sentence_label", KeyElements::kInt64, "[B]",
                                              "1 where the second text does not follow the first"};
inline constexpr TensorKey kPredictionLogits{"prediction_logits", KeyElements::kFloating,
                                             "[B, T, V]", "of words, when pre-training"};
inline constexpr TensorKey kSeqRelationshipLogits{"seq_relationship_logits", KeyElements::kFloating,
                                                  "[B, 2]", "of next_sentence_label"};

}  // namespace tessera::keys

#endif  // TESSERA_MODELS_BERT_BERT_KEYS_H_
