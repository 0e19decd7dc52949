// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cudnn.h"
#include "core/cuda/runtime.h"
#include "tools/gpus.h"

namespace tessera::tools {

std::string DescribeGpus() {
  const std::string devices = cuda::DescribeDevices();
  if (cuda::DeviceCount() == 0) return devices;
  return Concat(devices, cuda::Cudnn::Find().ok() ? "attention: " : "attention without cuDNN: ",
                cuda::DescribeCudnn(), "\n");
}

std::string BuiltFor() { return "CPU and CUDA"; }

}  // namespace tessera::tools
