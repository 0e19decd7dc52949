// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/device_problem.h"

#include "base/status.h"

namespace tessera::cuda {
namespace {

std::string Version(int version) { return Concat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::string DeviceProblem(const DeviceProbe& probe, int index) {
  const std::string name = Concat("cuda:", index);
  switch (probe.answer) {
    case DeviceProbe::Answer::kNoDevice:
      return Concat(name, ": this machine has no GPU that CUDA can use");
    case DeviceProbe::Answer::kDriverTooOld:
      if (probe.driver_version == 0) return Concat(name, ": this machine has no NVIDIA driver");
      return Concat(name, ": the NVIDIA driver is too old: it supports CUDA ",
                    Version(probe.driver_version), ", this program was built with CUDA ",
                    Version(probe.runtime_version));
    case DeviceProbe::Answer::kOther:
      return Concat(name, ": the GPUs do not answer: ", probe.text);
    case DeviceProbe::Answer::kOk:
      break;
  }
  if (probe.devices == 0) return Concat(name, ": this machine has no GPU that CUDA can use");
  if (index < 0 || index >= probe.devices) {
    return Concat(name, ": this machine has ", probe.devices,
                  probe.devices == 1 ? " GPU (cuda:0)" : " GPUs, the last is cuda:",
                  probe.devices == 1 ? "" : std::to_string(probe.devices - 1));
  }
  // Machine code for 8.0 runs on every 8.x, that for 9.0a on 9.0 alone.
  if (probe.major == 8 || (probe.major == 9 && probe.minor == 0)) return "";
  return Concat(name, ": the GPU has compute capability ", probe.major, ".", probe.minor,
                ", this program was built for 8.x and 9.0");
}

}  // namespace tessera::cuda
