// SPDX-License-Identifier: Apache-2.0
#include "train/trace/digest_trace.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "autograd/engine.h"
#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/trace/digest.h"

namespace tessera::train {
namespace {

// All bits of it; NaN has one name.
std::string HexText(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return value != value ? "nan" : text;
}

RowFile::Row TensorsText(const std::vector<dist::CheckpointTensor>& tensors) {
  RowFile::Row text = RowFile::Row::object();
  for (const dist::CheckpointTensor& t : tensors) {
    for (const PartDigest& part : DigestsOf(t)) {
      text[t.name][part.part] = DigestText(part.digest);
    }
  }
  return text;
}

}  // namespace

std::string DigestFile(const std::string& out, int64_t rank) {
  return JoinPath(JoinPath(out, kDigests), Concat("rank-", rank, ".jsonl"));
}

StatusOr<std::unique_ptr<DigestTrace>> DigestTrace::Open(const std::string& out,
                                                         const Communicator& world,
                                                         int64_t last_step) {
  TESSERA_RETURN_IF_ERROR(MakeDirectories(JoinPath(out, kDigests)));
  std::vector<RowFile::Row> kept;
  TESSERA_ASSIGN_OR_RETURN(RowFile file,
                           RowFile::Open(DigestFile(out, world.rank()), last_step, &kept));
  return std::unique_ptr<DigestTrace>(
      new DigestTrace(std::move(file), world.size(), !kept.empty()));
}

void DigestTrace::Add(const Origin& origin, bool gradient, size_t index, const Tensor& t) {
  if (!t.defined()) return;
  entries_.push_back({.place = place(),
                      .operation = origin.name,
                      .module = origin.module_path == nullptr ? "" : *origin.module_path,
                      .gradient = gradient,
                      .index = static_cast<int64_t>(index),
                      .digest = DigestOf(t)});
}

void DigestTrace::Results(const Origin& origin, const std::vector<Tensor>&,
                          const std::vector<Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) Add(origin, /*gradient=*/false, i, results[i]);
}

void DigestTrace::Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                           const std::vector<Tensor>&) {
  Add(origin, /*gradient=*/true, operand, gradient);
}

Status DigestTrace::Begin(int64_t step, const std::vector<dist::CheckpointTensor>& tensors) {
  if (continues_) return OkStatus();
  return file_.Append({{"step", step}, {"ranks", ranks_}, {"tensors", TensorsText(tensors)}});
}

Status DigestTrace::Write(const TracedStep& step) {
  // Schedules of pipelines take turns as they like.
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.place < b.place; });
  RowFile::Row row = {{"step", step.step},
                      {"ranks", ranks_},
                      {"loss", HexText(step.loss)},
                      {"grad_norm", HexText(step.grad_norm)}};
  for (size_t m = 0; m < step.batches.size(); ++m) {
    row["batches"][Concat(step.first_micro_batch + static_cast<int64_t>(m))] =
        DigestText(BatchDigest(step.batches[m]));
  }
  RowFile::Row operations = RowFile::Row::array();
  std::string digests;
  for (const Entry& e : entries_) {
    operations.push_back({e.place.micro_batch, e.place.backward ? "backward" : "forward",
                          e.place.chunk, e.operation, e.module, e.gradient ? "gradient" : "result",
                          e.index});
    digests += DigestText(e.digest);
  }
  entries_.clear();
  std::string names = operations.dump();
  if (names != operations_) row["operations"] = std::move(operations);
  operations_ = std::move(names);
  row["digests"] = std::move(digests);
  row["tensors"] = TensorsText(step.tensors);
  return file_.Append(row);
}

}  // namespace tessera::train
