// SPDX-License-Identifier: Apache-2.0
// Every command of `tessera`, for the ResNet of resnet.h too:
//
//   vision train resnet18-mnist --data fashion-mnist --out run --batch-size 64 --max-steps 2000
//   vision eval --model run/model --data fashion-mnist
//
// Pictures are class folders or IDX files (docs/cli.md#train).
#include <tessera/tools/program.h>

int main(int argc, char** argv) {
  return tessera::Main(
      argc, argv, {.name = "vision", .description = "Trains and runs transformers and ResNets."});
}
