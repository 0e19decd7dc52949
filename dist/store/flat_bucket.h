// SPDX-License-Identifier: Apache-2.0
// Parameters one after the other in flat buckets, which the ranks of a group share out.
//
// A bucket's elements are cut into equal ranges, rank by rank, wherever that falls; so a rank holds
// a piece of each parameter, which may be empty. Parameters that must stay whole lie in buckets
// that one rank, their owner, has all of; owners are chosen so that all have about as much. Buckets
// hold parameters of one model, dtype, gradient dtype, device and gradient group; one that has tied
// leaves, here or on other stages of a pipeline, has a bucket to itself, so that the gradients of
// all its uses are cut alike.
#ifndef TESSERA_DIST_STORE_FLAT_BUCKET_H_
#define TESSERA_DIST_STORE_FLAT_BUCKET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "core/placement.h"
#include "core/tensor.h"
#include "dist/checkpoint/pieces.h"
#include "nn/module.h"
#include "optim/parameter.h"

namespace tessera::dist {

// Parameters begin at multiples of this many elements, and ranges are multiples of it.
inline constexpr int64_t kFlatAlignment = 64;

struct FlatSlot {
  std::string name;
  Tensor leaf;               // the parameter
  std::vector<Tensor> tied;  // leaves that share its storage
  Placement placement;
  std::shared_ptr<Communicator> ranks;  // that hold it too, and share it out
  bool trains = false;
  bool shared = false;         // ranks of another group hold it too
  bool whole = false;          // one rank updates all of it
  int owner = -1;              // that rank, where there are several
  size_t order = 0;            // the parameter's place in the models
  size_t group = 0;            // of the optimizer, if it trains
  optim::Parameter parameter;  // as the optimizer's group has it, likewise
  int model = 0;
  int64_t unit = -1;                             // stage 3
  bool persistent = false;                       // stage 3: stays gathered
  std::shared_ptr<Communicator> gradient_group;  // nn::Parameter::gradient_group
  std::vector<size_t> arrivals;  // the places of the leaf and of its tied leaves in the models
  int64_t offset = 0;            // elements into the bucket
  int64_t numel() const { return leaf.numel(); }
};

// Parameters that lie one after the other and are cut together.
struct FlatBucket {
  std::vector<FlatSlot> slots;
  std::shared_ptr<Communicator> ranks;  // of each slot
  DType dtype = DType::kFloat32;
  DType grad_dtype = DType::kFloat32;
  Device device;
  bool trains = false;
  int model = 0;
  int64_t unit = -1;
  bool persistent = false;
  std::shared_ptr<Communicator> gradient_group;
  int owner = -1;        // the rank that has all of it; -1: every rank has its share
  int64_t elements = 0;  // ranks * share
  int64_t share = 0;

  // The elements [begin, end) that `rank` has.
  ElementRange ShareOf(int rank) const;

  ElementRange Share() const { return ShareOf(ranks->rank()); }
  // The elements [begin, end) of a parameter that `rank` holds; begin == end where it is none.
  ElementRange PieceOf(const FlatSlot& slot, int rank) const;
  // Where such a piece begins in the rank's share.
  int64_t PlaceOf(const FlatSlot& slot, const ElementRange& piece, int rank) const {
    return slot.offset + piece.begin - ShareOf(rank).begin;
  }
  // `rank`'s piece of a parameter, as a view of its 1-d share of the bucket (or of its gradients).
  Tensor PieceOfShare(const Tensor& whole_share, const FlatSlot& slot, int rank) const;
};

// Gives each slot that must stay whole an owner among its ranks (of several), by the sizes of
// global parameters, so that all tensor-parallel ranks choose alike.
void ChooseOwners(std::vector<FlatSlot>* slots);

// Puts slots into buckets in the given order, a new one when `cap_bytes` of gradients would be
// exceeded (0: never) and for each unit, owner and group of ranks.
std::vector<FlatBucket> MakeFlatBuckets(std::vector<FlatSlot> slots, double cap_bytes);

// n elements of 1-d contiguous `flat` from `begin` on.
Tensor FlatView(const Tensor& flat, int64_t begin, int64_t n);
// A slot's part of whole `flat` elements, in the leaf's shape.
Tensor SlotView(const Tensor& flat, const FlatSlot& slot);

// Entries for a checkpoint: `piece` holds elements [range.begin, range.end) of the flattened local
// part of a parameter.
void AppendPieceEntries(const std::string& name, const Tensor& piece, const Placement& placement,
                        const ElementRange& range, std::vector<CheckpointTensor>* entries);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_FLAT_BUCKET_H_
