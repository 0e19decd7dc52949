// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "dist/checkpoint/piece_exchange.h"
#include "dist/checkpoint/rank_writer.h"
#include "dist/checkpoint/saved_files.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";

// A box of the unsharded tensor that is wanted, and where it goes.
struct Target {
  Box box;
  Tensor data;
};

std::vector<Target> Targets(const CheckpointTensor& t) {
  std::vector<Target> targets;
  for (const LocalPart& part : LocalParts(t)) {
    if (!part.piece.range) {
      targets.push_back({part.piece.box, part.data});
      continue;
    }
    int64_t offset = part.data.offset();
    for (const Box& box : BoxesOf(part.piece)) {
      targets.push_back({box, part.data.AsStrided(box.size, ContiguousStrides(box.size), offset)});
      offset += box.size.numel();
    }
  }
  return targets;
}

// Asks for what the tensor holds, from the ranks that `keeper_of` names for files.
template <typename KeeperOf>
Status WantOne(const CheckpointEntry& entry, int64_t number, const CheckpointTensor& t,
               const KeeperOf& keeper_of, const std::string& directory, PieceExchange* exchange) {
  const std::vector<Target> targets = Targets(t);
  std::vector<Box> missing;
  for (const Target& target : targets) missing.push_back(target.box);
  for (int64_t piece = 0; piece < std::ssize(entry.pieces); ++piece) {
    const SavedPiece& saved = entry.pieces[static_cast<size_t>(piece)];
    const std::vector<Box> boxes = BoxesOf(saved.piece);
    for (int64_t box = 0; box < std::ssize(boxes); ++box) {
      const Box& from = boxes[static_cast<size_t>(box)];
      for (const Target& target : targets) {
        const std::optional<Box> both = Intersection(from, target.box);
        if (!both || both->size.numel() == 0) continue;
        exchange->Want(keeper_of(saved.file), {number, piece, box, *both},
                       BoxView(target.data, {Minus(both->begin, target.box.begin), both->size}));
      }
      Subtract(from, &missing);
    }
  }
  if (CountElements(missing) > 0) {
    return DataLoss(directory, ": tensor '", t.name, "' lacks ", CountElements(missing),
                    " elements");
  }
  return OkStatus();
}

// The index alone; its checksum is its own.
StatusOr<CheckpointIndex> ReadIndex(const std::string& directory) {
  const std::string path = JoinPath(directory, kIndexFile);
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseIndex(text, path);
}

}  // namespace

Status SaveCheckpoint(const std::string& directory, int64_t step,
                      const std::vector<CheckpointTensor>& tensors, const nlohmann::json& trainer,
                      Communicator& world) {
  TESSERA_ASSIGN_OR_RETURN(CheckpointWriter writer,
                           CheckpointWriter::Begin(directory, step, tensors, trainer, world));
  writer.WriteMine();
  return writer.Finish(world);
}

Status SaveCheckpoint(const std::string& directory, int64_t step,
                      const std::vector<CheckpointTensor>& tensors, const nlohmann::json& trainer) {
  return SaveCheckpoint(directory, step, tensors, trainer, *SingleProcessCommunicator());
}

Status AmendCheckpoint(const std::string& directory, const nlohmann::json& trainer) {
  TESSERA_ASSIGN_OR_RETURN(CheckpointIndex index, ReadIndex(directory));
  index.trainer = trainer;
  return WriteFileAtomically(JoinPath(directory, kIndexFile), IndexText(index));
}

StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  return Open(directory, *SingleProcessCommunicator());
}

StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory, Communicator& world) {
  const std::string path = JoinPath(directory, kIndexFile);
  StatusOr<std::string> text = std::string();
  if (world.rank() == 0) text = ReadFile(path);
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, text.status()));
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  TESSERA_ASSIGN_OR_RETURN(checkpoint.index_, ParseIndex(BroadcastString(world, *text), path));
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, checkpoint.VerifyShare(world)));
  return checkpoint;
}

