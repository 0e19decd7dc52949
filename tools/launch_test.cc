// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/process/shell.h"
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

TEST_F(LaunchTest, RanksOfAllHostsAndWhatTheyAreTold) {
  LaunchFlags flags;
  flags.command = {"models"};
  flags.hostfile = Path("hosts");
  flags.ranks = 4;
  flags.gpu_ids = "1,0";
  const auto plan =
      PlanLaunch(flags, {"/bin/tessera", 2, 0, false, "", {"NCCL_DEBUG=INFO", "A=b c"}});
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(ShellLine(plan->arguments),
            "mpirun --bind-to none --host n1:2,n2:2 -n 4 -x CUDA_VISIBLE_DEVICES=1,0 -x "
            "NCCL_DEBUG=INFO -x 'A=b c' /bin/tessera models");
  flags.ranks = 5;
  EXPECT_EQ(Message(PlanLaunch(flags, {}).status()),
            "--num-processes 5 cannot be shared evenly by 2 hosts");
  flags.ranks = 4;
  flags.num_gpus = 3;
  EXPECT_EQ(Message(PlanLaunch(flags, {}).status()),
            "--num-processes 4 on 2 hosts contradicts --num-gpus 3");
}

// DeepSpeed's filters over hosts n1 (2 slots) and n2 (4).
TEST_F(LaunchTest, HostsAndGpusThatAreIncludedOrExcluded) {
  LaunchFlags flags;
  flags.command = {"models"};
  flags.hostfile = Path("hosts");
  const auto line = [&](const std::string& include, const std::string& exclude) {
    flags.include = include;
    flags.exclude = exclude;
    const auto plan = PlanLaunch(flags, {"/t", 8, 4, false, "", {"CUDA_VISIBLE_DEVICES=7"}});
    return plan.ok()
               ? ShellLine(plan->arguments).substr(std::string("mpirun --bind-to none ").size())
               : Message(plan.status());
  };
  const std::string all = " -x CUDA_VISIBLE_DEVICES=7 /t models";
  EXPECT_EQ(line("n2", ""), "--host n2:4 -n 4" + all);
  EXPECT_EQ(line("n2:0,2", ""), "--host n2:2 -n 2 -x CUDA_VISIBLE_DEVICES=0,2 /t models");
  EXPECT_EQ(line("n1@n2:3", ""),
            "--host n1:2 -n 2" + all + " : --host n2:1 -n 1 -x CUDA_VISIBLE_DEVICES=3 /t models");
  EXPECT_EQ(line("", "n1"), "--host n2:4 -n 4" + all);
  EXPECT_EQ(line("", "n1:0@n2:1,2,3"),
            "--host n1:1 -n 1 -x CUDA_VISIBLE_DEVICES=1 /t models : "
            "--host n2:1 -n 1 -x CUDA_VISIBLE_DEVICES=0 /t models");
  EXPECT_EQ(line("n3", ""), "--include n3: there is no host 'n3' in " + Path("hosts"));
  EXPECT_EQ(line("n1:2", ""), "--include n1:2: 'n1' has 2 slots, no slot 2");
  EXPECT_EQ(line("n1:x", ""), "--include n1:x: 'n1:x' is not HOST or HOST:0,1,...");
  EXPECT_EQ(line("", "n1@n2"), "--exclude n1@n2 leaves no host");
  EXPECT_EQ(line("n1", "n2"), "--include and --exclude exclude one another");
  flags.hostfile.clear();
  EXPECT_EQ(line("localhost:1,3", ""),
            "--host localhost:2 -n 2 -x CUDA_VISIBLE_DEVICES=1,3 /t models");
  flags.num_gpus = 2;
  EXPECT_NE(line("localhost:1", "").find("do too"), std::string::npos);
}

