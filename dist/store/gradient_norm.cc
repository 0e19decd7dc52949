// SPDX-License-Identifier: Apache-2.0
#include "dist/store/gradient_norm.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "dist/store/flat_bucket.h"
#include "dist/store/host_memory.h"
#include "optim/clip.h"

namespace tessera::dist {
namespace {

constexpr int64_t kChunk = optim::kNormChunk;

int64_t ChunksOf(int64_t n) { return (n + kChunk - 1) / kChunk; }

// The elements as bytes.
Tensor Bytes(const Tensor& t) {
  return Tensor(t.storage(), {t.nbytes()}, {1},
                t.offset() * static_cast<int64_t>(DTypeSize(t.dtype())), DType::kUInt8);
}

bool IsCut(const std::vector<MeasuredParameter>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const MeasuredParameter& p) { return p.pieces.size() > 1; });
}

}  // namespace

GradientNorm::GradientNorm(std::vector<MeasuredParameter> parameters, int64_t all,
                           const StoreGroups& groups, const Stage* stage, const Device& device,
                           bool exact)
    : parameters_(std::move(parameters)),
      groups_(groups),
      stage_(stage),
      device_(device),
      cut_(IsCut(parameters_)),
      joins_(groups.data->size() > 1 && (cut_ || groups.experts->size() > 1)),
      exact_(exact && cut_) {
  PlaceChunks(all);
  if (!exact_) return;
  plans_.push_back({.ranks = groups_.data});
  if (groups_.experts->size() > 1) plans_.push_back({.ranks = groups_.expert_data});
  for (Plan& plan : plans_) PlanFragments(&plan);
}

// Where each parameter's chunks stand among those of the whole model.
void GradientNorm::PlaceChunks(int64_t all) {
  Tensor chunks = Zeros({all}, DType::kInt64);
  for (const MeasuredParameter& p : parameters_) {
    if (p.owned) chunks.data<int64_t>()[p.index] = ChunksOf(p.numel);
  }
  if (stage_ != nullptr && stage_->stages() > 1) {
    stage_->group()->AllReduce(chunks, ReduceOp::kSum)->Wait();
  }
  if (groups_.experts->size() > 1) groups_.experts->AllReduce(chunks, ReduceOp::kMax)->Wait();
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < all; ++i) {
    begins.push_back(chunks_);
    chunks_ += chunks.data<int64_t>()[i];
  }
  for (const MeasuredParameter& p : parameters_) {
    first_chunk_.push_back(begins[static_cast<size_t>(p.index)]);
  }
}

// Every rank makes the same plan, and keeps what concerns it.
void GradientNorm::PlanFragments(Plan* plan) const {
  const int ranks = plan->ranks->size();
  const int me = plan->ranks->rank();
  plan->sent.resize(static_cast<size_t>(ranks));
  plan->received.resize(static_cast<size_t>(ranks));
  std::vector<int64_t> bytes(static_cast<size_t>(ranks) * static_cast<size_t>(ranks), 0);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (parameters_[p].ranks != plan->ranks) continue;
    const std::vector<ElementRange>& pieces = parameters_[p].pieces;
    for (int from = 1; from < ranks; ++from) {
      const ElementRange& piece = pieces[static_cast<size_t>(from)];
      const int64_t chunk_begin = piece.begin / kChunk * kChunk;
      if (piece.begin == piece.end || chunk_begin == piece.begin) continue;
      int to = 0;
      while (pieces[static_cast<size_t>(to)].end <= chunk_begin) ++to;
      const ElementRange range = {piece.begin, std::min(piece.end, chunk_begin + kChunk)};
      int64_t& used = bytes[static_cast<size_t>(from * ranks + to)];
      const Fragment fragment = {p, range, used};
      used +=
          (range.end - range.begin) * static_cast<int64_t>(DTypeSize(parameters_[p].grad_dtype));
      plan->message = std::max(plan->message, used);
      if (from == me) plan->sent[static_cast<size_t>(to)].push_back(fragment);
      if (to == me) plan->received[static_cast<size_t>(from)].push_back(fragment);
    }
  }
}

ElementRange GradientNorm::MyPiece(size_t parameter) const {
  const MeasuredParameter& p = parameters_[parameter];
  if (!cut_) return {0, p.numel};
  return p.pieces[static_cast<size_t>(p.ranks->rank())];
}

// The fragments of other ranks' chunks go to them; what comes is theirs of this rank's.
Tensor GradientNorm::Exchange(const Plan& plan, const std::vector<Tensor>& gradients) const {
  if (plan.message == 0) return Tensor();
  const int64_t ranks = plan.ranks->size();
  const Tensor out = Zeros({ranks * plan.message}, DType::kUInt8, device_);
  const Tensor in = Empty({ranks * plan.message}, DType::kUInt8, device_);
  for (int64_t to = 0; to < ranks; ++to) {
    for (const Fragment& f : plan.sent[static_cast<size_t>(to)]) {
      const Tensor& gradient = gradients[f.parameter];
      if (!gradient.defined()) continue;
      const int64_t begin = f.range.begin - MyPiece(f.parameter).begin;
      const Tensor part = Bytes(FlatView(gradient, begin, f.range.end - f.range.begin));
      CopyInto(FlatView(out, to * plan.message + f.place, part.numel()), part);
    }
  }
  plan.ranks->AllToAll(in, out)->Wait();
  return in;
}

