// SPDX-License-Identifier: Apache-2.0
// `tessera` as tests start it: a process with its output in files, alone or as ranks under mpirun.
//
//   Process run({"train", "gpt-tiny", ...}, root + "/run");
//   ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
//   Process job(4, {"train", ...}, root + "/job");       // mpirun -n 4 tessera train ...
//   Process flow({{.ranks = 2, .arguments = {...}, .program = "examples/bigram"}}, root + "/flow");
#ifndef TESSERA_TESTS_PROCESS_PROCESS_H_
#define TESSERA_TESTS_PROCESS_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace tessera {

std::string ReadText(const std::string& path);

class Process {
 public:
  // Its output goes to `<log>.out` and `<log>.err`; no file may grow beyond `file_bytes`.
  Process(const std::vector<std::string>& arguments, const std::string& log,
          rlim_t file_bytes = RLIM_INFINITY);
  // The same command on `ranks` ranks of this machine, however many cores it has.
  // `quiet` leaves out what mpirun itself says about ranks that fail.
  Process(int ranks, const std::vector<std::string>& arguments, const std::string& log,
          bool quiet = true);
  // Ranks that differ, in the order of the parts.
  struct Part {
    int ranks = 1;
    std::vector<std::string> arguments;
    int file_kib = 0;                       // no file may grow beyond; 0: no limit
    std::string program = "tools/tessera";  // which of this workspace's is started
  };
  Process(const std::vector<Part>& parts, const std::string& log, bool quiet = true);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal) const;
  // False when it has not ended within that time.
  bool EndsWithin(std::chrono::duration<double> time);
  // For a job under mpirun, one rank of which was killed: false when another continues. mpirun
  // itself may wait in its own threads for ever, where a rank ended outside of MPI (Open
  // MPI 4.1.4); one that still stands when its ranks have ended is killed.
  bool RanksEndWithin(std::chrono::duration<double> time);
  void Wait();
  // 128 + the signal for a process that one ended, as in a shell.
  int ExitCode();
  std::string Output() const { return ReadText(log_ + ".out"); }
  std::string Errors() const { return ReadText(log_ + ".err"); }

  // The processes of the ranks, once mpirun has started them all (empty until then).
  std::vector<pid_t> Ranks() const;
  // A line for this process and each of its children: what it is doing, its threads' places in the
  // kernel. What a test says of a job that does not end.
  std::string WhatItDoes() const;

 private:
  void Start(std::vector<std::string> command, rlim_t file_bytes);

  std::string log_;
  int ranks_ = 0;
  pid_t pid_ = -1;
  bool running_ = true;
  int status_ = 0;
};

// The rows of `<out>/metrics.jsonl`, without what depends on the clock or the allocator's history.
std::vector<nlohmann::json> Metrics(const std::string& out);
// The file of the final weights.
std::string Weights(const std::string& out);

}  // namespace tessera

#endif  // TESSERA_TESTS_PROCESS_PROCESS_H_
