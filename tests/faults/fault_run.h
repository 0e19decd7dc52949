// SPDX-License-Identifier: Apache-2.0
// Commands of `tessera` whose Nth system call goes wrong, and the folders that they leave.
//
//   const Fault fault{.kinds = "write,sync", .how = "ENOSPC", .under = folder};
//   const std::vector<std::string> calls = CallsOf({"quantize", ...}, fault, log);
//   for (size_t n = 1; n <= calls.size(); ++n) {
//     FaultScope scope(fault, n);
//     Process run({"quantize", ...}, log);
//     ...
//   }
#ifndef TESSERA_TESTS_FAULTS_FAULT_RUN_H_
#define TESSERA_TESTS_FAULTS_FAULT_RUN_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// Whether this build can load the shim in front of a program: sanitizers bring an allocator and
// calls of their own, which must come first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasShim = false;
#else
constexpr bool kHasShim = true;
#endif

// What goes wrong, in the words of shim.cc.
struct Fault {
  std::string kinds;       // of calls: "write,sync"
  std::string how;         // "ENOSPC", "short", "kill", ...
  bool onwards = false;    // all calls from the Nth on
  std::string rank = "";   // of the process; "": of any
  std::string where = "";  // "NAME TEXT": in processes whose variable NAME has TEXT in it
  std::string once = "";   // a file that the one process makes that meets it; "": all may meet it
  std::string under = "";  // the folder whose files count
  size_t above = 0;        // bytes of an allocation that counts
};

// "write,sync fail with ENOSPC at call 7 and all behind it".
std::string Name(const Fault& fault, size_t at);

// Processes started while it lives meet the fault at call `at`; 0: only log their calls.
class FaultScope {
 public:
  FaultScope(const Fault& fault, size_t at, const std::string& log);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

// Lines of the log: "1234 7 write /path", and " !" behind the one that was the fault.
std::vector<std::string> LoggedCalls(const std::string& log);

// Which of `count` calls a walk stops at. By TESSERA_FAULT_WALKS: all of them ("all"), as many as
// it says (a number), or else `few`, evenly spread from a place that `row` moves, so that the rows
// of a table meet different calls.
std::vector<size_t> PlacesOf(size_t count, size_t few, size_t row);

// `<root>/tiny`, a model's folder without weights, and `<root>/text.txt`, which it can be trained
// on.
void WriteTinyModel(const std::string& root);

// Names of files below a folder, and their bytes; of a folder in it the name and "/". A path that
// is a file itself has the name "". Bytes that depend on the clock are left out of files of
// metrics.
using Tree = std::map<std::string, std::string>;
Tree TreeOf(const std::string& path);
// "" where they are equal; else the first names that differ, and how.
std::string Difference(const Tree& tree, const Tree& wanted);

}  // namespace tessera

#endif  // TESSERA_TESTS_FAULTS_FAULT_RUN_H_
