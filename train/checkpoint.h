// Checkpoints of a run: `<out>/checkpoint-<step>/`, whole or not there at all.
//
//   TESSERA_RETURN_IF_ERROR(SaveCheckpoint(dir, tensors, trainer_state));
//   TESSERA_ASSIGN_OR_RETURN(std::optional<std::string> newest,
//                            FindNewestCheckpoint(out, [](const std::string& warning) {...}));
//   TESSERA_ASSIGN_OR_RETURN(Checkpoint c, Checkpoint::Open(*newest));
//   TESSERA_RETURN_IF_ERROR(c.Load(tensors));
//
// Layout:
//   tensors.safetensors   the boxes, each under its entry's name (`<name>#<i>` where there are
//   several) checkpoint.json       {"format": "tessera-checkpoint", "version": 1, "step": ...,
//                          "trainer": {...}, "tensors": {<name>: {"dtype", "shape" (global),
//                          "boxes": [{"file", "key", "begin", "size", "crc32c"}]}},
//                          "crc32c": of the text before it}
// An entry is a list of boxes of the unsharded tensor, so that any layout can load what another
// one saved. A checksum that does not fit, a short file or a missing box makes the checkpoint
// unusable, by name.
#ifndef TESSERA_TRAIN_CHECKPOINT_H_
#define TESSERA_TRAIN_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/placement.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "core/tensor.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

// A tensor to save or to load into: the local part and where it belongs.
struct CheckpointTensor {
  std::string name;
  Tensor tensor;
  Placement placement;
};

// Writes `directory` (which must not exist) with one atomic rename.
absl::Status SaveCheckpoint(const std::string& directory, int64_t step,
                            const std::vector<CheckpointTensor>& tensors,
                            const nlohmann::json& trainer);

class Checkpoint {
 public:
  // Reads and verifies everything: structure, sizes and checksums.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  int64_t step() const { return step_; }
  const nlohmann::json& trainer() const { return trainer_; }

  struct BoxEntry {
    std::string key;  // in tensors.safetensors
    Box box;
  };
  struct Entry {
    DType dtype;
    Shape shape;  // global
    std::vector<BoxEntry> boxes;
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }

  // Copies what is saved into each tensor's boxes. The names must be the same on both sides, and
  // dtypes and global shapes equal; the layout need not be.
  absl::Status Load(const std::vector<CheckpointTensor>& tensors) const;

 private:
  absl::Status ReadIndex();
  absl::Status Verify(const nlohmann::json& index);
  absl::Status LoadOne(const Entry& entry, const CheckpointTensor& target) const;

  std::string directory_;
  int64_t step_ = 0;
  nlohmann::json trainer_;
  std::map<std::string, Entry> entries_;
  SafetensorsFile file_;
};

// The steps of the `checkpoint-<step>` directories in `out`, ascending.
std::vector<int64_t> ListCheckpoints(const std::string& out);
std::string CheckpointPath(const std::string& out, int64_t step);

// The newest checkpoint that is whole; what is damaged is reported by name and passed over.
// nullopt when there is none.
std::optional<Checkpoint> FindNewestCheckpoint(const std::string& out,
                                               const std::function<void(const std::string&)>& warn);

// Removes all but the newest `keep`.
absl::Status PruneCheckpoints(const std::string& out, int64_t keep);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CHECKPOINT_H_
