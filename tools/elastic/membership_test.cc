// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/membership.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tools {
namespace {

// A cluster with a simulated clock, in which every agent obeys its orders at once.
class Cluster {
 public:
  explicit Cluster(MembershipOptions options)
      : silence_(options.silence), members_(WithDefaults(std::move(options)), 0) {}

  void Add(const std::string& host, int64_t slots) {
    AgentReport& report = agents_[host];
    report.host = host;
    report.agent = Concat(host, "-", ++started_);
    report.slots = slots;
    report.file_port = report.free_port = 1000 + started_;
  }
  // The host is gone, and nobody says so.
  void Cut(const std::string& host) { agents_.erase(host); }
  void EndAgent(const std::string& host) {
    agents_.erase(host);
    members_.AgentEnded(host, now_);
  }
  AgentReport& At(const std::string& host) { return agents_.at(host); }
  const Order& OrderOf(const std::string& host) { return orders_[host]; }

  // Agents report and obey, several times a second.
  void Pass(double seconds) {
    for (const double end = now_ + seconds; now_ < end; now_ += 0.1) {
      for (auto& [host, report] : agents_) {
        const Order order = members_.Report(report, "address-of-" + host, now_);
        Obey(order, &report);
        orders_[host] = order;
      }
      members_.Advance(now_);
      for (const auto& event : members_.TakeEvents()) events_.push_back(event);
    }
  }
  // All ranks have done the step, and hosts hold a checkpoint of `saved` of which each has its own
  // file and that of the host before it.
  void Step(int64_t step, int64_t saved = -1) {
    std::vector<std::string> names;
    for (auto& [host, report] : agents_) {
      for (RankReport& rank : report.ranks) {
        rank.progress.from_memory = begun_at_ > 0;
        rank.progress.begun_at = begun_at_;
        rank.progress.step = step;
      }
      if (!report.ranks.empty()) names.push_back(host);
    }
    if (saved < 0) return;
    std::vector<std::string> all = {"checkpoint.json"};
    for (const std::string& name : names) all.push_back("of-" + name);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& before = names[(i + names.size() - 1) % names.size()];
      At(names[i]).memory = {
          {saved,
           {.id = "x", .here = {"checkpoint.json", "of-" + names[i], "of-" + before}, .all = all}}};
    }
  }
  void EndRank(const std::string& host, size_t local, int64_t code) {
    RankReport& rank = At(host).ranks.at(local);
    rank.is_running = false;
    rank.code = code;
  }
  void EndAllRanks(int64_t code) {
    for (auto& [host, report] : agents_) {
      for (RankReport& rank : report.ranks) rank.is_running = false, rank.code = code;
    }
  }
  int64_t Running() const {
    int64_t running = 0;
    for (const auto& [host, report] : agents_) {
      for (const RankReport& rank : report.ranks) running += rank.is_running ? 1 : 0;
    }
    return running;
  }
  std::vector<nlohmann::ordered_json> Events(const std::string& kind) const {
    std::vector<nlohmann::ordered_json> found;
    for (const auto& event : events_) {
      if (event["event"] == kind) found.push_back(event);
    }
    return found;
  }
  Membership& members() { return members_; }
  int64_t begun_at_ = 0;

 private:
  static MembershipOptions WithDefaults(MembershipOptions options) {
    // Of a run whose data-parallel ranks are a power of two.
    options.most_ranks = [](int64_t there) {
      int64_t most = 1;
      while (2 * most <= there) most *= 2;
      return there == 0 ? 0 : most;
    };
    return options;
  }
  static void Obey(const Order& order, AgentReport* report) {
    const auto stop = [&] {
      for (RankReport& rank : report->ranks) {
        if (!rank.is_running) continue;
        rank.is_running = false;
        rank.was_stopped = true;
        rank.code = 137;
      }
    };
    if (order.command == Command::kWait || order.command == Command::kEnd) {
      stop();
      report->phase = HostPhase::kIdle;
      return;
    }
    if (order.generation != report->generation) {
      stop();
      report->ranks.clear();
      report->generation = order.generation;
      report->phase = HostPhase::kReady;
    }
    const bool runs = order.command == Command::kRun || order.command == Command::kSignal;
    if (runs && report->phase == HostPhase::kReady) {
      report->phase = HostPhase::kRunning;
      for (int64_t i = 0; i < order.ranks; ++i) {
        report->ranks.push_back({.rank = order.first_rank + i});
      }
    }
    if (order.command == Command::kSignal) {
      for (RankReport& rank : report->ranks) rank.is_running = false;
    }
  }

