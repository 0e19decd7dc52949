// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_exchange.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace tessera::dist {
namespace {

// Up to so many bytes every rank gets everything and sums by itself: one message time.
constexpr int64_t kShortBytes = 4096;
// Bytes of a segment's chunk: large enough that starting a message does not count.
constexpr int64_t kSegmentBytes = 512 << 10;

void Send(const ExchangeGroup& group, const char* data, int64_t count, const ElementType& element,
          int to, int tag, std::vector<MPI_Request>& requests) {
  for (int64_t begin = 0; begin < count; begin += element.largest_count) {
    requests.emplace_back();
    Mpi().Isend(data + begin * element.bytes,
                static_cast<int>(std::min(element.largest_count, count - begin)), element.type, to,
                tag, group.comm, &requests.back());
  }
}

void Receive(const ExchangeGroup& group, char* data, int64_t count, const ElementType& element,
             int from, int tag, std::vector<MPI_Request>& requests) {
  for (int64_t begin = 0; begin < count; begin += element.largest_count) {
    requests.emplace_back();
    Mpi().Irecv(data + begin * element.bytes,
                static_cast<int>(std::min(element.largest_count, count - begin)), element.type,
                from, tag, group.comm, &requests.back());
  }
}

// One reduction under way: segment by segment, what other ranks send for the own chunk is received
// beside each other in `received_`, summed into `out`, and given to the others if they want it.
class Reduction {
 public:
  Reduction(const ExchangeGroup& group, const ElementType& element, MPI_Op op)
      : group_(group), element_(element), op_(op) {}

  // In place: chunks are shares of `data`, and go to everyone.
  void SetEverywhere(char* data, int64_t count) {
    in_ = out_ = data;
    count_ = count;
    is_shared_ = true;
    is_short_ = count * element_.bytes <= kShortBytes;
  }
  void SetChunks(char* out, const char* in, int64_t count) {
    in_ = in;
    out_ = out;
    count_ = count;
  }

  bool Next(std::vector<MPI_Request>& requests) {
    if (is_short_) return NextShort(requests);
    const int64_t segment = std::min(kSegmentBytes / element_.bytes, element_.largest_count);
    // The longest chunk decides how many segments there are, on all ranks.
    const int64_t longest = is_shared_ ? (count_ + group_.size - 1) / group_.size : count_;
    const int64_t segments = (longest + segment - 1) / segment;
    if (step_ > 0 && step_ <= segments) {
      const auto [begin, end] = Range(group_.rank, step_ - 1, segment);
      Sum(begin, end - begin);
    }
    if (step_ > segments || (step_ == segments && !is_shared_)) return false;
    if (step_ < segments) StartGathering(step_, segment, requests);
    if (step_ > 0 && is_shared_) StartSharing(step_ - 1, segment, requests);
    ++step_;
    return true;
  }

 private:
  // All ranks' elements, to be summed on each of them.
  bool NextShort(std::vector<MPI_Request>& requests) {
    if (step_++ > 0) {
      Sum(0, count_);
      return false;
    }
    Reserve(count_);
    own_.assign(in_, in_ + count_ * element_.bytes);
    for (int i = 1; i < group_.size; ++i) {
      const int peer = (group_.rank + i) % group_.size;
      Receive(group_, Received(peer), count_, element_, peer, group_.tag, requests);
      Send(group_, own_.data(), count_, element_, peer, group_.tag, requests);
    }
    return true;
  }

  // Elements of rank r's chunk in one segment: positions in `in_`, for in-place also in `out_`.
  std::pair<int64_t, int64_t> Range(int r, int64_t step, int64_t segment) const {
    int64_t begin = count_ * r, end = begin + count_;
    if (is_shared_) {
      const int64_t each = (count_ + group_.size - 1) / group_.size;
      begin = std::min(count_, each * r);
      end = std::min(count_, begin + each);
    }
    return {std::min(end, begin + step * segment), std::min(end, begin + (step + 1) * segment)};
  }

  void StartGathering(int64_t step, int64_t segment, std::vector<MPI_Request>& requests) {
    const auto [my_begin, my_end] = Range(group_.rank, step, segment);
    Reserve(my_end - my_begin);
    for (int i = 1; i < group_.size; ++i) {
      const int from = (group_.rank + group_.size - i) % group_.size;
      Receive(group_, Received(from), my_end - my_begin, element_, from, group_.tag, requests);
      const int to = (group_.rank + i) % group_.size;
      const auto [begin, end] = Range(to, step, segment);
      Send(group_, in_ + begin * element_.bytes, end - begin, element_, to, group_.tag, requests);
    }
  }

