// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/membership.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "dist/checkpoint/rank_writer.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostFailures = 3;  // by themselves, in a row and without a step
// Ranks are compared over so many steps and seconds at least.
constexpr int64_t kComparedSteps = 5;
constexpr double kComparedSeconds = 2;
// A slow rank's time for a step is so many times the median of the ranks, and so much longer.
constexpr double kSlowFactor = 2;
constexpr double kSlowSeconds = 0.05;

bool IsKilled(const RankReport& rank) { return rank.code > 128; }

bool RunsAny(const AgentReport& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(),
                     [](const RankReport& rank) { return rank.is_running; });
}

std::string HowItEnded(const RankReport& rank) {
  if (!rank.reason.empty()) return rank.reason;
  return rank.code > 128 ? Concat("killed by signal ", rank.code - 128)
                         : Concat("ended with code ", rank.code);
}

}  // namespace

Membership::Membership(MembershipOptions options, double now)
    : options_(std::move(options)), begin_after_(now + options_.gathering), gathering_since_(now) {}

bool Membership::Expects(const std::string& host) const {
  return std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end();
}

// --- What hosts say ------------------------------------------------------------------------------

Order Membership::Report(const AgentReport& report, const std::string& address, double now) {
  const auto found = hosts_.find(report.host);
  if (found != hosts_.end() && found->second.report.agent != report.agent) {
    LoseHost(report.host, "its agent was started again", now);
  }
  const auto [at, is_new] = hosts_.try_emplace(report.host);
  Host& host = at->second;
  host.report = report;
  host.address = address;
  host.heard = now;
  if (is_new) {
    Tell({{"event", "joined"}, {"host", report.host}, {"slots", report.slots}});
  }
  Advance(now);
  return OrderFor(host);
}

void Membership::AgentEnded(const std::string& host, double now) {
  if (hosts_.contains(host)) LoseHost(host, "its agent has ended", now);
}

void Membership::LoseHost(const std::string& name, const std::string& reason, double now) {
  const Host host = std::move(hosts_.at(name));
  hosts_.erase(name);
  Json event = {{"event", "left"}, {"host", name}, {"reason", reason}};
  const bool took_part = host.ranks > 0 && (phase_ == Phase::kFetch || phase_ == Phase::kRun);
  if (took_part) {
    Json ranks = Json::array();
    for (int64_t i = 0; i < host.ranks; ++i) ranks.push_back(host.first_rank + i);
    event["ranks"] = std::move(ranks);
  }
  Tell(std::move(event));
  if (!took_part) return;
  external_ = true;
  StopGeneration(now);
}

void Membership::Stop(int64_t signal) {
  if (std::exchange(ends_, true)) End(static_cast<int>(128 + signal), "");
  signal_ = signal;
  if (generation_ == 0) End(0, "");
}

// --- From generation to generation ---------------------------------------------------------------

void Membership::Advance(double now) {
  std::vector<std::string> silent;
  for (const auto& [name, host] : hosts_) {
    if (now - host.heard > options_.silence) silent.push_back(name);
  }
  for (const std::string& name : silent) {
    LoseHost(name, Concat("silent for ", options_.silence, " s"), now);
  }
  if (phase_ == Phase::kStop) FinishStop(now);
  if (phase_ == Phase::kGather) Gather(now);
  if (phase_ == Phase::kFetch) Fetch(now);
  if (phase_ == Phase::kRun) Run(now);
}

void Membership::Gather(double now) {
  for (const auto& [name, host] : hosts_) {
    if (RunsAny(host.report)) return;  // of an earlier generation
  }
  const int64_t ranks = options_.most_ranks(std::min(Slots(), options_.ranks));
  if (ranks >= options_.min_ranks && (ranks == options_.ranks || now >= begin_after_)) {
    Begin(ranks);
    return;
  }
  if (now - gathering_since_ > options_.patience) {
    End(1, Concat("the hosts have ", Slots(), " slots, and the run needs ", options_.min_ranks,
                  " ranks (--min-ranks); none has come for ", options_.patience, " s"));
  }
}

void Membership::Begin(int64_t ranks) {
  ++generation_;
  world_size_ = ranks;
  if (!ends_) signal_ = 0;
  has_stepped_ = external_ = false;
  code_ = 0;
  step_before_ = last_step_;
  begun_at_ = -1;
  comparison_.reset();
  slow_.clear();
  int64_t first = 0;
  for (Host* host : HostsInOrder()) {
    host->first_rank = first;
    host->ranks = std::min(host->report.slots, ranks - first);
    first += host->ranks;
  }
  ChooseCheckpoint();
  phase_ = Phase::kFetch;
}