  const double silence_;
  Membership members_;
  std::map<std::string, AgentReport> agents_;
  std::map<std::string, Order> orders_;
  std::vector<nlohmann::ordered_json> events_;
  int started_ = 0;
  double now_ = 0;
};

MembershipOptions Of(int64_t ranks, int64_t min_ranks, int64_t max_restarts) {
  return {.hosts = {"a", "b"},
          .ranks = ranks,
          .min_ranks = min_ranks,
          .max_restarts = max_restarts,
          .silence = 4,
          .gathering = 5,
          .patience = 60};
}

Cluster TwoHosts(MembershipOptions options) {
  Cluster cluster(std::move(options));
  cluster.Add("a", 2);
  cluster.Add("b", 2);
  cluster.Pass(1);
  cluster.Step(1);
  cluster.Pass(1);
  return cluster;
}

TEST(MembershipTest, ARunWithoutFaults) {
  Cluster cluster = TwoHosts(Of(4, 4, 0));
  EXPECT_EQ(cluster.Running(), 4);
  EXPECT_EQ(cluster.OrderOf("b").first_rank, 2);
  EXPECT_EQ(cluster.OrderOf("b").world_size, 4);
  EXPECT_EQ(cluster.OrderOf("b").master_addr, "address-of-a");
  cluster.EndAllRanks(0);
  cluster.Pass(0.5);
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 0);
  EXPECT_EQ(cluster.OrderOf("a").command, Command::kEnd);
  EXPECT_TRUE(cluster.Events("left").empty());
}

TEST(MembershipTest, ItWaitsForAllHostsAndThenForEnough) {
  Cluster cluster(Of(4, 2, 0));
  cluster.Add("b", 2);
  cluster.Pass(4);
  EXPECT_EQ(cluster.Running(), 0);
  cluster.Pass(2);
  EXPECT_EQ(cluster.Running(), 2) << "with those that have come";
  Cluster too_few(Of(4, 4, 0));
  too_few.Add("b", 2);
  too_few.Pass(61);
  ASSERT_TRUE(too_few.members().outcome());
  EXPECT_EQ(too_few.members().outcome()->code, 1);
  EXPECT_NE(too_few.members().outcome()->message.find("--min-ranks"), std::string::npos);
}

TEST(MembershipTest, ARankThatIsKilledStartsAllAgainFromMemory) {
  Cluster cluster = TwoHosts(Of(4, 4, 3));
  cluster.Step(12, 10);
  cluster.Pass(0.5);
  cluster.EndRank("b", 1, 137);
  cluster.EndRank("a", 0, 1);  // since it misses that one
  cluster.Pass(1);
  EXPECT_EQ(cluster.Running(), 4);
  EXPECT_EQ(cluster.OrderOf("a").generation, 2);
  EXPECT_EQ(cluster.OrderOf("a").step, 10);
  EXPECT_TRUE(cluster.OrderOf("a").files.empty()) << "two hosts have everything";
  ASSERT_EQ(cluster.Events("left").size(), 1u);
  EXPECT_EQ(cluster.Events("left")[0]["ranks"], nlohmann::ordered_json({3}));
  EXPECT_EQ(cluster.Events("left")[0]["reason"], "killed by signal 9");
  cluster.begun_at_ = 10;
  cluster.Step(11);
  cluster.Pass(0.5);
  const auto started = cluster.Events("started").back();
  EXPECT_EQ(started["from"], "memory");
  EXPECT_EQ(started["lost_steps"], 2);
  EXPECT_LT(started["seconds"].get<double>(), 2);
}

