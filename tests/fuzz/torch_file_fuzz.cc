// SPDX-License-Identifier: Apache-2.0
// models/hub/torch_file
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "models/hub/torch_file/torch_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("pytorch_model.bin", bytes);
  const auto file = models::TorchFile::Open(folder.Path("pytorch_model.bin"));
  if (!file.ok()) return false;
  int64_t sum = 0;
  for (const models::TorchFile::Entry& entry : file->entries()) {
    std::vector<std::byte> made;
    const auto view = file->Get(entry.name, &made);
    if (!view.ok()) continue;
    for (int64_t i = 0; i < view->nbytes; ++i) sum += static_cast<int64_t>(view->data[i]);
  }
  TESSERA_CHECK(sum >= 0, "torch_file", "bytes are not negative");  // so that they are read
  return true;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"archive.bin", "legacy.bin", "protocol4.bin", "wrapped.pt"}) {
    seeds.push_back(*ReadFile(std::string("models/hub/torch_file/testdata/") + name));
  }
  return seeds;
}

const FuzzTargetRegistration registration(
    {.name = "torch_file",
     .run = Run,
     .seeds = Seeds,
     .words = {"data.pkl", "byteorder", "PK\x03\x04", "PK\x05\x06", "ctorch._utils\n",
               "_rebuild_tensor_v2\n", "cos\nsystem\n", "FloatStorage", "BFloat16Storage"}});

}  // namespace
}  // namespace tessera::fuzz
