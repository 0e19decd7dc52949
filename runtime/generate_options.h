// SPDX-License-Identifier: Apache-2.0
// What tsr_generate_options ask for.
#ifndef TESSERA_RUNTIME_GENERATE_OPTIONS_H_
#define TESSERA_RUNTIME_GENERATE_OPTIONS_H_

#include <memory>
#include <string_view>

#include "base/status.h"
#include "models/generation/generation_config.h"
#include "models/generation/text_request.h"
#include "runtime/model.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

Status CheckUtf8(std::string_view text, const char* what);

// Whether there is a json_schema.
bool HasSchema(const tsr_generate_options& options);

// What the text must fit; nullptr: anything.
StatusOr<std::shared_ptr<const models::TokenGrammar>> GrammarOf(
    const tsr_model& model, const tsr_generate_options& options);

// Members that are 0 ask for nothing; those of tsr_generate_options_set win.
StatusOr<models::GenerationConfig> ConfigOf(const models::GenerationConfig& defaults,
                                            const tsr_generate_options& options);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_GENERATE_OPTIONS_H_
