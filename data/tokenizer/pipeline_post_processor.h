// SPDX-License-Identifier: Apache-2.0
// The `post_processor` of a tokenizer.json: the rows that texts become.
//
//   RowTemplate single, pair;
//   TESSERA_RETURN_IF_ERROR(ReadPostProcessor(root["post_processor"], &single, &pair));
//
// Types: ByteLevel (which changes no ids), TemplateProcessing, BertProcessing, RobertaProcessing,
// Sequence. Another one is refused by name.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_POST_PROCESSOR_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_POST_PROCESSOR_H_

#include "base/status.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// What says nothing of rows leaves them as they are.
Status ReadPostProcessor(const JsonPart& part, RowTemplate* single, RowTemplate* pair);

// Whether it is a TemplateProcessing whose rows are the texts alone, as transformers 5 writes it
// for GPT-2.
bool IsEmptyTemplate(const JsonPart& part);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_POST_PROCESSOR_H_
