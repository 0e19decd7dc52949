// The norm of gradients of which every rank holds a share, with the bits of the whole.
//
// Norms sum squares over chunks of optim::kNormChunk elements of a parameter (optim/clip.h). A
// chunk that lies on several ranks is put together on the one that holds its beginning, which is at
// most one chunk per parameter and boundary; sums of chunks are then added in the parameters'
// order.
#ifndef TESSERA_DIST_ZERO_SHARD_NORM_H_
#define TESSERA_DIST_ZERO_SHARD_NORM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "dist/zero/flat_bucket.h"
#include "dist/zero/gradient_shards.h"

namespace tessera::dist {

class ShardNorm {
 public:
  // Without `exact` each rank sums what it has, and the ranks' sums are added.
  ShardNorm(const std::vector<FlatBucket>& buckets, std::shared_ptr<Communicator> group,
            bool exact);

  // 0-d float64: the sum of squares over all ranks of the group, of those slots that count.
  // Collective.
  Tensor SquaredNorm(const GradientShards& gradients,
                     const std::function<bool(const FlatSlot&)>& counted) const;

 private:
  // A part of a chunk that another rank sums.
  struct Fragment {
    size_t bucket;
    size_t slot;
    ElementRange range;
    int64_t place;  // bytes into the message to that rank
  };
  struct Part {
    Tensor elements;
    int64_t first_chunk;  // in the order of all chunks
  };
  void Plan();
  Tensor Exchange(const GradientShards& gradients) const;
  std::vector<Part> Parts(const GradientShards& gradients,
                          const std::function<bool(const FlatSlot&)>& counted) const;

  const std::vector<FlatBucket>& buckets_;
  const std::shared_ptr<Communicator> group_;
  const bool exact_;
  std::vector<std::vector<int64_t>> first_chunk_;  // by bucket and slot
  std::vector<std::vector<Fragment>> sent_;        // by the rank it is for
  std::vector<std::vector<Fragment>> received_;    // by the rank it comes from
  int64_t chunks_ = 0;
  int64_t message_ = 0;  // bytes from each rank to each
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_SHARD_NORM_H_
