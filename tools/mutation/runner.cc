// SPDX-License-Identifier: Apache-2.0
#include "tools/mutation/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <thread>
#include <tuple>

#include "tools/mutation/point.h"

namespace tessera::mutation {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// Ends every process that this one has started, whoever they belong to now: ranks of mpirun have
// process groups of their own.
void KillChildren() {
  const std::string list = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  for (;;) {
    std::ifstream children(list);
    for (pid_t child = 0; children >> child;) kill(child, SIGKILL);
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0) return;
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

[[noreturn]] void Execute(const TestProgram& test, const std::string& scratch) {
  // A mutant that asks for all memory gets no more than there is.
  const rlim_t memory =
      static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const rlimit memory_limit = {memory, memory};
  const rlimit file_limit = {rlim_t{4} << 30, rlim_t{4} << 30};
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_AS, &memory_limit);
  setrlimit(RLIMIT_FSIZE, &file_limit);
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_RDWR);
  for (int file = 0; file < 3; ++file) dup2(nowhere, file);
  setpgid(0, 0);
  setenv("TESSERA_MUTATION_SCRATCH", scratch.c_str(), 1);
  execl("/bin/bash", "bash", test.command.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

// Whether the test passes in this process's environment.
bool Passes(const TestProgram& test, const std::string& scratch) {
  std::filesystem::remove_all(scratch);
  std::filesystem::create_directories(scratch);
  const pid_t guard = fork();
  if (guard == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const Clock::time_point begin = Clock::now();
    const pid_t child = fork();
    if (child == 0) Execute(test, scratch);
    bool passed = false;
    while (SecondsSince(begin) < 3 * test.seconds + 10) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) {
        passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    KillChildren();
    _exit(passed ? 0 : 1);
  }
  int status = 0;
  waitpid(guard, &status, 0);
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result RunMutant(const Mutant& mutant, const std::vector<TestProgram>& tests,
                 const RunOptions& options, const std::string& scratch) {
  setenv("TESSERA_MUTANT", std::to_string(mutant.number).c_str(), 1);
  Result result;
  result.number = mutant.number;
  result.state = options.state;
  const Clock::time_point begin = Clock::now();
  for (const TestProgram* test : TestsOf(mutant, tests)) {
    if (SecondsSince(begin) > static_cast<double>(options.seconds)) {
      ++result.left;
    } else if (Passes(*test, scratch)) {
      ++result.passed;
    } else {
      result.killed = true;
      result.by = test->label;
      break;
    }
  }
  return result;
}

std::string Place(const Mutant& m) { return m.file + ":" + std::to_string(m.line); }

void Append(const std::string& path, const std::string& line) {
  // One write: lines of several processes do not mix.
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::cerr << "error: " << path << ": cannot be written\n";
    _exit(1);
  }
  close(file);
}

// Mutants one after the other, each the next that no other process has taken.
void Work(const std::vector<Mutant>& mutants, const std::vector<TestProgram>& tests,
          const RunOptions& options, std::atomic<size_t>& next) {
  const std::string scratch = options.scratch + "/" + std::to_string(getpid());
  for (size_t i = next++; i < mutants.size(); i = next++) {
    const Mutant& mutant = mutants[i];
    const Result result = RunMutant(mutant, tests, options, scratch);
    Append(options.results, WriteResult(result));
    if (options.quiet) continue;
    std::string line = Place(mutant) + ": " + mutant.mutated;
    line += result.killed ? " killed by " + result.by : " survived";
    std::cout << line + "\n" << std::flush;
  }
}

}  // namespace

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::vector<TestProgram> ReadTests(const std::string& folder) {
  std::vector<TestProgram> tests;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    const std::string path = entry.path().string();
    if (!std::filesystem::exists(path + "/passed")) continue;
    tests.push_back({.label = FirstLine(ReadText(path + "/label")),
                     .command = path + "/command",
                     .seconds = std::strtod(ReadText(path + "/seconds").c_str(), nullptr),
                     .covered = ReadText(path + "/covered")});
  }
  std::sort(tests.begin(), tests.end(), [](const TestProgram& a, const TestProgram& b) {
    return std::tie(a.label, a.command) < std::tie(b.label, b.command);
  });
  return tests;
}

