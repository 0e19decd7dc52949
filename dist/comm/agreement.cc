// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/agreement.h"

#include <algorithm>
#include <cstring>

#include "core/tensor.h"

namespace tessera::dist {
namespace {

// A status as a string: its code, then its text. Empty for OK.
std::string Encode(const Status& status) {
  if (status.ok()) return "";
  return std::string(1, static_cast<char>(status.code())) + Message(status);
}

}  // namespace

std::vector<std::string> GatherStrings(Communicator& world, const std::string& mine) {
  if (world.size() == 1) return {mine};
  const Tensor lengths = Empty({world.size()}, DType::kInt64);
  world.AllGather(lengths, Tensor::FromVector<int64_t>({std::ssize(mine)}, {1}))->Wait();
  const int64_t* length = lengths.data<int64_t>();
  const int64_t longest = *std::max_element(length, length + world.size());
  std::vector<std::string> all(static_cast<size_t>(world.size()));
  if (longest == 0) return all;
  const Tensor padded = Zeros({longest}, DType::kUInt8);
  std::memcpy(padded.raw_data(), mine.data(), mine.size());
  const Tensor texts = Empty({world.size(), longest}, DType::kUInt8);
  world.AllGather(texts, padded)->Wait();
  for (int r = 0; r < world.size(); ++r) {
    const auto* text = static_cast<const char*>(texts.raw_data()) + r * longest;
    all[static_cast<size_t>(r)].assign(text, static_cast<size_t>(length[r]));
  }
  return all;
}

std::string BroadcastString(Communicator& world, const std::string& text, int root) {
  if (world.size() == 1) return text;
  const bool gives = world.rank() == root;
  const Tensor length = Tensor::FromVector<int64_t>({gives ? std::ssize(text) : 0}, {1});
  world.Broadcast(length, root)->Wait();
  const Tensor bytes = Empty({*length.data<int64_t>()}, DType::kUInt8);
  if (bytes.numel() == 0) return "";
  if (gives) std::memcpy(bytes.raw_data(), text.data(), text.size());
  world.Broadcast(bytes, root)->Wait();
  return std::string(static_cast<const char*>(bytes.raw_data()),
                     static_cast<size_t>(bytes.numel()));
}

Status AgreeOnStatus(Communicator& world, const Status& mine) {
  const std::vector<std::string> all = GatherStrings(world, Encode(mine));
  const auto first =
      std::find_if(all.begin(), all.end(), [](const std::string& s) { return !s.empty(); });
  if (first == all.end()) return OkStatus();
  const bool shared =
      std::all_of(all.begin(), all.end(), [&](const std::string& s) { return s == *first; });
  const std::string rank = shared ? "" : Concat("rank ", first - all.begin(), ": ");
  return Failure(static_cast<StatusCode>((*first)[0]), rank, first->substr(1));
}

}  // namespace tessera::dist
