// SPDX-License-Identifier: Apache-2.0
// The index of a model's shards (models/hub/weight_files.h).
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors.h"
#include "models/hub/weight_files.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

// With two shards of one tensor each.
const FuzzFolder& Folder() {
  static const FuzzFolder* const folder = [] {
    static const FuzzFolder made;
    for (const char* name : {"a", "b"}) {
      auto writer = SafetensorsWriter::Create(made.Path(std::string(name) + ".safetensors"),
                                              {{name, DType::kFloat32, {1}}});
      const float value = 1;
      if (writer.ok() && writer->Append(&value, sizeof(value)).ok()) {
        writer->Commit().IgnoreError();
      }
    }
    return &made;
  }();
  return *folder;
}

bool Run(std::string_view bytes) {
  Folder().Write(models::kWeightsIndexName, bytes);
  const auto files = models::WeightFiles::Open(Folder().path());
  if (!files.ok()) return false;
  for (const std::string& name : files->Names()) files->Read(name).status().IgnoreError();
  return true;
}

std::vector<std::string> Seeds() {
  return {R"({"metadata": {"total_size": 8}, "weight_map": {"a": "a.safetensors",)"
          R"( "b": "b.safetensors"}})",
          R"({"weight_map": {"a": "a.safetensors"}})"};
}

const FuzzTargetRegistration registration({.name = "weight_index",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"weight_map", "a.safetensors", "../",
                                                     "/dev/zero", "metadata"}});

}  // namespace
}  // namespace tessera::fuzz