Checkpoint Checkpoint::KeptBy(std::map<std::string, int> keepers, std::string directory,
                              CheckpointIndex index) {
  Checkpoint checkpoint;
  checkpoint.directory_ = std::move(directory);
  checkpoint.index_ = std::move(index);
  checkpoint.keepers_ = std::move(keepers);
  return checkpoint;
}

Status Checkpoint::VerifyShare(Communicator& world) const {
  struct Work {
    const SavedPiece* saved;
    DType dtype;
    int64_t bytes;
  };
  std::vector<Work> work;
  int64_t total = 0;
  for (const auto& [name, entry] : index_.entries) {
    for (const SavedPiece& saved : entry.pieces) {
      work.push_back({&saved, entry.dtype, saved.piece.numel()});
      total += saved.piece.numel();
    }
  }
  // By file, so that a rank opens few of them.
  std::stable_sort(work.begin(), work.end(),
                   [](const Work& a, const Work& b) { return a.saved->file < b.saved->file; });
  SavedFiles files(directory_);
  int64_t before = 0;
  for (const Work& piece : work) {
    const int64_t middle = before + piece.bytes / 2;
    const auto owner = total == 0 ? 0
                                  : static_cast<int>(static_cast<double>(middle) /
                                                     static_cast<double>(total) * world.size());
    before += piece.bytes;
    if (std::min(owner, world.size() - 1) != world.rank()) continue;
    TESSERA_RETURN_IF_ERROR(files.Verify(*piece.saved, piece.dtype));
  }
  return OkStatus();
}

Status Checkpoint::CheckNames(const std::vector<CheckpointTensor>& tensors,
                              Communicator& world) const {
  Status status;
  const Tensor wanted = Zeros({std::ssize(entries())}, DType::kInt32);
  for (const CheckpointTensor& t : tensors) {
    const auto found = entries().find(t.name);
    if (found == entries().end()) {
      status = InvalidArgument(directory_, ": tensor '", t.name, "' is missing");
      break;
    }
    const CheckpointEntry& entry = found->second;
    if (!(entry.shape == t.placement.global_shape()) || entry.dtype != t.tensor.dtype()) {
      status = InvalidArgument(directory_, ": tensor '", t.name, "' is ", entry.dtype, entry.shape,
                               ", expected ", t.tensor.dtype(), t.placement.global_shape());
      break;
    }
    wanted.data<int32_t>()[std::distance(entries().begin(), found)] = 1;
  }
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, status));
  if (wanted.numel() > 0) world.AllReduce(wanted, ReduceOp::kMax)->Wait();
  const int32_t* is_wanted = wanted.data<int32_t>();
  for (const auto& [name, entry] : entries()) {
    if (*is_wanted++ == 0) {
      return InvalidArgument(directory_, ": tensor '", name, "' is not part of this run");
    }
  }
  return OkStatus();
}

Status Checkpoint::Load(const std::vector<CheckpointTensor>& tensors) const {
  return Load(tensors, *SingleProcessCommunicator());
}

Status Checkpoint::Load(const std::vector<CheckpointTensor>& tensors, Communicator& world) const {
  TESSERA_RETURN_IF_ERROR(CheckNames(tensors, world));
  SavedFiles files(directory_);
  PieceExchange exchange(entries(), &files, world);
  const auto keeper_of = [&](const std::string& file) {
    return keepers_.empty() ? world.rank() : keepers_.at(file);
  };
  Status status;
  for (const CheckpointTensor& t : tensors) {
    const auto entry = entries().find(t.name);
    status = WantOne(entry->second, std::distance(entries().begin(), entry), t, keeper_of,
                     directory_, &exchange);
    if (!status.ok()) break;
  }
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, status));
  return exchange.Run();
}

std::string CheckpointPath(const std::string& out, int64_t step) {
  return JoinPath(out, Concat(kPrefix, step));
}