// The newest whose files the hosts hold together.
void Membership::ChooseCheckpoint() {
  struct Held {
    std::set<std::string> all;
    std::map<std::string, std::string> urls;  // of the files that are held
  };
  std::map<std::pair<int64_t, std::string>, Held> checkpoints;  // by step and index
  for (const auto& [name, host] : hosts_) {
    for (const auto& [step, files] : host.report.memory) {
      Held& held = checkpoints[{step, files.id}];
      held.all.insert(files.all.begin(), files.all.end());
      const std::string url =
          Concat("http://", host.address, ":", host.report.file_port, "/", step);
      for (const std::string& file : files.here) {
        held.urls.try_emplace(file, Concat(url, "/", file));
      }
    }
  }
  std::erase_if(checkpoints, [](const auto& checkpoint) {
    const Held& held = checkpoint.second;
    return !std::all_of(held.all.begin(), held.all.end(),
                        [&](const std::string& file) { return held.urls.contains(file); });
  });
  const bool from_disk = std::exchange(fetch_failed_, false) || checkpoints.empty();
  memory_step_ = from_disk ? -1 : checkpoints.rbegin()->first.first;
  memory_id_ = from_disk ? "" : checkpoints.rbegin()->first.second;
  for (auto& [name, host] : hosts_) host.files.clear();
  if (from_disk) return;
  std::map<std::string, std::string> urls;
  const Held& chosen = checkpoints.rbegin()->second;
  for (const std::string& file : chosen.all) urls.emplace(file, chosen.urls.at(file));
  ShareOutFiles(urls);
}

// Every host of the generation has the index. Each other file is on two of them, so that one of
// them may be lost before the next checkpoint; whoever lacks most gets it. Ranks send each other
// what they need (dist/checkpoint/memory_checkpoints.h).
void Membership::ShareOutFiles(const std::map<std::string, std::string>& urls) {
  constexpr size_t kCopies = 2;
  std::map<Host*, std::set<std::string>> here;
  for (auto& [name, host] : hosts_) {
    if (host.ranks == 0) continue;
    std::set<std::string>& files = here[&host];
    const auto own = host.report.memory.find(memory_step_);
    if (own == host.report.memory.end() || own->second.id != memory_id_) continue;
    files.insert(own->second.here.begin(), own->second.here.end());
  }
  for (const auto& [file, url] : urls) {
    std::vector<Host*> others;  // that lack it, the one with the fewest files first
    for (const auto& [host, files] : here) {
      if (!files.contains(file)) others.push_back(host);
    }
    const size_t wanted = file == dist::kIndexFile ? here.size() : std::min(kCopies, here.size());
    const size_t holders = here.size() - others.size();
    if (holders >= wanted) continue;
    std::stable_sort(others.begin(), others.end(), [&](Host* a, Host* b) {
      const auto place = [&](Host* host) { return std::pair(here[host].size(), host->first_rank); };
      return place(a) < place(b);
    });
    others.resize(wanted - holders);
    for (Host* host : others) {
      host->files[file] = url;
      here[host].insert(file);
    }
  }
}

bool Membership::IsIn(const Host& host) const { return host.report.generation == generation_; }

void Membership::Fetch(double now) {
  bool ready = true;
  for (const auto& [name, host] : hosts_) {
    if (host.ranks == 0) continue;
    if (IsIn(host) && host.report.phase == HostPhase::kFailed) {
      Tell({{"event", "fetch_failed"},
            {"host", name},
            {"step", memory_step_},
            {"reason", host.report.problem}});
      if (memory_step_ < 0) return End(1, Concat("host '", name, "': ", host.report.problem));
      fetch_failed_ = external_ = true;
      StopGeneration(now);
      return;
    }
    ready = ready && IsIn(host) && host.report.phase == HostPhase::kReady;
  }
  if (ready) phase_ = Phase::kRun;
}

