// SPDX-License-Identifier: Apache-2.0
// What this machine's processor can do at most: products by each of its instruction sets, and the
// bandwidth of each memory, with one thread and with all.
//
//   bazel run //bench:roofline -- [--json]
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/cpu/peaks.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

void Print(const CpuPeaks& peaks) {
  std::printf("%d thread%s\n", peaks.threads, peaks.threads == 1 ? "" : "s");
  const auto product = [](const char* name, double flops) {
    if (flops > 0) std::printf("  %-28s %9.1f GFLOP/s\n", name, flops / 1e9);
  };
  product("FMA, float32", peaks.fma_flops);
  product("VDPBF16PS, bfloat16", peaks.pairs_flops);
  product("AMX, bfloat16", peaks.tiles_flops);
  for (const CpuPeaks::Level& level : peaks.levels) {
    std::printf("  %-28s %9.1f GB/s read %9.1f GB/s written\n", level.name.c_str(),
                level.read / 1e9, level.write / 1e9);
  }
}

nlohmann::ordered_json JsonOf(const CpuPeaks& peaks) {
  nlohmann::ordered_json all = {{"threads", peaks.threads},
                                {"fma_flops", peaks.fma_flops},
                                {"pairs_flops", peaks.pairs_flops},
                                {"tiles_flops", peaks.tiles_flops}};
  for (const CpuPeaks::Level& level : peaks.levels) {
    all["levels"].push_back({{"name", level.name},
                             {"bytes", level.bytes},
                             {"read", level.read},
                             {"write", level.write}});
  }
  return all;
}

int Main(int argc, char** argv) {
  const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
  if (argc > 1 && !json) {
    std::fprintf(stderr, "error: roofline takes --json and nothing else\n");
    return 2;
  }
  for (const Status& status : {CheckIsaEnvironment(), CheckAmxEnvironment()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "error: %s\n", Message(status).c_str());
    return 2;
  }
  std::vector<CpuPeaks> all = {MeasurePeaks(1)};
  if (NumThreads() > 1) all.push_back(MeasurePeaks(NumThreads()));
  if (json) {
    nlohmann::ordered_json rows = {{"instruction_set", CpuIsaName(ActiveIsa())}};
    for (const CpuPeaks& peaks : all) rows["peaks"].push_back(JsonOf(peaks));
    std::printf("%s\n", rows.dump(2).c_str());
    return 0;
  }
  std::printf("instruction set %s\n", std::string(CpuIsaName(ActiveIsa())).c_str());
  for (const CpuPeaks& peaks : all) Print(peaks);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