namespace {

StatusOr<std::vector<int64_t>> StepsIn(const std::string& out) {
  std::vector<int64_t> steps;
  const auto names = ListDirectory(out);
  if (names.status().code() == StatusCode::kNotFound) return steps;
  TESSERA_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    int64_t step = -1;
    const char* end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (result.ec == std::errc() && result.ptr == end && step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Whether the failure says nothing about what the files hold.
bool SaysUnreadable(StatusCode code) {
  return code != StatusCode::kNotFound && code != StatusCode::kDataLoss &&
         code != StatusCode::kInvalidArgument && code != StatusCode::kOutOfRange &&
         code != StatusCode::kFailedPrecondition && code != StatusCode::kUnimplemented;
}

}  // namespace

std::vector<int64_t> ListCheckpoints(const std::string& out) {
  const StatusOr<std::vector<int64_t>> steps = StepsIn(out);
  return steps.ok() ? *steps : std::vector<int64_t>();
}

StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(
    const std::string& out, const std::function<void(const std::string&)>& warn) {
  return FindNewestCheckpoint(out, *SingleProcessCommunicator(), warn);
}

StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(
    const std::string& out, Communicator& world,
    const std::function<void(const std::string&)>& warn) {
  StatusOr<std::vector<int64_t>> seen = std::vector<int64_t>();
  if (world.rank() == 0) seen = StepsIn(out);
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, seen.status()));
  const Tensor count = Tensor::FromVector<int64_t>({std::ssize(*seen)}, {1});
  world.Broadcast(count, 0)->Wait();
  const Tensor steps = Empty({*count.data<int64_t>()}, DType::kInt64);
  std::copy(seen->begin(), seen->end(), steps.data<int64_t>());
  if (steps.numel() > 0) world.Broadcast(steps, 0)->Wait();
  for (int64_t i = steps.numel() - 1; i >= 0; --i) {
    const int64_t step = steps.data<int64_t>()[i];
    auto checkpoint = Checkpoint::Open(CheckpointPath(out, step), world);
    if (checkpoint.ok() && checkpoint->step() == step) return *std::move(checkpoint);
    if (SaysUnreadable(checkpoint.status().code()) && !checkpoint.ok()) return checkpoint.status();
    if (world.rank() != 0) continue;
    warn(Concat("not used: ", checkpoint.ok()
                                  ? Concat(CheckpointPath(out, step),
                                           ": its index is that of step ", checkpoint->step())
                                  : Message(checkpoint.status())));
  }
  return std::nullopt;
}

Status RemoveCheckpointsAfter(const std::string& out, int64_t step) {
  for (const int64_t later : ListCheckpoints(out)) {
    if (later <= step) continue;
    const StatusOr<CheckpointIndex> index = ReadIndex(CheckpointPath(out, later));
    if (index.ok() && index->step != later) continue;
    TESSERA_RETURN_IF_ERROR(RemoveAll(CheckpointPath(out, later)));
  }
  return OkStatus();
}

Status PruneCheckpoints(const std::string& out, const KeepRules& rules, Communicator& world) {
  const auto prune = [&]() -> Status {
    const std::vector<int64_t> steps = ListCheckpoints(out);
    std::vector<int64_t> passed;
    std::set<int64_t> needed;
    int64_t kept = 0;
    int64_t sound = 0;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const StatusOr<CheckpointIndex> index = ReadIndex(CheckpointPath(out, *step));
      // A copy under another step's name is somebody's own.
      if (index.ok() && index->step != *step) continue;
      const bool is_good = index.ok() && rules.is_sound(*index->trainer);
      if (kept >= rules.newest && (!is_good || sound >= rules.newest)) {
        passed.push_back(*step);
        continue;
      }
      kept += index.ok() ? 1 : 0;  // one that cannot be read takes no other's place
      sound += is_good ? 1 : 0;
      if (!index.ok() || rules.needs == nullptr) continue;
      if (const auto other = rules.needs(*index->trainer)) needed.insert(*other);
    }
    for (const int64_t step : passed) {
      if (needed.contains(step)) continue;
      TESSERA_RETURN_IF_ERROR(RemoveAll(CheckpointPath(out, step)));
    }
    return OkStatus();
  };
  return AgreeOnStatus(world, world.rank() == 0 ? prune() : OkStatus());
}

}  // namespace tessera::dist
