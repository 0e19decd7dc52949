// SPDX-License-Identifier: Apache-2.0
// A model that lies on many ranks, as one Hugging Face folder.
//
//   TESSERA_RETURN_IF_ERROR(SaveWholeModel(model, mesh, *store, folder, tokenizer, files));
#ifndef TESSERA_TRAIN_RANKS_WHOLE_MODEL_H_
#define TESSERA_TRAIN_RANKS_WHOLE_MODEL_H_

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "dist/store/parameter_store.h"
#include "models/hub/adapter_config.h"
#include "models/model.h"

namespace tessera::train {

// Writes what the ranks of the mesh's `model` group hold together (shares of layers over tp, stages
// over pp; a parameter that several have is its owner's), gathered where it is cut over dp. The
// printing rank writes, the others send their parts, one parameter at a time. Collective over the
// mesh's world; all get the same status.
Status SaveWholeModel(models::Model& model, const dist::Mesh& mesh, dist::ParameterStore& store,
                      const std::string& folder, const data::Tokenizer* tokenizer,
                      const std::vector<std::pair<std::string, std::string>>& files);

// The same of the adapter that it carries, as a folder of PEFT's.
Status SaveWholeAdapter(models::Model& model, const models::AdapterConfig& config,
                        const dist::Mesh& mesh, dist::ParameterStore& store,
                        const std::string& folder);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_WHOLE_MODEL_H_
