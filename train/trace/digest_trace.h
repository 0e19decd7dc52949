// SPDX-License-Identifier: Apache-2.0
// The record of a run that `trace` digests asks for: of every step what each operation gave,
// forward and backward, what the step was given, and what it left, as digests
// (train/trace/digest.h).
//
//   DigestTrace trace(...);
//   {
//     const TapeWatcher::Scope scope(&trace);
//     loop.Step(batches, whole);
//   }
//   TESSERA_RETURN_IF_ERROR(trace.Write({.step = 3, .loss = loss, ...}));
//
// Each rank has its file, `<out>/digests/rank-<rank>.jsonl`, a row per step: `ranks`, how many the
// run had; `loss` and `grad_norm` in hexadecimal floating point; `batches`, a digest of each of the
// rank's micro-batches by its number in the step; `operations`, where they are not those of the row
// before: micro-batch, pass, chunk, name, module, "result" or "gradient", and index of each digest;
// `digests`, 16 hexadecimal digits for each of these; `tensors`, by name and part, of weights and
// optimizer states after the step. A first row has the tensors before. `tessera diff` compares two
// such records.
#ifndef TESSERA_TRAIN_TRACE_DIGEST_TRACE_H_
#define TESSERA_TRAIN_TRACE_DIGEST_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape_watcher.h"
#include "base/status.h"
#include "core/bundle.h"
#include "core/communicator.h"
#include "dist/checkpoint/pieces.h"
#include "train/report/row_file.h"

namespace tessera::train {

inline constexpr char kDigests[] = "digests";  // in a run's folder
std::string DigestFile(const std::string& out, int64_t rank);

struct TracedStep {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  int64_t first_micro_batch = 0;       // of this rank, in the step
  const std::vector<Bundle>& batches;  // this rank's
  const std::vector<dist::CheckpointTensor>& tensors;
};

class DigestTrace final : public TapeWatcher {
 public:
  // Of this rank of `world`. Rows up to `last_step` are kept.
  static StatusOr<std::unique_ptr<DigestTrace>> Open(const std::string& out,
                                                     const Communicator& world, int64_t last_step);

  // What the run begins with, after `step` steps: a row of `tensors` alone, where it is the first.
  Status Begin(int64_t step, const std::vector<dist::CheckpointTensor>& tensors);
  // Of the step that was watched, and forgets it.
  Status Write(const TracedStep& step);

 private:
  struct Entry {
    PassPlace place;
    std::string operation;
    std::string module;
    bool gradient = false;
    int64_t index = 0;
    uint64_t digest = 0;
  };

  DigestTrace(RowFile file, int64_t ranks, bool continues)
      : file_(std::move(file)), ranks_(ranks), continues_(continues) {}
  void Results(const Origin& origin, const std::vector<Tensor>& operands,
               const std::vector<Tensor>& results) override;
  void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) override {
    static_cast<void>(origin), static_cast<void>(of_results);  // seen where they were given
  }
  void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                const std::vector<Tensor>& of_results) override;
  void Add(const Origin& origin, bool gradient, size_t index, const Tensor& t);

  RowFile file_;
  const int64_t ranks_;
  const bool continues_;  // rows that an earlier process wrote
  std::vector<Entry> entries_;
  std::string operations_;  // of the row before
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_DIGEST_TRACE_H_
