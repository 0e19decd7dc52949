// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/piece_exchange.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "dist/comm/agreement.h"

namespace tessera::dist {
namespace {

constexpr int kPartsTag = 0x3e4;
constexpr int kBytesTag = 0x3e5;
constexpr int64_t kBlock = 16 << 20;  // bytes of a message

std::vector<const CheckpointEntry*> Pointers(const CheckpointEntries& entries) {
  std::vector<const CheckpointEntry*> pointers;
  pointers.reserve(entries.size());
  for (const auto& [name, entry] : entries) pointers.push_back(&entry);
  return pointers;
}

// Parts as numbers: entry, piece, box, dims, begin of each, size of each.
Tensor Encode(const std::vector<PiecePart>& parts) {
  std::vector<int64_t> numbers;
  for (const PiecePart& part : parts) {
    const Box& box = part.part;
    numbers.insert(numbers.end(), {part.entry, part.piece, part.box, box.size.ndim()});
    numbers.insert(numbers.end(), box.begin.begin(), box.begin.end());
    numbers.insert(numbers.end(), box.size.begin(), box.size.end());
  }
  return Tensor::FromVector<int64_t>(numbers, {std::ssize(numbers)});
}

std::vector<PiecePart> Decode(const Tensor& numbers) {
  std::vector<PiecePart> parts;
  const int64_t* at = numbers.data<int64_t>();
  const int64_t* const end = at + numbers.numel();
  while (at != end) {
    const int64_t ndim = at[3];
    PiecePart part = {at[0], at[1], at[2], {}};
    at += 4;
    part.part.begin = Shape(std::vector<int64_t>(at, at + ndim));
    part.part.size = Shape(std::vector<int64_t>(at + ndim, at + 2 * ndim));
    at += 2 * ndim;
    parts.push_back(std::move(part));
  }
  return parts;
}

// Consecutive parts that travel in one message.
struct Block {
  size_t begin = 0;
  size_t end = 0;
  int64_t bytes = 0;
};

}  // namespace

PieceExchange::PieceExchange(const CheckpointEntries& entries, SavedFiles* files,
                             Communicator& world)
    : entries_(Pointers(entries)),
      files_(files),
      world_(world),
      wanted_(static_cast<size_t>(world.size())) {}

void PieceExchange::Want(int keeper, const PiecePart& part, const Tensor& place) {
  const Shape& size = part.part.size;
  if (place.nbytes() <= kBlock || keeper == world_.rank()) {
    wanted_[static_cast<size_t>(keeper)].push_back({part, place});
    return;
  }
  // Halves of the first dims lie in one stretch each.
  int dim = 0;
  while (size[dim] == 1) ++dim;
  for (const bool is_second : {false, true}) {
    PiecePart half = part;
    Box inside = {Minus(part.part.begin, part.part.begin), size};  // of the place
    const int64_t first = size[dim] / 2;
    inside.begin[dim] = is_second ? first : 0;
    inside.size[dim] = is_second ? size[dim] - first : first;
    half.part.begin[dim] += inside.begin[dim];
    half.part.size = inside.size;
    Want(keeper, half, BoxView(place, inside));
  }
}

// From this rank's own files.
Status PieceExchange::Read(const PiecePart& part, const Tensor& place) {
  const CheckpointEntry& entry = *entries_[static_cast<size_t>(part.entry)];
  const SavedPiece& saved = entry.pieces[static_cast<size_t>(part.piece)];
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, files_->Get(saved, entry.dtype));
  const std::vector<Box> boxes = BoxesOf(saved.piece);
  int64_t offset = 0;
  for (int64_t i = 0; i < part.box; ++i) offset += boxes[static_cast<size_t>(i)].size.numel();
  const Box& from = boxes[static_cast<size_t>(part.box)];
  CopyPart(view.data + static_cast<size_t>(offset) * DTypeSize(entry.dtype), from.size,
           {Minus(part.part.begin, from.begin), part.part.size}, place);
  return OkStatus();
}