void Membership::Run(double now) {
  LookForSteps(now);
  int64_t ended = 0;
  bool failed = false;
  for (const auto& [name, host] : hosts_) {
    if (host.ranks == 0 || !IsIn(host)) continue;
    if (host.report.phase == HostPhase::kFailed) {
      End(1, Concat("host '", name, "': ", host.report.problem));
      return;
    }
    for (const RankReport& rank : host.report.ranks) {
      ended += rank.is_running ? 0 : 1;
      failed = failed || (!rank.is_running && rank.code != 0);
    }
  }
  if (failed) {
    StopGeneration(now);
  } else if (ended == world_size_) {
    if (signal_ != 0 && !ends_) {
      StopGeneration(now);
    } else {
      End(0, "");
    }
  } else {
    LookForSlowRanks(now);
    MakeRoomForMore(now);
  }
}

void Membership::LookForSteps(double now) {
  int64_t newest = -1;
  bool from_memory = false;
  for (const auto& [name, host] : hosts_) {
    if (host.ranks == 0 || !IsIn(host)) continue;
    for (const RankReport& rank : host.report.ranks) {
      newest = std::max(newest, rank.progress.step);
      begun_at_ = std::max(begun_at_, rank.progress.begun_at);
      from_memory = from_memory || rank.progress.from_memory;
    }
  }
  if (newest < 0) return;
  if (!std::exchange(has_stepped_, true)) {
    failures_ = 0;
    Json event = {{"event", "started"}, {"generation", generation_}, {"ranks", world_size_}};
    Json hosts = Json::array();
    for (Host* host : HostsInOrder()) {
      if (host->ranks > 0) hosts.push_back(host->report.host);
    }
    event["hosts"] = std::move(hosts);
    event["from"] = from_memory ? "memory" : begun_at_ > 0 ? "disk" : "the beginning";
    event["step"] = begun_at_;
    if (lost_at_) {
      event["lost_steps"] = std::max<int64_t>(0, step_before_ - begun_at_);
      event["seconds"] = now - *std::exchange(lost_at_, std::nullopt);
    }
    Tell(std::move(event));
  }
  last_step_ = newest;
}

// The ranks work side by side: one that takes far longer than the others holds all up, be it in
// every step or in some.
void Membership::LookForSlowRanks(double now) {
  Comparison current = {.since = now, .progress = {}};
  for (const auto& [name, host] : hosts_) {
    if (host.ranks == 0 || !IsIn(host)) continue;
    for (const RankReport& rank : host.report.ranks) {
      if (rank.progress.step >= 0) current.progress[rank.rank] = rank.progress;
    }
  }
  if (std::ssize(current.progress) < world_size_ || world_size_ < 3) return;
  if (!comparison_) {
    comparison_ = std::move(current);
    return;
  }
  if (now - comparison_->since < kComparedSeconds) return;
  std::vector<std::pair<double, int64_t>> seconds;  // of a step, by rank
  for (const auto& [rank, progress] : current.progress) {
    const train::RankProgress& before = comparison_->progress.at(rank);
    const int64_t steps = progress.step - before.step;
    if (steps < kComparedSteps) return;
    seconds.emplace_back((progress.worked - before.worked) / static_cast<double>(steps), rank);
  }
  comparison_ = std::move(current);
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2].first;
  std::set<int64_t> slow;
  for (const auto& [took, rank] : seconds) {
    if (took <= kSlowFactor * median || took <= median + kSlowSeconds) continue;
    slow.insert(rank);
    if (slow_.contains(rank)) continue;
    for (const auto& [name, host] : hosts_) {
      if (rank < host.first_rank || rank >= host.first_rank + host.ranks) continue;
      Tell({{"event", "slow"},
            {"host", name},
            {"ranks", {rank}},
            {"step", last_step_},
            {"seconds_of_step", took},
            {"median", median}});
    }
  }
  slow_ = std::move(slow);
}

// Ranks that save and end lose no step.
void Membership::MakeRoomForMore(double now) {
  if (signal_ != 0 || !has_stepped_ || last_step_ < step_before_) return;
  const int64_t most = options_.most_ranks(std::min(Slots(), options_.ranks));
  if (most <= world_size_) return;
  constexpr int64_t kSaveAndEnd = 10;  // SIGUSR1
  signal_ = kSaveAndEnd;
  external_ = true;
  lost_at_ = now;
}

void Membership::StopGeneration(double now) {
  if (!lost_at_) lost_at_ = now;
  phase_ = Phase::kStop;
}

