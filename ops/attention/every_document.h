// SPDX-License-Identifier: Apache-2.0
// The document of keys that queries of every document see.
#ifndef TESSERA_OPS_ATTENTION_EVERY_DOCUMENT_H_
#define TESSERA_OPS_ATTENTION_EVERY_DOCUMENT_H_

#include <cstdint>

namespace tessera {

// Among AttentionOptions::key_document.
inline constexpr int32_t kEveryDocument = INT32_MIN;

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_EVERY_DOCUMENT_H_