Status PieceExchange::Run() {
  const auto rank = static_cast<size_t>(world_.rank());
  Status status;
  for (const Wanted& own : wanted_[rank]) {
    if (status.ok()) status = Read(own.part, own.place);
  }
  const int size = world_.size();
  std::string mine;  // how many numbers this rank sends to each
  std::vector<Tensor> questions;
  for (const std::vector<Wanted>& wanted : wanted_) {
    std::vector<PiecePart> parts;
    for (const Wanted& one : wanted) parts.push_back(one.part);
    questions.push_back(Encode(parts));
    mine += Concat(questions.back().numel(), " ");
  }
  std::vector<int64_t> asked(wanted_.size());  // by those that ask this rank
  const std::vector<std::string> counts = GatherStrings(world_, mine);
  for (size_t r = 0; r < counts.size(); ++r) {
    std::istringstream words(counts[r]);
    for (size_t i = 0; i <= rank; ++i) words >> asked[r];
  }
  for (int k = 1; k < size; ++k) {
    const int server = (world_.rank() + k) % size;
    const int client = (world_.rank() + size - k) % size;
    const Tensor& question = questions[static_cast<size_t>(server)];
    CommHandlePtr sent;
    if (question.numel() > 0) sent = world_.Send(question, server, kPartsTag);
    const Status round = RunRound(server, client, asked[static_cast<size_t>(client)]);
    if (status.ok()) status = round;
    if (sent != nullptr) sent->Wait();
  }
  return AgreeOnStatus(world_, status);
}

// A rank that cannot read a file sends as many bytes as were asked for, since the other one awaits
// them; the failure is told when all is over.
Status PieceExchange::RunRound(int server, int client, int64_t asked) {
  std::vector<PiecePart> theirs;
  if (asked > 0) {
    const Tensor question = Empty({asked}, DType::kInt64);
    world_.Receive(question, client, kPartsTag)->Wait();
    theirs = Decode(question);
  }
  const std::vector<Wanted>& mine = wanted_[static_cast<size_t>(server)];
  const auto bytes_of = [this](const PiecePart& part) {
    const DType dtype = entries_[static_cast<size_t>(part.entry)]->dtype;
    return part.part.size.numel() * static_cast<int64_t>(DTypeSize(dtype));
  };
  const auto blocks_of = [&](size_t count, const auto& part_at) {
    std::vector<Block> blocks;
    for (size_t i = 0; i < count; ++i) {
      const int64_t bytes = bytes_of(part_at(i));
      if (blocks.empty() || blocks.back().bytes + bytes > kBlock) blocks.push_back({i, i, 0});
      blocks.back().end = i + 1;
      blocks.back().bytes += bytes;
    }
    return blocks;
  };
  const std::vector<Block> out =
      blocks_of(theirs.size(), [&](size_t i) -> const PiecePart& { return theirs[i]; });
  const std::vector<Block> in =
      blocks_of(mine.size(), [&](size_t i) -> const PiecePart& { return mine[i].part; });
  Status status;
  for (size_t b = 0; b < std::max(in.size(), out.size()); ++b) {
    CommHandlePtr sent;
    Tensor block;
    if (b < out.size()) {
      block = Zeros({out[b].bytes}, DType::kUInt8);
      auto* at = static_cast<std::byte*>(block.raw_data());
      for (size_t i = out[b].begin; i < out[b].end && status.ok(); ++i) {
        const PiecePart& part = theirs[i];
        const Tensor rows = Empty(part.part.size, entries_[static_cast<size_t>(part.entry)]->dtype);
        status = Read(part, rows);
        std::memcpy(at, rows.raw_data(), static_cast<size_t>(bytes_of(part)));
        at += bytes_of(part);
      }
      sent = world_.Send(block, client, kBytesTag);
    }
    if (b < in.size()) {
      const Tensor received = Empty({in[b].bytes}, DType::kUInt8);
      world_.Receive(received, server, kBytesTag)->Wait();
      const auto* at = static_cast<const std::byte*>(received.raw_data());
      for (size_t i = in[b].begin; i < in[b].end; ++i) {
        const Shape& size = mine[i].part.part.size;
        CopyPart(at, size, {Minus(size, size), size}, mine[i].place);
        at += bytes_of(mine[i].part);
      }
    }
    if (sent != nullptr) sent->Wait();
  }
  return status;
}

}  // namespace tessera::dist