// The chunk whose first elements are `mine`, with what other ranks have of it.
Tensor GradientNorm::CutChunk(size_t parameter, const ElementRange& mine, const Tensor& elements,
                              const std::vector<Tensor>& received) const {
  const int64_t n = std::min(kChunk, parameters_[parameter].numel - mine.begin);
  const Tensor chunk = Zeros({n}, elements.dtype(), elements.device());
  CopyInto(FlatView(chunk, 0, mine.end - mine.begin), elements);
  for (size_t i = 0; i < plans_.size(); ++i) {
    const Plan& plan = plans_[i];
    for (size_t from = 0; from < plan.received.size(); ++from) {
      for (const Fragment& f : plan.received[from]) {
        if (f.parameter != parameter || f.range.begin / kChunk != mine.begin / kChunk) continue;
        const Tensor place =
            Bytes(FlatView(chunk, f.range.begin - mine.begin, f.range.end - f.range.begin));
        CopyInto(place, FlatView(received[i], static_cast<int64_t>(from) * plan.message + f.place,
                                 place.numel()));
      }
    }
  }
  return chunk;
}

// What this rank measures of a parameter: the chunks that begin in its piece. Those that began on
// another rank are that rank's, or, not exact, add to the chunk's sum from here.
void GradientNorm::AddParts(size_t parameter, const Tensor& gradient,
                            const std::vector<Tensor>& received, std::vector<Part>* parts) const {
  const ElementRange piece = MyPiece(parameter);
  const int64_t numel = parameters_[parameter].numel;
  const int64_t first = first_chunk_[parameter];
  if (piece.begin == 0 && piece.end == numel) {
    parts->push_back({gradient, first});
    return;
  }
  const auto add = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    parts->push_back(
        {FlatView(gradient, begin - piece.begin, end - begin), first + begin / kChunk});
  };
  const int64_t begin = std::min(piece.end, ChunksOf(piece.begin) * kChunk);
  if (!exact_) add(piece.begin, begin);
  const bool ends_in_chunk = exact_ && piece.end < numel && piece.end % kChunk != 0;
  const int64_t end = ends_in_chunk ? std::max(begin, piece.end / kChunk * kChunk) : piece.end;
  add(begin, end);
  if (end == piece.end) return;
  const Tensor mine = FlatView(gradient, end - piece.begin, piece.end - end);
  parts->push_back({CutChunk(parameter, {end, piece.end}, mine, received), first + end / kChunk});
}

// float64 [chunks]: what this rank adds to the sum of each.
Tensor GradientNorm::ChunkSums(const std::vector<Part>& parts) const {
  const Tensor all = Zeros({chunks_}, DType::kFloat64, device_);
  for (const bool on_host : {false, true}) {
    std::vector<Tensor> tensors;
    for (const Part& part : parts) {
      if (IsHostMemory(part.elements.device()) == on_host) tensors.push_back(part.elements);
    }
    if (tensors.empty()) continue;
    const Tensor sums = CopyTo(optim::ChunkSquareSums(tensors, tensors.front().device()), device_);
    int64_t next = 0;
    for (const Part& part : parts) {
      if (IsHostMemory(part.elements.device()) != on_host) continue;
      const int64_t count = ChunksOf(part.elements.numel());
      AddInto(FlatView(all, part.first_chunk, count), FlatView(sums, next, count));
      next += count;
    }
  }
  return all;
}

// Of the ranks that hold all of a gradient, one counts it where their sums are added.
bool GradientNorm::Counts(const MeasuredParameter& parameter) const {
  return parameter.counted && (!joins_ || cut_ || parameter.ranks->rank() == 0);
}

Tensor GradientNorm::SquaredNorm(const std::vector<Tensor>& gradients) const {
  const NoGrad no_grad;
  std::vector<Tensor> received;
  for (const Plan& plan : plans_) received.push_back(Exchange(plan, gradients));
  std::vector<Part> parts;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!gradients[p].defined() || gradients[p].numel() == 0 || !Counts(parameters_[p])) continue;
    AddParts(p, gradients[p], received, &parts);
  }
  // A chunk that nobody adds to is zero, which changes no bit of the sum.
  const Tensor all = ChunkSums(parts);
  if (joins_) groups_.data->AllReduce(all, ReduceOp::kSum)->Wait();
  if (stage_ != nullptr && stage_->stages() > 1) {
    stage_->group()->AllReduce(all, ReduceOp::kSum)->Wait();
  }
  const Tensor squared = optim::CombineSquareSums(all);
  if (groups_.tensor->size() > 1) groups_.tensor->AllReduce(squared, ReduceOp::kSum)->Wait();
  return squared;
}

}  // namespace tessera::dist
