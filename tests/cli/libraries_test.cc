// SPDX-License-Identifier: Apache-2.0
// What the program needs to start, and what it needs when it is started as a rank.
#include "tests/cli/cli_runs.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

class LibrariesTest : public CliRuns {
 protected:
  // libmpi.so.40 is found first where it is no library.
  Surroundings WithoutMpi() const {
    Write("libmpi.so.40", "");
    return {.environment = {{"LD_LIBRARY_PATH", root_}}};
  }
  Arguments Train() const {
    const std::string data = Write("data.txt", std::string(2000, 'a'));
    return {"train",        "gpt-tiny", "--tokenizer", "byte",      "--data",
            data,           "--out",    Path("run"),   "--seq-len", "8",
            "--batch-size", "1",        "--max-steps", "1"};
  }
};

// Shared libraries, those of libraries included.
std::string LibrariesOf(const std::string& program) {
  const ShellRun ran = RunShell("ldd " + program);
  EXPECT_EQ(ran.code, 0) << ran.output;
  return ran.output;
}

TEST_F(LibrariesTest, StartsWithoutMpi) {
  const std::string libraries = LibrariesOf(kProgram);
  EXPECT_NE(libraries.find("libc.so"), std::string::npos);
  for (const char* other : {"libmpi", "libopen-pal", "libopen-rte", "libcuda", "not found"}) {
    EXPECT_EQ(libraries.find(other), std::string::npos) << libraries;
  }
}

TEST_F(LibrariesTest, OneProcessNeedsNoMpi) {
  const Outcome outcome = Run(Train(), WithoutMpi());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(Path("run") + "/model/model.safetensors"));
}

TEST_F(LibrariesTest, ARankNamesTheLibraryThatIsMissing) {
  Surroundings around = WithoutMpi();
  around.environment.insert(around.environment.end(), {{"OMPI_COMM_WORLD_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_RANK", "1"},
                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  ExpectError(Train(), 2,
              "error: rank 1 of 2: Open MPI's library cannot be loaded (" + Path("libmpi.so.40") +
                  ": file too short); Debian's package libopenmpi3 has it",
              around);
}

}  // namespace
}  // namespace tessera
