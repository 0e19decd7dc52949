// SPDX-License-Identifier: Apache-2.0
// Loads a Hugging Face folder with an adapter's and saves the adapter again: for
// tests/parity/adapters.py, which loads the result with PEFT.
//
//   resave_adapter MODEL ADAPTER TO
#include <iostream>

#include "models/hub/adapter.h"
#include "models/hub/load_model.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "error: usage: resave_adapter MODEL ADAPTER TO\n";
    return 2;
  }
  const auto resave = [&]() -> tessera::Status {
    using namespace tessera::models;
    TESSERA_ASSIGN_OR_RETURN(const auto model, LoadModel(argv[1], {.require_weights = true}));
    TESSERA_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::Read(argv[2]));
    TESSERA_ASSIGN_OR_RETURN(const AttachedAdapter adapter, LoadAdapter(*model, argv[2]));
    return SaveAdapter(*model, config, adapter, argv[3]);
  };
  const tessera::Status status = resave();
  if (!status.ok()) std::cerr << "error: " << tessera::Message(status) << "\n";
  return status.ok() ? 0 : 1;
}
