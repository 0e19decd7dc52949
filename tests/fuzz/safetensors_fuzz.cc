// SPDX-License-Identifier: Apache-2.0
// core/safetensors.h
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("model.safetensors", bytes);
  const auto file = SafetensorsFile::Open(folder.Path("model.safetensors"));
  if (!file.ok()) return false;
  int64_t sum = 0;
  for (const SafetensorsFile::Entry& entry : file->entries()) {
    const auto view = file->Get(entry.name);
    if (!view.ok()) continue;
    for (int64_t i = 0; i < view->nbytes; ++i) sum += static_cast<int64_t>(view->data[i]);
  }
  TESSERA_CHECK(sum >= 0, "safetensors", "bytes are not negative");  // so that they are read
  return true;
}

std::string FileWith(std::string_view header, size_t data_bytes) {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(i < 4 ? header.size() >> (8 * i) & 0xFF : 0));
  }
  return out.append(header) + std::string(data_bytes, '\1');
}

std::vector<std::string> Seeds() {
  return {FileWith(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
          FileWith(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BOOL","shape":[2],)"
                   R"("data_offsets":[0,2]},"b":{"dtype":"I64","shape":[],"data_offsets":[2,10]}})",
                   10),
          FileWith("{}", 0)};
}

const FuzzTargetRegistration registration({.name = "safetensors",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"data_offsets", "shape", "dtype",
                                                     "__metadata__", "BF16", "F64",
                                                     "9223372036854775807", "-1"}});

}  // namespace
}  // namespace tessera::fuzz
