// SPDX-License-Identifier: Apache-2.0
// The steps of saving a checkpoint, of which dist/checkpoint/checkpoint.h and
// dist/checkpoint/async_checkpointer.h are made.
//
//   TESSERA_ASSIGN_OR_RETURN(CheckpointWriter writer,
//                            CheckpointWriter::Begin(directory, step, tensors, trainer, world));
//   writer.WriteMine();                          // needs no other rank; on any thread
//   TESSERA_RETURN_IF_ERROR(writer.Finish(world));
//
// Every rank writes a file of its own into one temporary directory, or into that of its host
// (dist/checkpoint/memory_checkpoints.h). A piece that several ranks hold alike (the same name,
// box, range, dtype and shape) is written by one of them, so that all write about as many bytes.
// The plan of a run asks for these bytes without a file, with tensors on meta:
//
//   by_rank[r] = HeldPieces(engine.Tensors());          // in a dry run of each rank
//   for (const HeldPiece& piece : WrittenPieces(by_rank, 3)) bytes += piece.bytes;
#ifndef TESSERA_DIST_CHECKPOINT_RANK_WRITER_H_
#define TESSERA_DIST_CHECKPOINT_RANK_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_member.h"
#include "base/status.h"
#include "core/communicator.h"
#include "dist/checkpoint/index.h"
#include "dist/checkpoint/pieces.h"

namespace tessera::dist {

// A piece that a rank holds, as ranks compare it. Two pieces that are alike have equal identities;
// were two others to collide, the index would lack elements, and Finish says so.
struct HeldPiece {
  uint64_t identity = 0;
  int64_t bytes = 0;
};
std::vector<HeldPiece> HeldPieces(const std::vector<CheckpointTensor>& tensors);

// Those that `rank` writes: what it alone holds, and of what several hold a share that evens out
// the bytes. The same computation on every rank.
std::vector<HeldPiece> WrittenPieces(const std::vector<std::vector<HeldPiece>>& by_rank,
                                     size_t rank);

inline constexpr char kIndexFile[] = "checkpoint.json";

class CheckpointWriter {
 public:
  // Collective. Shares out what is to be written and makes the temporary directory. `trainer` is
  // rank 0's. `makers[r]` is the rank that makes the directory of rank r, for ranks without a
  // common file system; empty: rank 0 makes it for all.
  static StatusOr<CheckpointWriter> Begin(const std::string& directory, int64_t step,
                                          const std::vector<CheckpointTensor>& tensors,
                                          const nlohmann::json& trainer, Communicator& world,
                                          const std::vector<int>& makers = {});

  // What this rank writes. The data may be exchanged for a copy of it before WriteMine.
  struct Outgoing {
    std::string name;
    Shape global_shape;
    Piece piece;
    Tensor data;
  };
  std::vector<Outgoing>& outgoing() { return outgoing_; }

  // The file of a rank in this rank's temporary directory. A rank without outgoing pieces writes
  // none.
  std::string PathOf(int rank) const;

  // Writes and syncs this rank's file. The outcome is kept for Finish; throws nothing.
  void WriteMine();

  // Collective. When all ranks have written: the index is put together, checked to cover every
  // tensor, and each directory appears. Otherwise every rank gets the same failure, and nothing is
  // left.
  Status Finish(Communicator& world);

 private:
  CheckpointWriter() = default;
  StatusOr<CheckpointEntries> WriteFile() const;
  Status Publish(const std::vector<std::string>& parts);

  std::string directory_;
  int64_t step_ = 0;
  JsonMember trainer_;
  std::optional<AtomicDirectory> temporary_;  // of a rank that makes one
  std::string temporary_path_;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<Outgoing> outgoing_;
  StatusOr<CheckpointEntries> written_ = CheckpointEntries();
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_RANK_WRITER_H_
