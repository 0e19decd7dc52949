// SPDX-License-Identifier: Apache-2.0
// `tessera serve` in a process of its own, ended with the test.
//
//   const RunningServe server(folder, root + "/log", {"--slots", "1"});
//   Run({"generate", "--server", server.url(), "--prompt", "red"});
#ifndef TESSERA_TESTS_CLI_RUNNING_SERVE_H_
#define TESSERA_TESTS_CLI_RUNNING_SERVE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/process/process.h"

namespace tessera {

class RunningServe {
 public:
  // Returns once it listens, or fails the test after half a minute. What it says goes to
  // `<log>.out` and `<log>.err`.
  RunningServe(const std::string& model, const std::string& log,
               const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"serve", "--model", model,   "--port",
                                          "0",     "--name",  "served"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    process_ = std::make_unique<Process>(arguments, log);
    const std::string kBegin = "listening on ";
    for (int i = 0; i < 600 && url_.empty(); ++i) {
      const std::string out = process_->Output();
      if (const size_t end = out.find('\n'); end != std::string::npos) {
        EXPECT_TRUE(out.starts_with(kBegin + "http://127.0.0.1:")) << out;
        url_ = out.substr(kBegin.size(), end - kBegin.size());
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    EXPECT_NE(url_, "") << process_->Errors();
  }
  ~RunningServe() { process_->Signal(SIGKILL); }

  const std::string& url() const { return url_; }
  Process& process() { return *process_; }

 private:
  std::unique_ptr<Process> process_;
  std::string url_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_CLI_RUNNING_SERVE_H_
