// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own over the family of my_family.cc: 20 steps on the bytes of a text.
//
//   my_model book.txt
//   mpirun -n 2 my_model book.txt       data parallel
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/core/batch_keys.h>
#include <tessera/data/dataset/map_dataset.h>
#include <tessera/dist/comm/world.h>
#include <tessera/train/boost/coordinator.h>
#include <tessera/train/loop/initialize.h>
#include <tessera/train/ranks/run_on_ranks.h>

namespace {

using namespace tessera;

constexpr int64_t kTokens = 32;  // of a row

// Rows of bytes, each with those that follow as its targets.
StatusOr<data::MapDataset<std::string>> RowsOf(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto rows = (std::ssize(text) - 1) / kTokens;
  if (rows < 1) return InvalidArgument(path, ": has no ", kTokens + 1, " bytes");
  const auto row = [text](int64_t index) -> StatusOr<std::string> {
    return text.substr(static_cast<size_t>(index * kTokens), kTokens + 1);
  };
  const auto collate = [](std::span<const std::string> some) -> StatusOr<data::Batch> {
    std::vector<int64_t> ids, next;
    for (const std::string& bytes : some) {
      for (size_t i = 0; i < kTokens; ++i) {
        ids.push_back(static_cast<unsigned char>(bytes[i]));
        next.push_back(static_cast<unsigned char>(bytes[i + 1]));
      }
    }
    const Shape shape = {std::ssize(some), kTokens};
    return data::BatchOf({{keys::kInputIds, Tensor::FromVector(ids, shape)},
                          {keys::kTargets, Tensor::FromVector(next, shape)}});
  };
  return data::MapDataset<std::string>(rows, row, collate);
}

Status Train(const dist::World& world, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto dataset, RowsOf(path));
  train::RunConfig config;
  config.batch_size = 8;
  config.lr = 3e-2;
  config.lr_schedule = "constant";
  TESSERA_ASSIGN_OR_RETURN(const auto engine,
                           train::Initialize("my-model", config, {.world = world.communicator}));
  const auto loader = engine->MakeLoader(dataset);
  double loss = 0;
  while (engine->global_steps() < 20) {
    TESSERA_ASSIGN_OR_RETURN(loss, engine->TrainBatch([&] { return loader->Next(); }));
  }
  train::Coordinator(world.communicator).PrintOnMaster(Concat("final loss ", loss));
  return OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: my_model TEXT\n"), 2;
  return train::RunOnRanks({}, [&](const dist::World& world) { return Train(world, argv[1]); });
}
