// SPDX-License-Identifier: Apache-2.0
// Runs tests on mutants, and says which mutants they killed.
#ifndef TESSERA_TOOLS_MUTATION_RUNNER_H_
#define TESSERA_TOOLS_MUTATION_RUNNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/mutation/mutant.h"

namespace tessera::mutation {

// A test program as tools/mutation/record noted it: a folder with `label`, `command` (a script),
// `seconds` (what it took) and `covered` (a byte for each point).
struct TestProgram {
  std::string label;    // //optim:clip_test
  std::string command;  // the path of the script
  double seconds = 0;
  std::string covered;

  bool Covers(int64_t point) const {
    return point < static_cast<int64_t>(covered.size()) && covered[point] != 0;
  }
};

// Those below `folder` that passed when they were recorded.
std::vector<TestProgram> ReadTests(const std::string& folder);

// The tests that execute the mutant: those beside its file first, then the fastest.
std::vector<const TestProgram*> TestsOf(const Mutant& mutant,
                                        const std::vector<TestProgram>& tests);

// How a mutant ended. A line of the file of results is one; the last of a number counts.
struct Result {
  int64_t number = 0;
  bool killed = false;
  std::string by;      // the test that failed; "" for a survivor
  int64_t passed = 0;  // tests that passed with the mutant
  int64_t left = 0;    // tests for which no time was left
  std::string state;   // of the tree whose tests ran
};
std::string WriteResult(const Result& result);
std::map<int64_t, Result> ReadResults(std::string_view text);

struct RunOptions {
  std::string results;    // the file, which is added to
  std::string scratch;    // a folder for what tests write
  std::string state;      // survivors of another state run again; the killed stay killed
  int64_t seconds = 300;  // for a mutant; no test begins later
  int64_t jobs = 1;       // mutants at a time
  bool quiet = false;     // no line for each mutant
};

// Runs the mutants without a result. A test kills by failing, by a crash, and by taking three times
// as long as without a mutant, and ten seconds.
std::map<int64_t, Result> RunMutants(const std::vector<Mutant>& mutants,
                                     const std::vector<TestProgram>& tests,
                                     const RunOptions& options);

// The survivors, as tools/mutation/equivalent.txt has them, and "K of N killed".
std::string Report(const std::vector<Mutant>& mutants, const std::map<int64_t, Result>& results);
int64_t CountKilled(const std::vector<Mutant>& mutants, const std::map<int64_t, Result>& results);

std::string ReadText(const std::string& path);

}  // namespace tessera::mutation

#endif  // TESSERA_TOOLS_MUTATION_RUNNER_H_
