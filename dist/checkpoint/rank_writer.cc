// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/rank_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/output_files.h"
#include "core/safetensors.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

using Json = nlohmann::json;
using Outgoing = CheckpointWriter::Outgoing;

uint64_t Identity(const Outgoing& out) {
  std::string text = Concat(out.name, '\0', DTypeName(out.data.dtype()), out.global_shape,
                            out.piece.box.begin, out.piece.box.size);
  if (out.piece.range) text += Concat(out.piece.range->begin, "-", out.piece.range->end);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// What each rank holds, by rank. Collective.
std::vector<std::vector<HeldPiece>> GatherHeld(const std::vector<HeldPiece>& mine,
                                               Communicator& world) {
  std::string text(mine.size() * sizeof(HeldPiece), '\0');
  if (!mine.empty()) std::memcpy(text.data(), mine.data(), text.size());
  std::vector<std::vector<HeldPiece>> all;
  for (const std::string& one : GatherStrings(world, text)) {
    std::vector<HeldPiece> held(one.size() / sizeof(HeldPiece));
    if (!held.empty()) std::memcpy(held.data(), one.data(), one.size());
    all.push_back(std::move(held));
  }
  return all;
}

std::string RankFile(int rank, int size) {
  char name[64];
  std::snprintf(name, sizeof(name), "tensors-%05d-of-%05d.safetensors", rank, size);
  return name;
}

// Contiguous and on the host.
Tensor HostData(const Tensor& t) {
  return t.device().is_cpu() ? t.ContiguousCopy() : CopyTo(t, Device::Cpu());
}

// The name alone for the first piece of a tensor in a file, `<name>#<i>` for the others. A name
// that another tensor has is not taken.
std::vector<std::string> Keys(const std::vector<Outgoing>& outgoing) {
  std::set<std::string> taken;
  for (const Outgoing& out : outgoing) taken.insert(out.name);
  std::set<std::string> seen;
  std::vector<std::string> keys;
  for (const Outgoing& out : outgoing) {
    std::string key = out.name;
    if (!seen.insert(out.name).second) {
      for (int i = 1; !taken.insert(key = Concat(out.name, "#", i)).second;) ++i;
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// Adds what another rank reports.
Status Merge(const CheckpointEntries& part, const std::string& path, CheckpointEntries* all) {
  for (const auto& [name, entry] : part) {
    const auto [it, is_new] = all->try_emplace(name, entry);
    if (is_new) continue;
    CheckpointEntry& known = it->second;
    if (known.dtype != entry.dtype || !(known.shape == entry.shape)) {
      return InvalidArgument(path, ": tensor '", name, "' is ", known.dtype, known.shape,
                             " on one rank and ", entry.dtype, entry.shape, " on another");
    }
    known.pieces.insert(known.pieces.end(), entry.pieces.begin(), entry.pieces.end());
  }
  return OkStatus();
}

Status CheckCover(const CheckpointEntries& entries, const std::string& path) {
  for (const auto& [name, entry] : entries) {
    std::vector<Box> left = {{Minus(entry.shape, entry.shape), entry.shape}};
    for (const SavedPiece& saved : entry.pieces) {
      for (const Box& box : BoxesOf(saved.piece)) Subtract(box, &left);
    }
    if (CountElements(left) > 0) {
      return InvalidArgument(path, ": tensor '", name, "': no rank holds ", CountElements(left),
                             " of its ", entry.shape.numel(), " elements");
    }
  }
  return OkStatus();
}

// All of a rank's pieces.
std::vector<Outgoing> PiecesOf(const std::vector<CheckpointTensor>& tensors) {
  std::vector<Outgoing> pieces;
  for (const CheckpointTensor& t : tensors) {
    for (LocalPart& part : LocalParts(t)) {
      pieces.push_back({t.name, t.placement.global_shape(), part.piece, std::move(part.data)});
    }
  }
  return pieces;
}

std::vector<HeldPiece> Compared(const std::vector<Outgoing>& pieces) {
  std::vector<HeldPiece> held;
  for (const Outgoing& out : pieces) held.push_back({Identity(out), out.data.nbytes()});
  return held;
}

}  // namespace

std::vector<HeldPiece> HeldPieces(const std::vector<CheckpointTensor>& tensors) {
  return Compared(PiecesOf(tensors));
}

std::vector<HeldPiece> WrittenPieces(const std::vector<std::vector<HeldPiece>>& by_rank,
                                     size_t rank) {
  struct Shared {
    uint64_t identity;
    int64_t bytes;
    std::vector<size_t> holders;
  };
  std::map<uint64_t, size_t> where;
  std::vector<Shared> pieces;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    for (const HeldPiece& held : by_rank[r]) {
      const auto [it, is_new] = where.try_emplace(held.identity, pieces.size());
      if (is_new) pieces.push_back({held.identity, held.bytes, {}});
      std::vector<size_t>& holders = pieces[it->second].holders;
      if (holders.empty() || holders.back() != r) holders.push_back(r);
    }
  }
  // The largest first.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Shared& a, const Shared& b) {
    if ((a.holders.size() == 1) != (b.holders.size() == 1)) return a.holders.size() == 1;
    return a.bytes > b.bytes;
  });
  std::vector<int64_t> load(by_rank.size(), 0);
  std::vector<HeldPiece> chosen;
  for (const Shared& piece : pieces) {
    const size_t writer = *std::min_element(piece.holders.begin(), piece.holders.end(),
                                            [&](size_t a, size_t b) { return load[a] < load[b]; });
    load[writer] += piece.bytes;
    if (writer == rank) chosen.push_back({piece.identity, piece.bytes});
  }
  return chosen;
}

