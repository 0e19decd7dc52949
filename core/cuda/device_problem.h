// SPDX-License-Identifier: Apache-2.0
// Why a GPU cannot be used, in one line, from what the runtime answered.
#ifndef TESSERA_CORE_CUDA_DEVICE_PROBLEM_H_
#define TESSERA_CORE_CUDA_DEVICE_PROBLEM_H_

#include <string>

namespace tessera::cuda {

// What asking for the GPUs gave.
struct DeviceProbe {
  enum class Answer { kOk, kNoDevice, kDriverTooOld, kOther };
  Answer answer = Answer::kOk;
  std::string text = {};    // CUDA's words, with kOther
  int driver_version = 0;   // 1000 * major + 10 * minor of the CUDA it supports; 0: no driver
  int runtime_version = 0;  // what this program was built with
  int devices = 0;
  int major = 0;  // compute capability of the GPU asked for, where it exists
  int minor = 0;
};

// Empty when cuda:`index` can be used. Kernels are built for compute capability 8.0 and 9.0.
std::string DeviceProblem(const DeviceProbe& probe, int index);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_DEVICE_PROBLEM_H_
