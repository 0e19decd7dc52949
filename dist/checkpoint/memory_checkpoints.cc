// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/memory_checkpoints.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "dist/checkpoint/index.h"
#include "dist/checkpoint/rank_writer.h"
#include "dist/checkpoint/saved_files.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

constexpr int kCopyTag = 0x3e3;
constexpr int64_t kMessageBytes = 16 << 20;
constexpr size_t kKept = 2;

int64_t BlockAt(int64_t bytes, int64_t offset) {
  return std::clamp(bytes - offset, int64_t{0}, kMessageBytes);
}

// By file, the rank that sends it to others. `verified` has the names of each rank's files. Of two
// ranks with the same file, the one with fewer files gets it.
std::map<std::string, int> KeepersOf(const std::vector<std::string>& verified) {
  std::map<std::string, int> keepers;
  std::vector<int> kept(verified.size());
  for (size_t r = 0; r < verified.size(); ++r) {
    std::istringstream words(verified[r]);
    for (std::string file; words >> file;) {
      const auto [keeper, is_new] = keepers.try_emplace(file, static_cast<int>(r));
      int& others = kept[static_cast<size_t>(keeper->second)];
      if (!is_new && kept[r] >= others) continue;
      if (!is_new) --others;
      keeper->second = static_cast<int>(r);
      ++kept[r];
    }
  }
  return keepers;
}

// Texts that are equal are indexes of the same checkpoint: they have the sums of all its bytes.
using IndexKey = std::pair<int64_t, uint32_t>;  // step, sum of the text

}  // namespace

MemoryCheckpoints::MemoryCheckpoints(MemoryFolder here, Communicator& world)
    : here_(std::move(here)), world_(world) {
  const std::vector<std::string> hosts = GatherStrings(world, here_.host);
  std::map<std::string, size_t> place;  // of each host, in the order of their lowest ranks
  std::vector<std::vector<int>> ranks;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const auto [at, is_new] = place.try_emplace(hosts[r], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[at->second].push_back(static_cast<int>(r));
    makers_.push_back(ranks[at->second].front());
  }
  if (ranks.size() == 1) return;
  for (size_t h = 0; h < ranks.size(); ++h) {
    const std::vector<int>& next = ranks[(h + 1) % ranks.size()];
    for (size_t i = 0; i < ranks[h].size(); ++i) {
      const int keeper = next[i % next.size()];
      if (ranks[h][i] == world.rank()) copies_to_ = keeper;
      if (keeper == world.rank()) sources_.push_back(ranks[h][i]);
    }
  }
}

Status MemoryCheckpoints::Save(int64_t step, const std::vector<CheckpointTensor>& tensors,
                               const nlohmann::json& trainer) {
  TESSERA_ASSIGN_OR_RETURN(CheckpointWriter writer,
                           CheckpointWriter::Begin(CheckpointPath(here_.folder, step), step,
                                                   tensors, trainer, world_, makers_));
  writer.WriteMine();
  std::vector<std::string> received;
  for (const int source : sources_) received.push_back(writer.PathOf(source));
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world_, CopyFiles(writer.PathOf(world_.rank()), received)));
  TESSERA_RETURN_IF_ERROR(writer.Finish(world_));
  return AgreeOnStatus(world_, RemoveOlder());
}

// Sends this rank's file and writes those of `sources_` under the paths `received`. A rank that
// cannot write continues to receive, since the others continue to send.
Status MemoryCheckpoints::CopyFiles(const std::string& own,
                                    const std::vector<std::string>& received) const {
  const bool one_host = std::all_of(makers_.begin(), makers_.end(), [](int m) { return m == 0; });
  if (one_host) return OkStatus();
  Status status;
  std::optional<MappedFile> file;
  if (PathExists(own)) {
    StatusOr<MappedFile> opened = MappedFile::Open(own);
    status = opened.status();
    if (opened.ok()) file.emplace(*std::move(opened));
  }
  const int64_t bytes = file ? static_cast<int64_t>(file->size()) : 0;
  std::vector<int64_t> sizes;
  for (const std::string& text : GatherStrings(world_, std::to_string(bytes))) {
    sizes.push_back(std::stoll(text));
  }
  std::vector<std::optional<AtomicFile>> copies(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sizes[static_cast<size_t>(sources_[i])] == 0) continue;
    StatusOr<AtomicFile> made = AtomicFile::Create(received[i]);
    if (made.ok()) copies[i].emplace(*std::move(made));
    if (status.ok()) status = made.status();
  }
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  for (int64_t offset = 0; offset < most; offset += kMessageBytes) {
    CommHandlePtr sent;
    Tensor block;
    if (const int64_t size = BlockAt(bytes, offset); size > 0) {
      block = Empty({size}, DType::kUInt8);
      std::memcpy(block.raw_data(), file->data() + offset, static_cast<size_t>(size));
      sent = world_.Send(block, copies_to_, kCopyTag);
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      const int64_t size = BlockAt(sizes[static_cast<size_t>(sources_[i])], offset);
      if (size == 0) continue;
      const Tensor part = Empty({size}, DType::kUInt8);
      world_.Receive(part, sources_[i], kCopyTag)->Wait();
      if (!copies[i] || !status.ok()) continue;
      status = copies[i]->Append(part.raw_data(), static_cast<size_t>(size));
    }
    if (sent != nullptr) sent->Wait();
  }
  for (std::optional<AtomicFile>& copy : copies) {
    if (copy && status.ok()) status = copy->Commit();
  }
  return status;
}

