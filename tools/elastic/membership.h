// SPDX-License-Identifier: Apache-2.0
// Who takes part in an elastic run, and what each host has to do: the coordinator's decisions, as
// plain functions of reports and of the time.
//
//   Membership members({.ranks = 8, .min_ranks = 4, .max_restarts = 10, ...});
//   Order order = members.Report(report, "10.0.0.2", now);     // the answer to an agent
//   members.Advance(now);                                      // several times a second
//   for (const nlohmann::ordered_json& row : members.TakeEvents()) ...
//   if (members.outcome()) return members.outcome()->code;
//
// A run is a sequence of generations: each is one start of the command on a number of ranks. When a
// rank or a host is lost, the ranks that are left are killed, and the next generation begins on the
// hosts that are there, from the newest checkpoint whose files these hold together, or from the
// disk. Before it begins, each file of the checkpoint is brought to two of its hosts. When a host
// comes, the ranks finish their step, save and end, and the next generation has it. A host belongs
// to one generation at a time, and the next one begins only when every host there has said that
// nothing runs on it.
//
// A host that is silent for `silence` seconds is lost. Its agent ends its ranks after half of that
// (tools/elastic/agent.h), so that two generations never run at once; and where an agent is
// stopped too, the lock of the run's folder (train/run/run_lock.h) refuses the second one.
#ifndef TESSERA_TOOLS_ELASTIC_MEMBERSHIP_H_
#define TESSERA_TOOLS_ELASTIC_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/elastic/messages.h"
#include "train/run/elastic_run.h"

namespace tessera::tools {

struct MembershipOptions {
  std::string job = {};
  std::vector<std::string> hosts = {};  // in the order of their ranks; others come behind them
  int64_t ranks = 1;                    // of the whole run
  int64_t min_ranks = 1;                // fewer wait for hosts to come
  int64_t max_restarts = 0;             // starts after a rank or a host was lost
  int64_t interval = 10;                // steps between checkpoints in memory
  double silence = 10;                  // seconds after which a silent host is lost
  double gathering = 30;                // seconds to wait for all hosts before the first start
  double patience = 600;                // seconds to wait for min_ranks
  // The most ranks on which the run has a layout, of those there (train/run/elastic_run.h).
  std::function<int64_t(int64_t there)> most_ranks = nullptr;
};

class Membership {
 public:
  // Times are seconds on a clock that only goes forward.
  Membership(MembershipOptions options, double now);

  Order Report(const AgentReport& report, const std::string& address, double now);
  // The agent's process has ended, as whoever started it sees.
  void AgentEnded(const std::string& host, double now);
  void Advance(double now);
  // Gives all ranks the signal: they save and end, and so does the run.
  void Stop(int64_t signal);

  bool IsPresent(const std::string& host) const { return hosts_.contains(host); }
  bool Expects(const std::string& host) const;

  struct Outcome {
    int code = 0;
    std::string message = {};  // why, where the ranks have not said it
  };
  // Once the run is over: hosts are told to end.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // Rows of events.jsonl since the last call.
  std::vector<nlohmann::ordered_json> TakeEvents();

 private:
  enum class Phase { kGather, kFetch, kRun, kStop, kOver };

  struct Host {
    AgentReport report;
    std::string address;
    double heard = 0;
    int64_t first_rank = 0;
    int64_t ranks = 0;  // of the generation; 0: it has none
    std::map<std::string, std::string> files;
  };

  void Gather(double now);
  void Begin(int64_t ranks);
  void ChooseCheckpoint();
  void ShareOutFiles(const std::map<std::string, std::string>& urls);
  void Fetch(double now);
  void Run(double now);
  void LookForSteps(double now);
  void LookForSlowRanks(double now);
  void MakeRoomForMore(double now);
  void StopGeneration(double now);
  void FinishStop(double now);
  void FindCause();
  void LoseHost(const std::string& host, const std::string& reason, double now);
  void End(int code, const std::string& message);
  // Adds a row, with the last step where it names none.
  void Tell(nlohmann::ordered_json event);
  Order OrderFor(const Host& host) const;
  // Whether the host has taken up the present generation.
  bool IsIn(const Host& host) const;
  int64_t Slots() const;
  std::vector<Host*> HostsInOrder();

  const MembershipOptions options_;
  std::map<std::string, Host> hosts_;
  Phase phase_ = Phase::kGather;
  int64_t generation_ = 0;
  int64_t world_size_ = 0;
  int64_t restarts_ = 0;
  double begin_after_;  // unless all ranks are there
  double gathering_since_;
  int64_t signal_ = 0;  // that the ranks get
  bool ends_ = false;   // after the signal the run is over

  // Of the generation.
  int64_t memory_step_ = -1;  // of the checkpoint in memory that it continues from; -1: none
  std::string memory_id_;
  bool fetch_failed_ = false;  // the last one's: continue from the disk
  bool has_stepped_ = false;
  int64_t begun_at_ = -1;          // the step that its ranks continued from, once one has stepped
  std::optional<double> lost_at_;  // when what led to it was seen
  bool external_ = false;          // what ended it: a signal, or a host
  int code_ = 0;                   // of a rank that failed by itself
  int64_t last_step_ = -1;         // of all generations
  int64_t step_before_ = -1;       // last_step_ when the generation began
  int64_t failed_at_ = -2;         // last_step_ when ranks last failed by themselves
  int64_t failures_ = 0;           // by themselves, in a row and without a step

  // Since when ranks are compared, and how far each was then; nullopt: not yet.
  struct Comparison {
    double since = 0;
    std::map<int64_t, train::RankProgress> progress;  // by rank
  };
  std::optional<Comparison> comparison_;
  std::set<int64_t> slow_;  // the ranks that were slow in the comparison before

  std::vector<nlohmann::ordered_json> events_;
  std::optional<Outcome> outcome_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_MEMBERSHIP_H_