TEST(MembershipTest, FewerRanksAfterAHostIsLostAndAllAgainWhenItComes) {
  for (const bool silently : {true, false}) {
    Cluster cluster = TwoHosts(Of(4, 2, 3));
    cluster.Step(12, 10);
    cluster.Pass(0.5);
    silently ? cluster.Cut("a") : cluster.EndAgent("a");
    cluster.Pass(silently ? 6 : 1.5);
    EXPECT_EQ(cluster.Running(), 2);
    EXPECT_EQ(cluster.OrderOf("b").step, 10) << "it has the files of both";
    EXPECT_EQ(cluster.OrderOf("b").first_rank, 0);
    ASSERT_EQ(cluster.Events("left").size(), 1u);
    EXPECT_EQ(cluster.Events("left")[0]["host"], "a");
    cluster.begun_at_ = 10;
    cluster.Add("a", 2);
    cluster.Pass(1);
    EXPECT_EQ(cluster.Running(), 2) << "not before the run is where it was";
    cluster.Step(13, 13);
    cluster.Pass(2);
    EXPECT_EQ(cluster.Running(), 4);
    EXPECT_EQ(cluster.OrderOf("a").step, 13);
    EXPECT_EQ(cluster.OrderOf("a").files.size(), 2u) << "the index, and the one file";
    EXPECT_EQ(cluster.OrderOf("a").files.at("of-b").find("http://address-of-b:"), 0u);
  }
}

// The next start has only files that hosts hold together, and none of a later step stays.
TEST(MembershipTest, FromTheDiskWhereMemoryIsNotWhole) {
  Cluster cluster = TwoHosts(Of(4, 2, 3));
  cluster.Step(12, 10);
  cluster.At("b").memory.at(10).here = {"checkpoint.json", "of-b"};
  cluster.Pass(0.5);
  cluster.EndAgent("a");
  cluster.Pass(1.5);
  EXPECT_EQ(cluster.OrderOf("b").step, -1);
  cluster.Add("c", 1);  // without a part in it
  cluster.Pass(0.5);
  EXPECT_EQ(cluster.OrderOf("c").command, Command::kWait);
  EXPECT_EQ(cluster.OrderOf("c").newest, -1);
}

TEST(MembershipTest, RestartsAreCounted) {
  Cluster cluster = TwoHosts(Of(4, 4, 1));
  for (int64_t round = 0; round < 2; ++round) {
    EXPECT_FALSE(cluster.members().outcome());
    cluster.Step(5 + round);
    cluster.Pass(0.5);
    cluster.EndRank("a", 0, 139);
    cluster.Pass(1.5);
  }
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 1);
  EXPECT_NE(cluster.members().outcome()->message.find("--max-restarts 1"), std::string::npos);
}

TEST(MembershipTest, AWrongCommandLineEndsTheRunAtOnce) {
  Cluster cluster(Of(4, 4, 5));
  cluster.Add("a", 2);
  cluster.Add("b", 2);
  cluster.Pass(1);
  cluster.EndAllRanks(2);
  cluster.Pass(1);
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 2);
}

TEST(MembershipTest, TheSameFailureAtTheSameStepEndsTheRun) {
  Cluster cluster = TwoHosts(Of(4, 4, 50));
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(cluster.members().outcome());
    cluster.Step(7);
    cluster.Pass(0.5);
    cluster.EndAllRanks(1);
    cluster.Pass(1.5);
  }
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 1);
  EXPECT_NE(cluster.members().outcome()->message.find("step 8"), std::string::npos);
}

TEST(MembershipTest, ASignalEndsTheRun) {
  Cluster cluster = TwoHosts(Of(4, 4, 5));
  cluster.members().Stop(15);
  cluster.Pass(1);
  EXPECT_EQ(cluster.Running(), 0);
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 0);
  Cluster before(Of(4, 4, 5));
  before.members().Stop(15);
  EXPECT_TRUE(before.members().outcome()) << "nothing has begun";
}

// While a start is under way the signal reaches the ranks of the next one, which save.
TEST(MembershipTest, ASignalBetweenTwoStartsIsKept) {
  Cluster cluster = TwoHosts(Of(4, 4, 5));
  cluster.EndRank("a", 0, 137);
  cluster.Pass(0.11);
  cluster.members().Stop(15);
  EXPECT_FALSE(cluster.members().outcome());
  cluster.Pass(2);
  ASSERT_TRUE(cluster.members().outcome());
  EXPECT_EQ(cluster.members().outcome()->code, 0);
  EXPECT_EQ(cluster.OrderOf("a").generation, 2);
}

