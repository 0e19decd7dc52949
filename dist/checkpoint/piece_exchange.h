// SPDX-License-Identifier: Apache-2.0
// Parts of saved pieces, from the ranks that can read their files.
//
//   PieceExchange exchange(index.entries, &files, *world);
//   exchange.Want(keeper, {.entry = 4, .piece = 0, .box = 0, .part = region}, place);
//   TESSERA_RETURN_IF_ERROR(exchange.Run());          // all ranks have their places filled
//
// In round k a rank asks the k-th rank behind it, and answers the k-th before it, so that all ranks
// send and receive at once. A rank gets the bytes that it asks for and no others, in messages of at
// most 16 MiB.
#ifndef TESSERA_DIST_CHECKPOINT_PIECE_EXCHANGE_H_
#define TESSERA_DIST_CHECKPOINT_PIECE_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"
#include "core/placement.h"
#include "core/tensor.h"
#include "dist/checkpoint/index.h"
#include "dist/checkpoint/saved_files.h"

namespace tessera::dist {

// A region of one of a saved piece's boxes (dist/checkpoint/pieces.h).
struct PiecePart {
  int64_t entry = 0;  // its place in the index
  int64_t piece = 0;  // of the entry
  int64_t box = 0;    // of the piece
  Box part;           // of the unsharded tensor
};

class PieceExchange {
 public:
  // The same entries on all ranks; `files` are those that this rank can read. All outlive this
  // object.
  PieceExchange(const CheckpointEntries& entries, SavedFiles* files, Communicator& world);

  // `place` (of the part's size and the entry's dtype) is filled by Run, from what `keeper` has.
  void Want(int keeper, const PiecePart& part, const Tensor& place);

  // Collective. Where a keeper cannot read a file, all ranks get the failure.
  Status Run();

 private:
  struct Wanted {
    PiecePart part;
    Tensor place;
  };
  Status Read(const PiecePart& part, const Tensor& place);
  Status RunRound(int server, int client, int64_t asked);

  const std::vector<const CheckpointEntry*> entries_;
  SavedFiles* const files_;
  Communicator& world_;
  std::vector<std::vector<Wanted>> wanted_;  // by keeper
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_PIECE_EXCHANGE_H_
