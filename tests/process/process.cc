// SPDX-License-Identifier: Apache-2.0
#include "tests/process/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "nlohmann/json.hpp"

namespace tessera {
namespace {

std::string PathOf(const std::string& program) {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/" +
         program;
}

// The environment of a process, by name; empty when there is none of that name.
std::string EnvironmentOf(pid_t pid, const std::string& name) {
  std::stringstream all(ReadText("/proc/" + std::to_string(pid) + "/environ"));
  for (std::string entry; std::getline(all, entry, '\0');) {
    if (entry.rfind(name + "=", 0) == 0) return entry.substr(name.size() + 1);
  }
  return "";
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
  std::stringstream list(ReadText(path + "/children"));
  std::vector<pid_t> children;
  for (pid_t child; list >> child;) children.push_back(child);
  return children;
}

// The third field of /proc/PID/stat: "Z" for a process that has ended and was not waited for, ""
// for one that is gone.
std::string StateOf(pid_t pid) {
  std::stringstream stat(ReadText("/proc/" + std::to_string(pid) + "/stat"));
  std::string id, name, state;
  stat >> id >> name >> state;
  return state;
}

// "1234 (tessera) S: futex_do_wait poll_schedule_timeout": its state and where its threads are.
std::string WhatOneDoes(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid);
  std::stringstream stat(ReadText(path + "/stat"));
  std::string id, name, state;
  stat >> id >> name >> state;
  std::string line = std::to_string(pid) + " " + name + " " + state + ":";
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(path + "/task", gone)) {
    line += " " + ReadText(task.path().string() + "/wchan");
  }
  return line + "\n";
}

}  // namespace

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Process::Process(const std::vector<std::string>& arguments, const std::string& log,
                 rlim_t file_bytes)
    : log_(log) {
  std::vector<std::string> command = {PathOf(Part().program)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Start(std::move(command), file_bytes);
}

Process::Process(int ranks, const std::vector<std::string>& arguments, const std::string& log,
                 bool quiet)
    : Process(std::vector<Part>{{.ranks = ranks, .arguments = arguments}}, log, quiet) {}

Process::Process(const std::vector<Part>& parts, const std::string& log, bool quiet) : log_(log) {
  // The sessions of Open MPI need a short path.
  std::vector<std::string> command = {"mpirun",
                                      "--allow-run-as-root",
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "--mca",
                                      "orte_tmpdir_base",
                                      "/tmp",
                                      "--mca",
                                      "mpi_yield_when_idle",
                                      "1"};
  if (quiet) command.push_back("--quiet");
  for (const Part& part : parts) {
    if (ranks_ > 0) command.push_back(":");
    ranks_ += part.ranks;
    command.insert(command.end(), {"-n", std::to_string(part.ranks)});
    if (part.file_kib > 0) {
      command.insert(command.end(),
                     {"bash", "-c", "ulimit -f $0; exec \"$@\"", std::to_string(part.file_kib)});
    }
    command.push_back(PathOf(part.program));
    command.insert(command.end(), part.arguments.begin(), part.arguments.end());
  }
  Start(std::move(command), RLIM_INFINITY);
}

void Process::Start(std::vector<std::string> command, rlim_t file_bytes) {
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out = log_ + ".out";
  const std::string err = log_ + ".err";
  pid_ = fork();
  if (pid_ != 0) return;
  const rlimit limit = {file_bytes, file_bytes};
  if (dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 1) < 0) _exit(121);
  if (dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 2) < 0) _exit(122);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(123);
  execvp(argv[0], argv.data());
  _exit(124);
}

Process::~Process() {
  if (running_) Signal(SIGKILL);
  Wait();
}

void Process::Signal(int signal) const { kill(pid_, signal); }

bool Process::EndsWithin(std::chrono::duration<double> time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (running_ && std::chrono::steady_clock::now() < end) {
    if (waitpid(pid_, &status_, WNOHANG) == pid_) running_ = false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return !running_;
}

bool Process::RanksEndWithin(std::chrono::duration<double> time) {
  const auto end = std::chrono::steady_clock::now() + time;
  const auto goes_on = [](pid_t child) {
    const std::string state = StateOf(child);
    return !state.empty() && state != "Z";
  };
  while (!EndsWithin(std::chrono::milliseconds(10))) {
    const std::vector<pid_t> children = ChildrenOf(pid_);
    if (std::none_of(children.begin(), children.end(), goes_on)) break;
    if (std::chrono::steady_clock::now() > end) return false;
  }
  if (EndsWithin(std::chrono::seconds(20))) return true;
  Signal(SIGKILL);
  Wait();
  return true;
}

void Process::Wait() {
  if (running_) waitpid(pid_, &status_, 0);
  running_ = false;
}

int Process::ExitCode() {
  Wait();
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::vector<pid_t> Process::Ranks() const {
  std::vector<pid_t> ranks(static_cast<size_t>(ranks_), -1);
  for (const pid_t child : ChildrenOf(pid_)) {
    const std::string rank = EnvironmentOf(child, "OMPI_COMM_WORLD_RANK");
    if (!rank.empty()) ranks[static_cast<size_t>(std::stoi(rank))] = child;
  }
  if (std::find(ranks.begin(), ranks.end(), -1) != ranks.end()) return {};
  return ranks;
}

std::string Process::WhatItDoes() const {
  std::string lines = WhatOneDoes(pid_);
  for (const pid_t child : ChildrenOf(pid_)) lines += WhatOneDoes(child);
  return lines;
}

std::vector<nlohmann::json> Metrics(const std::string& out) {
  std::ifstream in(out + "/metrics.jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);) {
    rows.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    rows.back().erase("tokens_per_second");
    rows.back().erase("peak_bytes");
  }
  return rows;
}

std::string Weights(const std::string& out) { return ReadText(out + "/model/model.safetensors"); }

}  // namespace tessera
