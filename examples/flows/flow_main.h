// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share: flags, ranks, and how a failure ends them.
//
//   struct Flags { std::string data; static const OptionTable& Table(); };       // base/options.h
//   Status Train(const Flags& flags, const dist::World& world) { ... }
//   int main(int argc, char** argv) { return FlowMain<Flags>(argc, argv, Train); }
//
// Flags are `--key value`, with `-` or `_` in the key. `mpirun -n 4 program ...` starts four ranks.
#ifndef TESSERA_EXAMPLES_FLOWS_FLOW_MAIN_H_
#define TESSERA_EXAMPLES_FLOWS_FLOW_MAIN_H_

#include <algorithm>
#include <string>

#include <tessera/base/options.h>
#include <tessera/base/status.h>
#include <tessera/dist/comm/world.h>
#include <tessera/train/ranks/run_on_ranks.h>

#include "nlohmann/json.hpp"

namespace tessera::flows {

template <typename Flags>
StatusOr<Flags> ReadFlags(int argc, char** argv) {
  nlohmann::json given = nlohmann::json::object();
  for (int i = 1; i < argc; i += 2) {
    std::string key = argv[i];
    if (!key.starts_with("--") || i + 1 == argc) {
      return InvalidArgument("'", key, "' is not of the form --key value");
    }
    key.erase(0, 2);
    std::replace(key.begin(), key.end(), '-', '_');
    const Option* option = Flags::Table().FindByAnyName(key);
    given[key] = option == nullptr ? nlohmann::json(argv[i + 1]) : option->FromText(argv[i + 1]);
  }
  return ParseOptions<Flags>(given, "flags");
}

template <typename Flags>
int FlowMain(int argc, char** argv, Status (*body)(const Flags&, const dist::World&)) {
  const StatusOr<Flags> flags = ReadFlags<Flags>(argc, argv);
  if (!flags.ok()) return train::ReportFailure(flags.status());
  return train::RunOnRanks({}, [&](const dist::World& world) { return body(*flags, world); });
}

}  // namespace tessera::flows

#endif  // TESSERA_EXAMPLES_FLOWS_FLOW_MAIN_H_
