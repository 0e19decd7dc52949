// SPDX-License-Identifier: Apache-2.0
// Prints InferenceReport: inference_program FOLDER
#include <iostream>

#include "tests/inference/failing_memory.h"
#include "tests/inference/inference_report.h"

int main(int argc, char** argv) {
  // A host that loads a library could not be told that there was none.
  if (tessera::FailingMemory::RequestsSoFar() != 0) {
    std::cerr << "memory was asked for before main\n";
    return 3;
  }
  if (argc != 2) {
    std::cerr << "usage: inference_program FOLDER\n";
    return 2;
  }
  const tessera::StatusOr<std::string> report = tessera::InferenceReport(argv[1]);
  if (!report.ok()) {
    std::cerr << tessera::Message(report.status()) << "\n";
    return 1;
  }
  std::cout << *report;
  return 0;
}
