// SPDX-License-Identifier: Apache-2.0
#include "train/config/device_config.h"

#include "base/options.h"

namespace tessera::train {

const OptionTable& DeviceConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<DeviceConfig>("Device")
          .Add("device", &DeviceConfig::device,
               "`cpu`; where the program was built with CUDA also `cuda`, which gives the ranks "
               "of a host its GPUs in turn, or one GPU by its number, `cuda:1`",
               {.changes_results = false, .aliases = {{"pytorch_device", "FlagAI"}}})
          .Add("threads", &DeviceConfig::threads, "CPU threads of this process",
               {.least = 1,
                .unset = "all cores that the process may use, shared among the ranks of a host",
                .changes_results = false})
          .Add("deterministic", &DeviceConfig::deterministic,
               "the same bits on any number of data-parallel ranks, which needs powers of two; "
               "on a GPU also in every process ([cuda.md](cuda.md))",
               {.changes_results = false})
          .Add("cuda_graph", &DeviceConfig::cuda_graph,
               "on one GPU, steps whose batches have the same shapes are recorded as a CUDA "
               "graph after two of them and replayed, with the same results; where that cannot "
               "be done, one line says why",
               {.changes_results = false, .aliases = {{"enable_cuda_graph", "Megatron-LM"}}})
          .Add("check_memory", &DeviceConfig::check_memory,
               "plan the run before its model takes memory ([planning.md](planning.md)): its peak "
               "is said, and where the device does not hold it the run ends at once, with the "
               "nearest layout that fits",
               {.changes_results = false}));
  return *table;
}

}  // namespace tessera::train
