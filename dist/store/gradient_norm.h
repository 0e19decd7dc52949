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
// Experts are measured by ranks that hold them, in their places among the chunks of the whole
// model.
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
  int64_t index = 0;  // its place in the order of the whole model's parameters
  int64_t numel = 0;  // of this rank's part
  DType grad_dtype = DType::kFloat32;
  // Of the stages that hold the parameter, one owns it; of the tensor-parallel ranks of that one,
  // one counts what is the same on all of them.
  bool owned = true;
  bool counted = true;
  std::shared_ptr<Communicator> ranks;  // of StoreGroups: those that hold the same part
  // Which elements of its gradient each of those ranks has; empty: each has the whole gradient.
  std::vector<ElementRange> pieces = {};
};

class GradientNorm {
 public:
  // `parameters` in the order of the models; the whole model has `all`. Without `exact`, parts of a
  // chunk that lie on several ranks are measured where they are. `stage`: of a pipeline. Collective
  // over its group, and over groups.experts.
  GradientNorm(std::vector<MeasuredParameter> parameters, int64_t all, const StoreGroups& groups,
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
  // What the ranks that hold the same parameters send each other.
  struct Plan {
    std::shared_ptr<Communicator> ranks;
    std::vector<std::vector<Fragment>> sent = {};      // by the rank it is for
    std::vector<std::vector<Fragment>> received = {};  // by the rank it comes from
    int64_t message = 0;                               // bytes from each rank to each
  };
  void PlaceChunks(int64_t all);
  void PlanFragments(Plan* plan) const;
  ElementRange MyPiece(size_t parameter) const;
  Tensor Exchange(const Plan& plan, const std::vector<Tensor>& gradients) const;
  // `received`: of each plan.
  void AddParts(size_t parameter, const Tensor& gradient, const std::vector<Tensor>& received,
                std::vector<Part>* parts) const;
  Tensor CutChunk(size_t parameter, const ElementRange& mine, const Tensor& elements,
                  const std::vector<Tensor>& received) const;
  bool Counts(const MeasuredParameter& parameter) const;
  Tensor ChunkSums(const std::vector<Part>& parts) const;

  const std::vector<MeasuredParameter> parameters_;
  const StoreGroups groups_;
  const Stage* const stage_;
  const Device device_;
  const bool cut_;                    // over data-parallel ranks
  const bool joins_;                  // data-parallel ranks count different parts
  const bool exact_;                  // though cut
  std::vector<int64_t> first_chunk_;  // by parameter
  std::vector<Plan> plans_;           // one for each group of ranks, where exact
  int64_t chunks_ = 0;                // of all stages
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_GRADIENT_NORM_H_
