// Prints InferenceReport: inference_program FOLDER
#include <iostream>

#include "tests/inference/inference_report.h"

int main(int argc, char** argv) {
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
