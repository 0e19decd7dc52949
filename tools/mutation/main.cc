// SPDX-License-Identifier: Apache-2.0
// What tools/mutate runs. Arguments are paths and numbers that it has checked.
//
//   mutants instrument FOUND TREE LIST     rewrites TREE/*.cc by the points in FOUND/*.cc, lists
//   them mutants run LIST TESTS RESULTS EQUIVALENT COUNT SEED SECONDS JOBS STATE SCRATCH
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "tools/mutation/mutant.h"
#include "tools/mutation/point.h"
#include "tools/mutation/rewrite.h"
#include "tools/mutation/runner.h"

namespace tessera::mutation {
namespace {

// Numbers that a file gets at least; more are a multiple. Small changes of one file leave the
// numbers in others, and so what is built of them, alone.
constexpr int64_t kNumbersOfFile = 128;

int Fail(const std::string& message) {
  std::cerr << "error: " << message << "\n";
  return 1;
}

bool WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return static_cast<bool>(file);
}

std::vector<Point> ReadPoints(const std::string& path) {
  std::vector<Point> points;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (std::optional<Point> point = ReadPoint(line)) points.push_back(std::move(*point));
  }
  return points;
}

// The lines that the point is in, with `text` in its place.
std::string InLine(const std::string& source, const Point& point, const std::string& text) {
  const size_t begin = source.rfind('\n', point.begin) + 1;  // 0 where there is none
  const size_t end = std::min(source.find('\n', point.end), source.size());
  return OneLine(source.substr(begin, point.begin - begin) + text +
                 source.substr(point.end, end - point.end));
}

int Instrument(const std::string& found, const std::string& tree, const std::string& list) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(found)) {
    if (entry.path().extension() != ".cc") continue;
    files.push_back(std::filesystem::relative(entry.path(), found).string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Mutant> mutants;
  int64_t first = 0;
  for (const std::string& file : files) {
    const std::string source = ReadText(tree + "/" + file);
    if (source.empty()) continue;
    std::vector<Point> points = ReadPoints(found + "/" + file);
    const std::string text = Rewrite(source, points, first);
    const auto size = static_cast<int64_t>(points.size());
    if (size == 0) continue;
    if (first + size > kMostPoints) return Fail("more points than switches (kMostPoints)");
    if (!WriteText(tree + "/" + file, text)) return Fail(tree + "/" + file + ": cannot be written");
    for (int64_t i = 0; i < size; ++i) {
      const Point& point = points[i];
      mutants.push_back({first + i, file, point.line, point.kind, point.function,
                         InLine(source, point, source.substr(point.begin, point.end - point.begin)),
                         InLine(source, point, point.mutated)});
    }
    first += (size + kNumbersOfFile - 1) / kNumbersOfFile * kNumbersOfFile;
  }
  if (!WriteText(list, WriteMutants(mutants))) return Fail(list + ": cannot be written");
  std::cout << mutants.size() << " mutants in " << files.size() << " files\n";
  return 0;
}

int RunDrawn(const std::vector<std::string>& a) {
  std::string wrong;
  const std::vector<Equivalent> equivalents = ReadEquivalents(ReadText(a[3]), &wrong);
  if (!wrong.empty()) return Fail(a[3] + ": " + wrong);
  std::vector<Mutant> mutants = ReadMutants(ReadText(a[0]));
  const std::vector<TestProgram> tests = ReadTests(a[1]);
  if (mutants.empty()) return Fail(a[0] + ": no mutants");
  if (tests.empty()) return Fail(a[1] + ": no tests");
  // An entry more replaces one mutant, and leaves the others as they are.
  const auto all = static_cast<int64_t>(mutants.size());
  mutants = Draw(std::move(mutants), all, std::stoull(a[5]));
  std::erase_if(mutants, [&](const Mutant& m) { return IsEquivalent(m, equivalents); });
  mutants.resize(std::min<size_t>(mutants.size(), std::stoull(a[4])));
  const auto results = RunMutants(mutants, tests,
                                  {.results = a[2],
                                   .scratch = a[9],
                                   .state = a[8],
                                   .seconds = std::stoll(a[6]),
                                   .jobs = std::stoll(a[7])});
  std::cout << "\n" << Report(mutants, results) << std::flush;
  const auto size = static_cast<int64_t>(mutants.size());
  return CountKilled(mutants, results) * 100 >= size * 95 ? 0 : 1;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == "instrument") {
    return Instrument(arguments[1], arguments[2], arguments[3]);
  }
  if (arguments.size() == 11 && arguments[0] == "run") {
    return RunDrawn({arguments.begin() + 1, arguments.end()});
  }
  return Fail("see tools/mutate --help");
}

}  // namespace
}  // namespace tessera::mutation

int main(int argc, char** argv) {
  try {
    return tessera::mutation::Main({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}