// A rank that was killed, or whose host was lost, is the cause; the others fail since they miss it.
void Membership::FindCause() {
  std::vector<std::pair<const RankReport*, std::string>> killed;
  std::vector<std::pair<const RankReport*, std::string>> failed;
  for (const auto& [name, host] : hosts_) {
    if (host.ranks == 0 || !IsIn(host)) continue;
    for (const RankReport& rank : host.report.ranks) {
      if (rank.was_stopped || rank.code == 0) continue;
      (IsKilled(rank) ? killed : failed).emplace_back(&rank, name);
      if (!IsKilled(rank)) code_ = static_cast<int>(rank.code);
    }
  }
  if (killed.empty() && external_) return;
  external_ = external_ || !killed.empty();
  std::map<std::pair<std::string, std::string>, std::vector<int64_t>> ranks;  // by host and reason
  for (const auto& [rank, host] : killed.empty() ? failed : killed) {
    ranks[{host, HowItEnded(*rank)}].push_back(rank->rank);
  }
  for (const auto& [key, numbers] : ranks) {
    Tell({{"event", "left"}, {"host", key.first}, {"ranks", numbers}, {"reason", key.second}});
  }
}

void Membership::FinishStop(double now) {
  for (const auto& [name, host] : hosts_) {
    if (RunsAny(host.report)) return;
  }
  FindCause();
  if (ends_) return End(code_ == 0 ? 1 : code_, "");
  const bool planned = signal_ != 0 && code_ == 0;  // hosts have come
  if (!external_) {
    failures_ = has_stepped_ ? 0 : failures_ + 1;
    const bool again = has_stepped_ && failed_at_ == last_step_;
    failed_at_ = last_step_;
    if (generation_ == 1 && !has_stepped_) return End(code_, "");
    if (again) return End(code_, Concat("the run fails at step ", last_step_ + 1, " again"));
    if (failures_ >= kMostFailures) return End(code_, "the run fails before its first step");
  }
  if (!planned && ++restarts_ > options_.max_restarts) {
    return End(code_ == 0 ? 1 : code_,
               Concat("the run was lost ", restarts_, " times (--max-restarts ",
                      options_.max_restarts, ")"));
  }
  for (auto& [name, host] : hosts_) host.ranks = 0;
  constexpr double kForTheOthers = 0.5;
  begin_after_ = now + kForTheOthers;
  gathering_since_ = now;
  phase_ = Phase::kGather;
}

void Membership::End(int code, const std::string& message) {
  phase_ = Phase::kOver;
  Tell({{"event", "ended"}, {"code", code}});
  outcome_ = {.code = code, .message = message};
}

// --- What hosts are told -------------------------------------------------------------------------

Order Membership::OrderFor(const Host& host) const {
  Order order = {.job = options_.job, .generation = generation_, .silence = options_.silence};
  if (phase_ == Phase::kOver) {
    order.command = Command::kEnd;
    return order;
  }
  if (phase_ != Phase::kFetch && phase_ != Phase::kRun) return order;
  order.newest = has_stepped_ ? begun_at_ : memory_step_;
  order.step = memory_step_;
  order.id = memory_id_;
  if (host.ranks == 0) return order;
  order.command = phase_ == Phase::kFetch ? Command::kFetch
                  : signal_ == 0          ? Command::kRun
                                          : Command::kSignal;
  order.files = host.files;
  order.first_rank = host.first_rank;
  order.ranks = host.ranks;
  order.world_size = world_size_;
  order.full_ranks = options_.ranks;
  order.interval = options_.interval;
  order.signal = signal_;
  for (const auto& [name, other] : hosts_) {
    if (other.ranks == 0 || other.first_rank != 0) continue;
    order.master_addr = other.address;
    order.master_port = other.report.free_port;
  }
  return order;
}

int64_t Membership::Slots() const {
  int64_t slots = 0;
  for (const auto& [name, host] : hosts_) slots += host.report.slots;
  return slots;
}

std::vector<Membership::Host*> Membership::HostsInOrder() {
  std::vector<Host*> ordered;
  for (const std::string& name : options_.hosts) {
    if (const auto at = hosts_.find(name); at != hosts_.end()) ordered.push_back(&at->second);
  }
  for (auto& [name, host] : hosts_) {
    if (!Expects(name)) ordered.push_back(&host);
  }
  return ordered;
}

void Membership::Tell(Json event) {
  if (!event.contains("step")) event["step"] = std::max<int64_t>(0, last_step_);
  events_.push_back(std::move(event));
}

std::vector<Json> Membership::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace tessera::tools