// Each node is started by hand, as with torchrun and Accelerate.
TEST_F(LaunchTest, NodesThatAreStartedOneByOne) {
  const std::string nodes =
      "tools/tessera launch --nnodes 2 --nproc_per_node 2 --master_addr 127.0.0.1 ";
  auto [code, text] = RunShell(nodes + "--node_rank 1 --master_port 9 --dry-run -- models");
  EXPECT_EQ(code, 0) << text;
  const std::vector<std::string> lines = Lines(text);
  ASSERT_EQ(lines.size(), 2u) << text;
  EXPECT_EQ(lines[1].find("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "
                          "MASTER_ADDR=127.0.0.1 MASTER_PORT=9 "
                          "TORCHELASTIC_USE_AGENT_STORE=False "),
            0u)
      << text;
  EXPECT_NE(RunShell(nodes + "--node_rank 2 -- models").output.find("not below --num-nodes 2"),
            std::string::npos);
  EXPECT_NE(RunShell("tools/tessera launch --nnodes 2 --node_rank 0 models")
                .output.find("--master-ip is missing"),
            std::string::npos);
  // Accelerate's file of two machines says the same.
  const std::string file =
      Write("two.yaml",
            "num_processes: 4\nnum_machines: 2\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n"
            "main_process_port: 29501\nuse_cpu: true\ndistributed_type: MULTI_CPU\n");
  text =
      RunShell("tools/tessera launch --config_file " + file + " --machine_rank 1 --dry-run models")
          .output;
  EXPECT_EQ(text.find("RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 "
                      "MASTER_PORT=29501 "),
            0u)
      << text;
  const std::string without =
      Write("without.yaml",
            "num_processes: 2\nnum_machines: 2\nmachine_rank: 1\ndistributed_type: MULTI_CPU\n");
  text = RunShell("tools/tessera launch --config_file " + without + " models").output;
  EXPECT_NE(text.find(without + ": main_process_ip is missing"), std::string::npos) << text;
}

// The ranks of two nodes meet over TCP, and a failure of one is the job's.
TEST_F(LaunchTest, TwoNodesOnThisMachine) {
  const std::string data = Write("text.txt", std::string(4000, 'a') + "\n");
  const auto node = [&](int rank, const std::string& more) {
    return Concat("tools/tessera launch --nnodes 2 --node_rank ", rank,
                  " --nproc_per_node 1 --master_addr 127.0.0.1 --master_port ",
                  21000 + getpid() % 9000, " -- train gpt-tiny --data ", data, " --out ",
                  Path("nodes"), " --seq-len 32 ", more.empty() ? "--max-steps 2" : more);
  };
  const auto both = [&](const std::string& more) {
    std::filesystem::remove_all(Path("nodes"));
    return RunShell("(" + node(1, more) + " & " + node(0, more) +
                    "; code=$?; wait $! || code=$?; exit $code)");
  };
  ShellRun ran = both("");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("2 ranks over TCP: dp 2"), std::string::npos) << ran.output;
  // A terminal interrupts the whole group of processes. Each rank stops once, and saves.
  std::filesystem::remove_all(Path("nodes"));
  const std::string long_run = "--max-steps 1000000 --log-interval 100";
  ran = RunShell("timeout --preserve-status -s INT 4 sh -c 'trap : INT; " + node(1, long_run) +
                 " & " + node(0, long_run) + "; code=$?; wait $! || code=$?; wait; exit $code'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("by SIGINT; saved"), std::string::npos) << ran.output;
  ran = both("--max-steps 2 --tp 3");
  EXPECT_NE(ran.code, 0);
  EXPECT_NE(ran.output.find("error: "), std::string::npos) << ran.output;
}

TEST_F(LaunchTest, GpusThatCudaShows) {
  EXPECT_EQ(VisibleGpus(4, nullptr), 4);
  EXPECT_EQ(VisibleGpus(4, ""), 0);
  EXPECT_EQ(VisibleGpus(4, "-1"), 0);
  EXPECT_EQ(VisibleGpus(4, "2,0"), 2);
  EXPECT_EQ(VisibleGpus(4, "2,-1,0"), 1);  // CUDA looks no further
  EXPECT_EQ(VisibleGpus(4, "0,7,1"), 1);
  EXPECT_EQ(VisibleGpus(4, "1,1,2"), 1);
  EXPECT_EQ(VisibleGpus(4, "GPU-8f2a,MIG-77"), 2);
}

TEST_F(LaunchTest, EnvironmentFilesAreForwarded) {
  const auto entries = ParseEnvironmentFile("e", "# ours\nNCCL_IB_DISABLE=1\n\nX_1=a=b c \n");
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(*entries, (std::vector<std::string>{"NCCL_IB_DISABLE=1", "X_1=a=b c"}));
  for (const char* line : {"A", "=b", "1A=b", "A B=c", "export A=b"}) {
    EXPECT_EQ(Message(ParseEnvironmentFile("e", std::string("\n") + line).status()),
              Concat("e:2: '", line, "' is not NAME=VALUE"));
  }
  Write(".deepspeed_env", "FROM_HOME=yes\n");
  const auto [code, text] = RunShell(
      "HOME=" + root_ + " NCCL_DEBUG=WARN tools/tessera launch --dry-run --num-gpus 2 models");
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("-x FROM_HOME=yes"), std::string::npos) << text;
  EXPECT_NE(text.find("-x NCCL_DEBUG=WARN"), std::string::npos) << text;
}

