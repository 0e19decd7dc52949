// SPDX-License-Identifier: Apache-2.0
// Loads a Hugging Face folder and saves it again: for tests/parity/*.py, which load the result with
// transformers.
//
//   resave_model FROM TO MAX_SHARD_BYTES
#include <cstdlib>
#include <iostream>

#include "models/hub/load_model.h"
#include "models/hub/save_model.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "error: usage: resave_model FROM TO MAX_SHARD_BYTES\n";
    return 2;
  }
  const auto resave = [&]() -> tessera::Status {
    TESSERA_ASSIGN_OR_RETURN(const auto model,
                             tessera::models::LoadModel(argv[1], {.require_weights = true}));
    return tessera::models::SaveModel(*model, argv[2], nullptr,
                                      {.max_shard_bytes = std::atoll(argv[3])});
  };
  const tessera::Status status = resave();
  if (!status.ok()) std::cerr << "error: " << tessera::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