// A rank for each host.
Status MemoryCheckpoints::RemoveOlder() const {
  if (!IsMaker()) return OkStatus();
  const std::vector<int64_t> steps = ListCheckpoints(here_.folder);
  for (size_t i = 0; i + kKept < steps.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(CheckpointPath(here_.folder, steps[i])));
  }
  return OkStatus();
}

Status MemoryCheckpoints::RemoveAfter(int64_t step) const {
  return AgreeOnStatus(world_, IsMaker() ? RemoveCheckpointsAfter(here_.folder, step) : OkStatus());
}

// The ranks of a host share out its files. One that is missing or damaged is not named: another
// host may have a good copy.
std::vector<std::string> MemoryCheckpoints::VerifiedFiles(const CheckpointIndex& index) const {
  std::map<std::string, std::vector<std::pair<const SavedPiece*, DType>>> files;
  for (const auto& [name, entry] : index.entries) {
    for (const SavedPiece& saved : entry.pieces)
      files[saved.file].emplace_back(&saved, entry.dtype);
  }
  const auto rank = static_cast<size_t>(world_.rank());
  const auto end = makers_.begin() + world_.rank();
  const auto ranks_here =
      static_cast<size_t>(std::count(makers_.begin(), makers_.end(), makers_[rank]));
  const auto place = static_cast<size_t>(std::count(makers_.begin(), end, makers_[rank]));
  SavedFiles saved_files(CheckpointPath(here_.folder, index.step));
  std::vector<std::string> verified;
  size_t number = 0;
  for (const auto& [file, pieces] : files) {
    if (number++ % ranks_here != place) continue;
    if (std::all_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
          return saved_files.Verify(*piece.first, piece.second).ok();
        })) {
      verified.push_back(file);
    }
  }
  return verified;
}

StatusOr<std::optional<Checkpoint>> MemoryCheckpoints::FindNewest() const {
  std::map<IndexKey, std::string> own;  // text of the index
  std::string mine;
  for (const int64_t step : ListCheckpoints(here_.folder)) {
    StatusOr<std::string> text = ReadFile(JoinPath(CheckpointPath(here_.folder, step), kIndexFile));
    if (!text.ok()) continue;
    const uint32_t sum = Crc32c(text->data(), text->size());
    mine += Concat(step, " ", sum, " ");
    own.emplace(IndexKey(step, sum), *std::move(text));
  }
  std::map<IndexKey, int> checkpoints;  // the lowest rank that has the index
  const std::vector<std::string> all = GatherStrings(world_, mine);
  for (size_t r = 0; r < all.size(); ++r) {
    std::istringstream words(all[r]);
    int64_t step = 0;
    for (uint32_t sum = 0; words >> step >> sum;) {
      checkpoints.try_emplace({step, sum}, static_cast<int>(r));
    }
  }
  for (auto at = checkpoints.rbegin(); at != checkpoints.rend(); ++at) {
    const auto held = own.find(at->first);
    const std::string directory = CheckpointPath(here_.folder, at->first.first);
    StatusOr<CheckpointIndex> index = ParseIndex(
        BroadcastString(world_, held == own.end() ? "" : held->second, at->second), directory);
    if (!index.ok() || index->step != at->first.first) continue;
    std::string names;
    if (held != own.end()) {
      for (const std::string& file : VerifiedFiles(*index)) names += file + " ";
    }
    std::map<std::string, int> keepers = KeepersOf(GatherStrings(world_, names));
    const bool is_whole =
        std::all_of(index->entries.begin(), index->entries.end(), [&](const auto& entry) {
          return std::all_of(entry.second.pieces.begin(), entry.second.pieces.end(),
                             [&](const SavedPiece& saved) { return keepers.contains(saved.file); });
        });
    if (!is_whole) continue;
    return Checkpoint::KeptBy(std::move(keepers), directory, *std::move(index));
  }
  return std::nullopt;
}

}  // namespace tessera::dist
