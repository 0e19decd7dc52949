// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <optional>
#include <utility>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "train/foreign/run_keys.h"
#include "train/ranks/run_on_ranks.h"
#include "train/run/run_setup.h"
#include "train/trace/digest.h"
#include "train/trace/traced_tensor.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

StatusOr<std::vector<RetakenTensor>> RetakeOnRank(const RunConfig& config,
                                                  const TracedTensor& wanted,
                                                  const dist::Group& world) {
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(config, world));
  TESSERA_ASSIGN_OR_RETURN(const RunSetup setup, PrepareRun(config, mesh));
  Trainer trainer(setup.config, *setup.model, setup.data, mesh);
  return trainer.Retake(wanted);
}

}  // namespace

Shape RetakenTensor::PlaceOf(int64_t i) const {
  int64_t left = offset + i;
  Shape place = begin;
  for (int d = size.ndim() - 1; d >= 0; --d) {
    place[d] += left % size[d];
    left /= size[d];
  }
  return place;
}

StatusOr<std::vector<RetakenTensor>> Retake(const std::string& out, const TracedTensor& wanted) {
  RunConfig config;
  TESSERA_RETURN_IF_ERROR(ReadRunConfig(JoinPath(out, "config.json"), &config));
  config.out = out;
  std::mutex mutex;
  Status status;
  std::vector<RetakenTensor> taken;
  RunRanks(static_cast<int>(wanted.ranks), [&](const std::shared_ptr<Communicator>& world) {
    const Status mine = Guarded([&]() -> Status {
      TESSERA_ASSIGN_OR_RETURN(std::vector<RetakenTensor> tensors,
                               RetakeOnRank(config, wanted, world));
      const std::scoped_lock lock(mutex);
      if (world->rank() == wanted.rank) taken = std::move(tensors);
      return OkStatus();
    });
    const std::scoped_lock lock(mutex);
    if (status.ok()) status = mine;
  });
  TESSERA_RETURN_IF_ERROR(status);
  return taken;
}

}  // namespace tessera::train