TEST(MembershipTest, AnAgentThatIsStartedAgainIsAnotherHost) {
  Cluster cluster = TwoHosts(Of(4, 4, 5));
  cluster.Step(3);
  cluster.Pass(0.5);
  cluster.Cut("b");
  cluster.Add("b", 2);
  cluster.Pass(2);
  EXPECT_EQ(cluster.Running(), 4);
  EXPECT_EQ(cluster.OrderOf("a").generation, 2);
  EXPECT_EQ(cluster.Events("left").at(0)["reason"], "its agent was started again");
}

// Each file is brought to two hosts of the next start, also from one that has no part in it.
TEST(MembershipTest, FilesAreBroughtToTwoHosts) {
  MembershipOptions options = Of(8, 2, 3);
  options.hosts = {"a", "b", "c", "d"};
  Cluster cluster(options);
  for (const char* host : {"a", "b", "c", "d"}) cluster.Add(host, 2);
  cluster.Pass(1);
  cluster.Step(12, 10);
  cluster.Pass(0.5);
  cluster.EndAgent("d");
  cluster.Pass(1.5);
  EXPECT_EQ(cluster.OrderOf("a").world_size, 4);
  EXPECT_EQ(cluster.OrderOf("c").ranks, 0) << "no layout has six ranks";
  std::map<std::string, int> hosts;
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(cluster.OrderOf(name).step, 10);
    std::set<std::string> files;
    for (const std::string& file : cluster.At(name).memory.at(10).here) files.insert(file);
    for (const auto& [file, url] : cluster.OrderOf(name).files) files.insert(file);
    for (const std::string& file : files) ++hosts[file];
  }
  EXPECT_EQ(hosts,
            (std::map<std::string, int>{
                {"checkpoint.json", 2}, {"of-a", 2}, {"of-b", 2}, {"of-c", 2}, {"of-d", 2}}));
  EXPECT_EQ(cluster.OrderOf("b").files.at("of-c").find("http://address-of-c:"), 0u);

  cluster.begun_at_ = 10;
  cluster.Step(13, 13);
  cluster.Add("d", 2);
  cluster.Pass(2);
  EXPECT_EQ(cluster.OrderOf("d").world_size, 8);
  EXPECT_EQ(cluster.OrderOf("a").files.size(), 0u);
  EXPECT_EQ(cluster.OrderOf("d").files.size(), 1u) << "the index: two hosts have all else";
}

// A rank is slow in every step, or in some, or not much slower than the others, or for a while.
TEST(MembershipTest, ASlowRankIsNamed) {
  struct Case {
    double usual;  // seconds of a step
    double more;   // of rank 2, in each `every`th
    int64_t every;
    int64_t until;            // this step
    std::vector<int64_t> at;  // the steps in which it is named
  };
  const Case cases[] = {{0.3, 0.6, 1, 1000, {8}},   {0.3, 2.4, 4, 1000, {14}},
                        {0.3, 0.2, 1, 1000, {}},    {0.01, 0.04, 1, 1000, {}},
                        {0.3, 2.4, 1000, 1000, {}}, {0.3, 0.6, 1, 12, {8}}};
  for (const Case& slow : cases) {
    Cluster cluster = TwoHosts(Of(4, 4, 5));
    std::map<int64_t, double> worked;
    for (int64_t step = 2; step < 40; ++step) {
      cluster.Step(step);
      for (const char* host : {"a", "b"}) {
        for (RankReport& rank : cluster.At(host).ranks) {
          double& seconds = worked[rank.rank];
          seconds += slow.usual;
          if (rank.rank == 2 && step % slow.every == 0 && step < slow.until) seconds += slow.more;
          rank.progress.worked = seconds;
        }
      }
      cluster.Pass(0.4);
    }
    const auto events = cluster.Events("slow");
    EXPECT_EQ(events.size(), slow.at.empty() ? 0u : 1u) << slow.more << " " << slow.every;
    for (const auto& event : events) {
      EXPECT_EQ(event["ranks"], nlohmann::ordered_json({2}));
      EXPECT_EQ(event["host"], "b");
      EXPECT_LE(event["step"].get<int64_t>(), slow.at[0]);
    }
  }
}

}  // namespace
}  // namespace tessera::tools
