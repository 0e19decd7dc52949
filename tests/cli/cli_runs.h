// SPDX-License-Identifier: Apache-2.0
// The program as others call it: a command's exit code and what it prints.
//
//   class MyTest : public CliRuns {};
//   TEST_F(MyTest, Knows) { EXPECT_EQ(Output({"--version"}), "..."); }
#ifndef TESSERA_TESTS_CLI_CLI_RUNS_H_
#define TESSERA_TESTS_CLI_CLI_RUNS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "models/model.h"
#include "nlohmann/json.hpp"

namespace tessera {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

inline constexpr const char* kProgram = "tools/tessera";

struct Outcome {
  int code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

struct Surroundings {
  std::string stdin_path = {};   // empty: this process's
  std::string stdout_path = {};  // empty: captured
  std::string stderr_path = {};  // empty: captured
  int64_t file_limit = 0;        // bytes of a file; 0: none
  int64_t memory_limit = 0;      // bytes of address space; 0: none
  std::string isa = {};          // TESSERA_CPU_ISA
  const char* program = kProgram;
  std::vector<std::pair<std::string, std::string>> environment = {};  // beside what is there
};

class CliRuns : public testing::Test {
 protected:
  CliRuns()
      : root_(testing::TempDir() + "/cli_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  // A model of 257 ids with its byte tokenizer, and 16 positions.
  static void SetUpTestSuite() {
    model_ = new std::string(testing::TempDir() + "/cli_model");
    const nlohmann::json config = {
        {"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 16},       {"n_embd", 8},
        {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.5}};
    const auto model = models::BuildModel(config, {.seed = 1});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    const data::ByteTokenizer tokenizer;
    const Status saved = models::SaveModel(**model, *model_, &tokenizer);
    ASSERT_TRUE(saved.ok()) << Message(saved);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  static std::string Read(const std::string& path) {
    const auto text = ReadFile(path);
    return text.ok() ? *text : "";
  }

  Outcome Run(const Arguments& arguments, const Surroundings& around = {}) const {
    const std::string out = around.stdout_path.empty() ? Path("stdout") : around.stdout_path;
    const std::string err = around.stderr_path.empty() ? Path("stderr") : around.stderr_path;
    const pid_t child = fork();
    if (child == 0) {
      if (!around.stdin_path.empty()) dup2(open(around.stdin_path.c_str(), O_RDONLY), 0);
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      if (!around.isa.empty()) setenv("TESSERA_CPU_ISA", around.isa.c_str(), 1);
      for (const auto& [name, value] : around.environment) setenv(name.c_str(), value.c_str(), 1);
      if (around.file_limit > 0) {
        const rlimit limit = {static_cast<rlim_t>(around.file_limit),
                              static_cast<rlim_t>(around.file_limit)};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      if (around.memory_limit > 0) {
        const rlimit limit = {static_cast<rlim_t>(around.memory_limit),
                              static_cast<rlim_t>(around.memory_limit)};
        setrlimit(RLIMIT_AS, &limit);
      }
      std::vector<char*> argv = {const_cast<char*>(around.program)};
      for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      execv(around.program, argv.data());
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            around.stdout_path.empty() ? Read(out) : "",
            around.stderr_path.empty() ? Read(err) : ""};
  }
  std::string Output(const Arguments& arguments, const Surroundings& around = {}) const {
    const Outcome outcome = Run(arguments, around);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  // Exactly one line, which begins with "error: " and contains `part`.
  void ExpectError(const Arguments& arguments, int code, const std::string& part,
                   const Surroundings& around = {}) const {
    std::string command;
    for (const std::string& a : arguments) command += a.substr(0, 80) + " ";
    const Outcome outcome = Run(arguments, around);
    EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << command << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << command << "\n" << outcome.err;
  }

  inline static std::string* model_ = nullptr;
  const std::string root_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_CLI_CLI_RUNS_H_
