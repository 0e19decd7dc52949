#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/launch_plan.h"

namespace tessera::tools {
namespace {

std::string Refusal(std::string_view text) {
  const auto hosts = ParseHostFile("hosts", text);
  return hosts.ok() ? "accepted" : Message(hosts.status());
}

TEST(HostFileTest, HostsSlotsAndComments) {
  const auto hosts =
      ParseHostFile("h", "# ours\n\nn1 slots=4\n  n2   # one\n10.0.0.3\tslots=2 # x");
  ASSERT_TRUE(hosts.ok()) << Message(hosts.status());
  ASSERT_EQ(hosts->size(), 3u);
  EXPECT_EQ((*hosts)[0].name, "n1");
  EXPECT_EQ((*hosts)[0].slots, 4);
  EXPECT_EQ((*hosts)[1].slots, 1);
  EXPECT_EQ((*hosts)[2].name, "10.0.0.3");
  EXPECT_EQ((*hosts)[2].where, "h:5");
}

TEST(HostFileTest, BadLinesAreNamedByTheirNumber) {
  for (const char* line :
       {"n1 slot=4", "n1 slots=", "n1 slots=0", "n1 slots=-1", "n1 slots=x", "n1 slots=2x",
        "n1 slots=99999999999", "n1 slots=2 more", "-oProxy=x", "n1;rm", "n0"}) {
    const std::string refusal = Refusal(std::string("n0\n") + line + "\n");
    EXPECT_EQ(refusal.substr(0, 8), "hosts:2:") << line << ": " << refusal;
  }
  EXPECT_EQ(Refusal("# nothing\n"), "hosts: no host in it");
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() : root_(testing::TempDir() + "/launch") {
    std::filesystem::create_directories(root_);
    Write("hosts", "n1 slots=2\nn2 slots=4\n");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    std::string scratch = "/tmp/launch.XXXXXX";
    scratch_ = mkdtemp(scratch.data());
    setenv("TMPDIR", scratch_.c_str(), 1);
  }
  ~LaunchTest() override { std::filesystem::remove_all(scratch_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    chmod(Path(name).c_str(), 0755);
    return Path(name);
  }
  // Exit code and all output of a shell command.
  static std::pair<int, std::string> Shell(const std::string& command) {
    std::string text;
    std::FILE* output = popen((command + " 2>&1").c_str(), "r");
    std::array<char, 4096> part;
    while (std::fgets(part.data(), part.size(), output) != nullptr) text += part.data();
    return {WEXITSTATUS(pclose(output)), text};
  }
  LaunchPlan Plan(const LaunchFlags& flags) {
    const auto plan = PlanLaunch(flags, {"/bin/tessera", 2, 0, false, ""});
    EXPECT_TRUE(plan.ok()) << Message(plan.status());
    return plan.ok() ? *plan : LaunchPlan{};
  }

  const std::string root_;
  std::string scratch_;
};

TEST_F(LaunchTest, TheCommandOfMpirun) {
  LaunchFlags flags;
  flags.command = {"train", "gpt2", "--out", "my run"};
  flags.hostfile = Path("hosts");
  EXPECT_EQ(ShellLine(Plan(flags).arguments),
            "mpirun --bind-to none --host n1:2,n2:4 -n 6 /bin/tessera train gpt2 --out 'my run'");
  flags.num_nodes = 1;
  flags.num_gpus = 3;
  flags.master_ip = "10.0.0.1";
  flags.master_port = 29500;
  EXPECT_EQ(ShellLine(Plan(flags).arguments),
            "mpirun --bind-to none --oversubscribe --mca mpi_yield_when_idle 1 --host n1:3 -n 3 -x "
            "MASTER_ADDR=10.0.0.1 -x MASTER_PORT=29500 /bin/tessera train gpt2 --out 'my run'");
  flags.num_nodes = 3;
  const auto refused = PlanLaunch(flags, {});
  EXPECT_NE(Message(refused.status()).find("more than the 2 hosts"), std::string::npos);
}

TEST_F(LaunchTest, TwoRealRanks) {
  const auto [code, text] = Shell("tools/tessera launch --num_gpus 2 -- models");
  EXPECT_EQ(code, 0) << text;
  const size_t first = text.find("gpt-tiny");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("gpt-tiny", first + 1), std::string::npos) << text;
}

TEST_F(LaunchTest, AnUnreachableHostIsNamed) {
  Write("ssh",
        "#!/bin/sh\ncase \"$*\" in *n2*) echo 'ssh: no route to host' >&2; exit 255;; esac\n");
  const auto [code, text] =
      Shell("TESSERA_SSH=" + Path("ssh") + " tools/tessera launch --hostfile " + Path("hosts") +
            " -- models");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text, "error: host 'n2' (" + Path("hosts") +
                      ":2) cannot be reached: ssh: no route to host\n");
}

TEST_F(LaunchTest, WithoutMpirunThePackageIsNamed) {
  const auto [code, text] = Shell("PATH=/nowhere tools/tessera launch --num-gpus 2 -- models");
  EXPECT_EQ(code, 2);
  EXPECT_EQ(text, "error: mpirun is not installed (Debian's package openmpi-bin)\n");
}

TEST_F(LaunchTest, UnderAnotherLauncher) {
  const std::string environment = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=9 ";
  const std::string launch = environment + "tools/tessera launch --not_call_launch ";
  EXPECT_EQ(Shell(launch + "--num-gpus 2 -- models").first, 0);
  const auto [code, text] = Shell(launch + "--num-gpus 3 -- models");
  EXPECT_EQ(code, 2);
  EXPECT_NE(text.find("ask for 3 ranks, but the environment (torchrun) has 2"), std::string::npos)
      << text;
}

TEST_F(LaunchTest, RefusesWhatMakesNoSense) {
  EXPECT_NE(Shell("tools/tessera launch --num-gpus 2").second.find("the command is missing"),
            std::string::npos);
  EXPECT_NE(Shell("tools/tessera launch --num-nodes 2 -- models").second.find("needs --hostfile"),
            std::string::npos);
  EXPECT_NE(Shell("tools/tessera launch --hostfile nowhere -- models").second.find("nowhere"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::tools
