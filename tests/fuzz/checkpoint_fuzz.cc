// SPDX-License-Identifier: Apache-2.0
// A checkpoint's index and the files that it names (dist/checkpoint/).
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/json_text.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/index.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

using nlohmann::json;

std::string SavedIndex() {
  static const FuzzFolder folder;
  const std::string path = folder.Path("checkpoint-3");
  const dist::CheckpointTensor entry = {
      .name = "a",
      .tensor = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3}),
      .placement = Placement::Whole({2, 3})};
  dist::SaveCheckpoint(path, 3, {entry}, {{"seed", 1}}).IgnoreError();
  return FileOf(path + "/checkpoint.json");
}

// The input is the index's body: behind a wrong checksum nothing would be read.
bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  std::string text(bytes);
  const auto body = ParseJson(bytes, "input");
  if (body.ok()) {
    const std::string compact = body->dump(-1, ' ', false, json::error_handler_t::replace);
    text = Concat("{\"body\": ", compact, ", \"crc32c\": ", Crc32c(compact.data(), compact.size()),
                  "}");
  }
  const bool read = dist::ParseIndex(text, "input").ok();
  folder.Write("checkpoint.json", text);
  folder.Write("tensors-0-of-1.safetensors", "");
  dist::Checkpoint::Open(folder.path()).status().IgnoreError();
  return read;
}

std::vector<std::string> Seeds() {
  const json index = json::parse(SavedIndex(), nullptr, false);
  return {index["body"].dump()};
}

const FuzzTargetRegistration registration({.name = "checkpoint",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"tessera-checkpoint", "pieces", "begin",
                                                     "size", "range", "crc32c", "boxes", "step",
                                                     "9223372036854775807"}});

}  // namespace
}  // namespace tessera::fuzz
