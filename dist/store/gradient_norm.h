// SPDX-License-Identifier: Apache-2.0
// The norm of a step's gradients, wherever they lie, with the bits of one process.
//
//   GradientNorm norm(parameters, groups, /*exact=*/true);
//   Tensor squared = norm.SquaredNorm(pieces);       // 0-d float64, on every rank
//
// Norms sum squares over chunks of optim::kNormChunk elements of a parameter (optim/clip.h), and
// the chunks one after the other in the order of the model's parameters. Here every chunk is
// measured on one rank: a chunk that is cut over data-parallel ranks is put together on the one
// that holds its beginning, which is at most one chunk per parameter and boundary. The sums of all
// chunks, of other stages of a pipeline too, then come together and are added in order.
// Tensor-parallel ranks hold other parts of the parameters, whose sums are added at the end.
#ifndef TESSERA_DIST_STORE_GRADIENT_NORM_H_
#define TESSERA_DIST_STORE_GRADIENT_NORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "dist/checkpoint/pieces.h"
#include "dist/pipeline/stage.h"
#include "dist/store/store_setup.h"

namespace tessera::dist {

// A parameter as norms see it.
struct MeasuredParameter {
  std::string name;
  int64_t numel = 0;  // of this rank's part
  DType grad_dtype = DType::kFloat32;
  // Of the ranks that hold the same part on other stages and tensor-parallel ranks, one counts it.
  bool counted = true;
  // Which elements of its gradient each data-parallel rank has; empty: all ranks have all.
  std::vector<ElementRange> pieces = {};
};

class GradientNorm {
 public:
  // `parameters` in the order of the models. Of a pipeline, `stage` knows the order of the whole
  // model. Without `exact`, parts of a chunk that lie on several ranks are measured where they are.
  // Collective over the stage's group.
  GradientNorm(std::vector<MeasuredParameter> parameters, const StoreGroups& groups,
               const Stage* stage, const Device& device, bool exact);

  // 0-d float64: the sum of squares over all ranks. `gradients[i]`: what this rank has of that of
  // parameter i (its piece, on the device or in host memory); undefined where there is none, on all
  // ranks alike. Collective over all groups.
  Tensor SquaredNorm(const std::vector<Tensor>& gradients) const;

 private:
  // A part of a chunk that another rank measures.
  struct Fragment {
    size_t parameter;
    ElementRange range;
    int64_t place;  // bytes into the message to that rank
  };
  struct Part {
    Tensor elements;
    int64_t first_chunk;  // in the order of all chunks
  };
  void PlaceChunks();
  void PlanFragments();
  ElementRange MyPiece(size_t parameter) const;
  Tensor Exchange(const std::vector<Tensor>& gradients) const;
  void AddParts(size_t parameter, const Tensor& gradient, const Tensor& received,
                std::vector<Part>* parts) const;
  Tensor CutChunk(size_t parameter, const ElementRange& mine, const Tensor& elements,
                  const Tensor& received) const;
  Tensor ChunkSums(const std::vector<Part>& parts) const;

  const std::vector<MeasuredParameter> parameters_;
  const StoreGroups groups_;
  const Stage* const stage_;
  const Device device_;
  const bool cut_;                               // over data-parallel ranks
  const bool exact_;                             // though cut
  std::vector<int64_t> first_chunk_;             // by parameter
  std::vector<std::vector<Fragment>> sent_;      // by the rank it is for
  std::vector<std::vector<Fragment>> received_;  // by the rank it comes from
  int64_t chunks_ = 0;                           // of all stages
  int64_t message_ = 0;                          // bytes from each rank to each
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_GRADIENT_NORM_H_