  void StartSharing(int64_t step, int64_t segment, std::vector<MPI_Request>& requests) {
    const auto [my_begin, my_end] = Range(group_.rank, step, segment);
    for (int i = 1; i < group_.size; ++i) {
      const int from = (group_.rank + group_.size - i) % group_.size;
      const auto [begin, end] = Range(from, step, segment);
      Receive(group_, out_ + begin * element_.bytes, end - begin, element_, from, group_.tag + 1,
              requests);
      const int to = (group_.rank + i) % group_.size;
      Send(group_, out_ + my_begin * element_.bytes, my_end - my_begin, element_, to,
           group_.tag + 1, requests);
    }
  }

  // out = (((x0 + x1) + ...) + own) + ...: additions commute, so the lower ranks' sum can be added
  // to the own elements where they lie.
  void Sum(int64_t begin, int64_t count) {
    if (count == 0) return;
    char* out = out_ + (is_shared_ ? begin : begin - count_ * group_.rank) * element_.bytes;
    if (!is_shared_) std::memcpy(out, in_ + begin * element_.bytes, Bytes(count));
    const int n = static_cast<int>(count);
    for (int r = 1; r < group_.rank; ++r) {
      Mpi().Reduce_local(Received(r), Received(0), n, element_.type, op_);
    }
    // MPI computes `in + out`: the sum so far is first, or last where it is the result's place.
    if (group_.rank > 0) Mpi().Reduce_local(Received(0), out, n, element_.type, op_);
    for (int r = group_.rank + 1; r < group_.size; ++r) {
      Mpi().Reduce_local(Received(r), out, n, element_.type, op_);
    }
  }

  size_t Bytes(int64_t count) const { return static_cast<size_t>(count * element_.bytes); }
  void Reserve(int64_t count) {
    if (capacity_ >= count) return;
    capacity_ = count;
    received_.reset(new char[Bytes(count * group_.size)]);
  }
  char* Received(int rank) { return received_.get() + rank * capacity_ * element_.bytes; }

  const ExchangeGroup group_;
  const ElementType element_;
  const MPI_Op op_;
  const char* in_ = nullptr;
  char* out_ = nullptr;
  int64_t count_ = 0;
  bool is_shared_ = false;
  bool is_short_ = false;
  int64_t step_ = 0;
  int64_t capacity_ = 0;
  std::unique_ptr<char[]> received_;
  std::vector<char> own_;
};

}  // namespace

NextMessages ReduceEverywhere(const ExchangeGroup& group, char* data, int64_t count,
                              const ElementType& element, MPI_Op op) {
  auto reduction = std::make_shared<Reduction>(group, element, op);
  reduction->SetEverywhere(data, count);
  return [reduction](std::vector<MPI_Request>& requests) { return reduction->Next(requests); };
}

NextMessages ReduceChunks(const ExchangeGroup& group, char* out, const char* in, int64_t count,
                          const ElementType& element, MPI_Op op) {
  auto reduction = std::make_shared<Reduction>(group, element, op);
  reduction->SetChunks(out, in, count);
  return [reduction](std::vector<MPI_Request>& requests) { return reduction->Next(requests); };
}

void StartChunkExchange(const ExchangeGroup& group, char* out, const Chunks& out_chunks,
                        const char* in, const Chunks& in_chunks, const ElementType& element,
                        std::vector<MPI_Request>& requests) {
  const auto place = [&](const Chunks& chunks, size_t r) {
    return chunks.begins[r] * element.bytes;
  };
  for (int i = 1; i < group.size; ++i) {
    const int from = (group.rank + group.size - i) % group.size;
    const int to = (group.rank + i) % group.size;
    const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
    Receive(group, out + place(out_chunks, source), out_chunks.counts[source], element, from,
            group.tag, requests);
    Send(group, in + place(in_chunks, target), in_chunks.counts[target], element, to, group.tag,
         requests);
  }
  const auto own = static_cast<size_t>(group.rank);
  char* const to = out + place(out_chunks, own);
  const char* const from = in + place(in_chunks, own);
  const int64_t bytes = in_chunks.counts[own] * element.bytes;
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void StartBroadcast(const ExchangeGroup& group, char* data, int root, int64_t count,
                    const ElementType& element, std::vector<MPI_Request>& requests) {
  if (group.rank != root) {
    Receive(group, data, count, element, root, group.tag, requests);
    return;
  }
  for (int r = 0; r < group.size; ++r) {
    if (r != root) Send(group, data, count, element, r, group.tag, requests);
  }
}

}  // namespace tessera::dist