// Their flags stand before the command, whose own begin with its name.
TEST_F(LaunchTest, AsOtherLaunchersAreCalled) {
  const auto ends = [&](const std::string& flags) {
    const auto [code, text] =
        RunShell("CUDA_VISIBLE_DEVICES= tools/tessera launch --dry-run " + flags);
    EXPECT_EQ(code, 0) << text;
    return text.substr(text.find(" -n ") + 1);
  };
  const auto expect = [&](const std::string& flags, const std::string& ranks,
                          const std::string& more) {
    const std::string text = ends(flags + " train gpt2 --data t");
    EXPECT_EQ(text.find("-n " + ranks + " "), 0u) << text;
    EXPECT_NE(text.find("train gpt2 --data t" + more + "\n"), std::string::npos) << text;
  };
  expect("--nproc_per_node=3 --nnodes 1 --master_addr h --master_port 9", "3", "");
  expect("--num_gpus 2 --num_nodes 1", "2", "");
  const std::string file = Write(
      "accelerate.yaml", "num_processes: 2  # both\nuse_cpu: true\ndistributed_type: MULTI_CPU\n");
  expect("--accelerate " + file, "2", " --accelerate " + file);
  expect("--config_file " + file + " --num_processes 4", "4", " --accelerate " + file);
  expect("--num_processes 2 --use_fsdp --fsdp_sharding_strategy FULL_SHARD", "2",
         " --accelerate '{\"fsdp_sharding_strategy\":\"FULL_SHARD\",\"use_fsdp\":\"true\"}'");
  expect("--standalone --nproc_per_node=2 --node_rank 0 --nnodes 1", "2", "");
  EXPECT_EQ(RunShell("tools/tessera launch --machine_rank 1 --num_processes 2 models").code, 2);
  EXPECT_EQ(RunShell("tools/tessera launch --standalone --nnodes 2 models").code, 2);
  EXPECT_EQ(RunShell("tools/tessera launch --tpu --num_processes 2 models").code, 2);
}

TEST_F(LaunchTest, TwoRealRanks) {
  const auto [code, text] = RunShell("tools/tessera launch --num_gpus 2 -- models");
  EXPECT_EQ(code, 0) << text;
  const size_t first = text.find("gpt-tiny");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("gpt-tiny", first + 1), std::string::npos) << text;
}

TEST_F(LaunchTest, AnUnreachableHostIsNamed) {
  Write("ssh",
        "#!/bin/sh\ncase \"$*\" in *n2*) echo 'ssh: no route to host' >&2; exit 255;; esac\n");
  const auto [code, text] =
      RunShell("TESSERA_SSH=" + Path("ssh") + " tools/tessera launch --hostfile " + Path("hosts") +
               " -- models");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text, "error: host 'n2' (" + Path("hosts") +
                      ":2) cannot be reached: ssh: no route to host\n");
}

TEST_F(LaunchTest, WithoutMpirunThePackageIsNamed) {
  const auto [code, text] = RunShell("PATH=/nowhere tools/tessera launch --num-gpus 2 -- models");
  EXPECT_EQ(code, 2);
  EXPECT_EQ(text, "error: mpirun is not installed (Debian's package openmpi-bin)\n");
}

TEST_F(LaunchTest, UnderAnotherLauncher) {
  const std::string environment = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=9 ";
  const std::string launch = environment + "tools/tessera launch --not_call_launch ";
  EXPECT_EQ(RunShell(launch + "--num-gpus 2 -- models").code, 0);
  const auto [code, text] = RunShell(launch + "--num-gpus 3 -- models");
  EXPECT_EQ(code, 2);
  EXPECT_NE(text.find("ask for 3 ranks, but the environment (torchrun) has 2"), std::string::npos)
      << text;
}

TEST_F(LaunchTest, RefusesWhatMakesNoSense) {
  EXPECT_NE(RunShell("tools/tessera launch --num-gpus 2").output.find("the command is missing"),
            std::string::npos);
  EXPECT_NE(
      RunShell("tools/tessera launch --num-nodes 2 -- models").output.find("needs --hostfile"),
      std::string::npos);
  EXPECT_NE(RunShell("tools/tessera launch --hostfile nowhere -- models").output.find("nowhere"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::tools