StatusOr<CheckpointWriter> CheckpointWriter::Begin(const std::string& directory, int64_t step,
                                                   const std::vector<CheckpointTensor>& tensors,
                                                   const Json& trainer, Communicator& world,
                                                   const std::vector<int>& makers) {
  CheckpointWriter writer;
  writer.directory_ = directory;
  writer.step_ = step;
  writer.rank_ = world.rank();
  writer.ranks_ = world.size();
  std::vector<Outgoing> pieces = PiecesOf(tensors);
  const std::vector<HeldPiece> held = Compared(pieces);
  std::set<uint64_t> mine;
  for (const HeldPiece& piece :
       WrittenPieces(GatherHeld(held, world), static_cast<size_t>(world.rank()))) {
    mine.insert(piece.identity);
  }
  std::vector<Outgoing> chosen;
  for (size_t i = 0; i < held.size(); ++i) {
    if (mine.erase(held[i].identity) > 0) chosen.push_back(std::move(pieces[i]));
  }
  // Wider elements first: then all data is aligned in the file.
  std::stable_sort(chosen.begin(), chosen.end(), [](const Outgoing& a, const Outgoing& b) {
    return DTypeSize(a.data.dtype()) > DTypeSize(b.data.dtype());
  });
  writer.outgoing_ = std::move(chosen);

  const int maker = makers.empty() ? 0 : makers[static_cast<size_t>(world.rank())];
  Status status;
  if (world.rank() == maker) {
    status = CheckReplaceable(directory, {kIndexFile}, "a checkpoint's folder");
    StatusOr<AtomicDirectory> made = status.ok() ? AtomicDirectory::Create(directory) : status;
    status = made.status();
    if (made.ok()) {
      writer.temporary_.emplace(*std::move(made));
      writer.temporary_path_ = writer.temporary_->temporary_path();
    }
  }
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, status));
  writer.trainer_ = trainer;
  if (makers.empty()) {
    writer.temporary_path_ = BroadcastString(world, writer.temporary_path_);
  } else {
    writer.temporary_path_ =
        GatherStrings(world, writer.temporary_path_)[static_cast<size_t>(maker)];
    writer.trainer_ = Json::parse(BroadcastString(world, trainer.dump()));
  }
  return writer;
}

std::string CheckpointWriter::PathOf(int rank) const {
  return JoinPath(temporary_path_, RankFile(rank, ranks_));
}

StatusOr<CheckpointEntries> CheckpointWriter::WriteFile() const {
  CheckpointEntries entries;
  if (outgoing_.empty()) return entries;
  const std::vector<std::string> keys = Keys(outgoing_);
  std::vector<SafetensorsEntry> header;
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    const Shape shape = outgoing_[i].piece.shape();
    header.push_back({keys[i], outgoing_[i].data.dtype(), {shape.begin(), shape.end()}});
  }
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter file,
                           SafetensorsWriter::Create(PathOf(rank_), header));
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    const Outgoing& out = outgoing_[i];
    const Tensor data = HostData(out.data);
    TESSERA_RETURN_IF_ERROR(file.Append(data.raw_data(), data.nbytes()));
    const uint32_t crc = Crc32c(data.raw_data(), static_cast<size_t>(data.nbytes()));
    CheckpointEntry& entry =
        entries.try_emplace(out.name, CheckpointEntry{data.dtype(), out.global_shape, {}})
            .first->second;
    entry.pieces.push_back({RankFile(rank_, ranks_), keys[i], out.piece, crc});
  }
  TESSERA_RETURN_IF_ERROR(file.Commit());
  return entries;
}

void CheckpointWriter::WriteMine() {
  try {
    written_ = WriteFile();
  } catch (const std::bad_alloc&) {
    written_ =
        Failure(StatusCode::kResourceExhausted, PathOf(rank_), ": no memory is left to write it");
  } catch (const OutOfMemoryError& error) {
    written_ = Failure(StatusCode::kResourceExhausted, PathOf(rank_), ": ", error.what());
  } catch (const std::exception& error) {
    written_ = Internal(PathOf(rank_), ": ", error.what());
  }
  outgoing_.clear();
}

Status CheckpointWriter::Publish(const std::vector<std::string>& parts) {
  const std::string path = JoinPath(directory_, kIndexFile);
  CheckpointIndex index{step_, std::move(trainer_), {}};
  for (const std::string& part : parts) {
    TESSERA_ASSIGN_OR_RETURN(const CheckpointEntries entries,
                             ParseEntries(Json::parse(part, nullptr, false), 2, path));
    TESSERA_RETURN_IF_ERROR(Merge(entries, path, &index.entries));
  }
  TESSERA_RETURN_IF_ERROR(CheckCover(index.entries, directory_));
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(temporary_->temporary_path(), kIndexFile), IndexText(index)));
  return temporary_->CommitReplacing();
}

Status CheckpointWriter::Finish(Communicator& world) {
  Status status = AgreeOnStatus(world, written_.status());
  if (status.ok()) {
    const std::vector<std::string> parts = GatherStrings(world, EntriesToJson(*written_).dump());
    status = AgreeOnStatus(world, temporary_ ? Publish(parts) : OkStatus());
  }
  // Whoever returns finds nothing half-made.
  temporary_.reset();
  world.Barrier();
  return status;
}

}  // namespace tessera::dist