std::vector<const TestProgram*> TestsOf(const Mutant& mutant,
                                        const std::vector<TestProgram>& tests) {
  std::vector<const TestProgram*> covering;
  for (const TestProgram& test : tests) {
    if (test.Covers(mutant.number)) covering.push_back(&test);
  }
  const std::string beside = "//" + mutant.file.substr(0, mutant.file.rfind('/')) + ":";
  std::stable_sort(covering.begin(), covering.end(),
                   [&](const TestProgram* a, const TestProgram* b) {
                     const bool a_far = a->label.rfind(beside, 0) != 0;
                     const bool b_far = b->label.rfind(beside, 0) != 0;
                     return std::tie(a_far, a->seconds) < std::tie(b_far, b->seconds);
                   });
  return covering;
}

std::string WriteResult(const Result& r) {
  return JoinFields({std::to_string(r.number), r.killed ? "killed" : "survived", r.by,
                     std::to_string(r.passed), std::to_string(r.left), r.state}) +
         "\n";
}

std::map<int64_t, Result> ReadResults(std::string_view text) {
  std::map<int64_t, Result> results;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // a line that was being written
    const std::vector<std::string> f = SplitFields(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (f.size() != 6) continue;
    const int64_t number = NumberOf(f[0]);
    results[number] = {number, f[1] == "killed", f[2], NumberOf(f[3]), NumberOf(f[4]), f[5]};
  }
  return results;
}

std::map<int64_t, Result> RunMutants(const std::vector<Mutant>& mutants,
                                     const std::vector<TestProgram>& tests,
                                     const RunOptions& options) {
  const std::map<int64_t, Result> known = ReadResults(ReadText(options.results));
  std::vector<Mutant> waiting;
  for (const Mutant& mutant : mutants) {
    const auto found = known.find(mutant.number);
    const bool done =
        found != known.end() && (found->second.killed || found->second.state == options.state);
    if (!done) waiting.push_back(mutant);
  }
  void* shared = mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  auto* next = new (shared) std::atomic<size_t>(0);
  std::cout.flush();
  std::vector<pid_t> workers;
  for (int64_t job = 0; job < options.jobs && !waiting.empty(); ++job) {
    const pid_t worker = fork();
    if (worker == 0) {
      Work(waiting, tests, options, *next);
      _exit(0);
    }
    workers.push_back(worker);
  }
  for (const pid_t worker : workers) waitpid(worker, nullptr, 0);
  munmap(shared, sizeof(std::atomic<size_t>));
  return ReadResults(ReadText(options.results));
}

int64_t CountKilled(const std::vector<Mutant>& mutants, const std::map<int64_t, Result>& results) {
  return std::count_if(mutants.begin(), mutants.end(), [&](const Mutant& mutant) {
    const auto found = results.find(mutant.number);
    return found != results.end() && found->second.killed;
  });
}

std::string Report(const std::vector<Mutant>& mutants, const std::map<int64_t, Result>& results) {
  std::string report;
  for (const Mutant& m : mutants) {
    const auto found = results.find(m.number);
    if (found != results.end() && found->second.killed) continue;
    report += Place(m) + " survived";
    if (found == results.end()) {
      report += " (not run)";
    } else if (found->second.passed + found->second.left == 0) {
      report += " (no test executes it)";
    } else {
      report += " (" + std::to_string(found->second.passed) + " tests passed, " +
                std::to_string(found->second.left) + " not run)";
    }
    report += "\n" + m.file + " " + m.function + "\n- " + m.original + "\n+ " + m.mutated + "\n\n";
  }
  return report + std::to_string(CountKilled(mutants, results)) + " of " +
         std::to_string(mutants.size()) + " killed\n";
}

}  // namespace tessera::mutation
