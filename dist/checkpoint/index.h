// SPDX-License-Identifier: Apache-2.0
// The index of a checkpoint: what it holds, and where.
//
//   TESSERA_ASSIGN_OR_RETURN(CheckpointIndex index, ParseIndex(text, path));
//   const CheckpointEntry& wte = index.entries.at("model.transformer.wte.weight");
//
// Text of version 2:
//   {"body": {"format": "tessera-checkpoint", "version": 2, "step": ..., "trainer": {...},
//             "tensors": {<name>: {"dtype", "shape" (unsharded),
//                         "pieces": [{"file", "key", "begin", "size", "range", "crc32c"}]}}},
//    "crc32c": of body's text without white space}
// "range" is there for flat pieces only. Version 1 had one file and whole boxes, under "boxes".
#ifndef TESSERA_DIST_CHECKPOINT_INDEX_H_
#define TESSERA_DIST_CHECKPOINT_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "dist/checkpoint/pieces.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::dist {

struct SavedPiece {
  std::string file;  // within the checkpoint's directory
  std::string key;   // within the file
  Piece piece;
  uint32_t crc32c = 0;  // of the piece's bytes
};

struct CheckpointEntry {
  DType dtype = DType::kFloat32;
  Shape shape;  // unsharded
  std::vector<SavedPiece> pieces;
};
using CheckpointEntries = std::map<std::string, CheckpointEntry>;

struct CheckpointIndex {
  int64_t step = 0;
  JsonMember trainer;
  CheckpointEntries entries;
};

// What checkpoint.json holds.
std::string IndexText(const CheckpointIndex& index);
// Refuses what is damaged (DataLoss) or not an index (InvalidArgument). `path` is what messages
// name.
StatusOr<CheckpointIndex> ParseIndex(const std::string& text, const std::string& path);

// The "tensors" part alone, which ranks report to each other.
nlohmann::json EntriesToJson(const CheckpointEntries& entries);
StatusOr<CheckpointEntries> ParseEntries(const nlohmann::json& json, int version,
                                         const std::string& path);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_INDEX_H_
