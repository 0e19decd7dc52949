// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/agent.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/file.h"
#include "dist/comm/tcp_socket.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "tools/elastic/child.h"
#include "tools/elastic/host_memory.h"
#include "tools/elastic/messages.h"
#include "train/run/elastic_run.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMemoryFolder[] = "/dev/shm";
constexpr std::chrono::milliseconds kBetweenReports{100};
// Seconds without a coordinator: before it has come, and after it has gone.
constexpr double kAwaitFirst = 600;
constexpr double kGiveUp = 60;

double SecondsSince(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// A port that is free now.
StatusOr<int> FreePort() {
  TESSERA_ASSIGN_OR_RETURN(const dist::Socket listener, dist::ListenOn(0, 1));
  return dist::PortOf(listener);
}

// The files of the agent's memory, for other agents, each answer on a thread of its own.
class FileServer {
 public:
  static StatusOr<std::unique_ptr<FileServer>> Start() {
    TESSERA_ASSIGN_OR_RETURN(net::HttpServer server,
                             net::HttpServer::Listen({.host = "0.0.0.0", .port = 0}));
    return std::unique_ptr<FileServer>(new FileServer(std::move(server)));
  }
  ~FileServer() {
    server_.Stop(std::chrono::milliseconds(0));
    thread_.join();
  }
  int port() const { return server_.port(); }
  void set_folder(const std::string& folder) {
    const std::lock_guard<std::mutex> guard(mutex_);
    folder_ = folder;
  }

 private:
  explicit FileServer(net::HttpServer server) : server_(std::move(server)) {
    thread_ = std::thread([this] {
      std::vector<std::future<void>> answers;
      server_.Serve([&](net::HttpExchange exchange) {
        std::erase_if(answers, [](const std::future<void>& answer) {
          return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        });
        answers.push_back(std::async(std::launch::async, [this, exchange = std::move(exchange)] {
          std::unique_lock<std::mutex> guard(mutex_);
          const std::string folder = folder_;
          guard.unlock();
          ServeFile(folder, exchange);
        }));
      });
    });
  }

  net::HttpServer server_;
  std::mutex mutex_;
  std::string folder_;
  std::thread thread_;
};

class Agent {
 public:
  Agent(const AgentOptions& options, FileServer* files) : options_(options), files_(files) {
    report_.host = options.host;
    report_.agent = Concat(getpid(), "-", std::random_device()());
    report_.slots = options.slots;
    report_.file_port = files->port();
  }
  ~Agent() { KillRanks(); }

  int Run();

 private:
  struct Rank {
    pid_t pid = -1;
    RankReport report;
    std::optional<Clock::time_point> stopped_since;
  };

  std::optional<Order> Ask();
  void Obey(const Order& order);
  void Prepare(const Order& order);
  Status OpenMemory(const Order& order);
  void Fetch(const Order& order);
  void StartRanks(const Order& order);
  std::vector<std::string> EnvironmentOf(const Order& order, int64_t local) const;
  void LookAtRanks();
  void KillRanks();
  void Fail(const Status& status);

  const AgentOptions options_;
  FileServer* const files_;
  AgentReport report_;
  std::map<int64_t, Rank> ranks_;
  std::optional<HostMemory> memory_;
  std::future<Status> fetched_;
  bool has_started_ = false;  // the ranks of this generation
  int64_t signalled_ = 0;     // the generation that was given a signal
  double silence_ = 10;
  bool has_heard_ = false;
  Clock::time_point heard_ = Clock::now();  // when a question was asked that has been answered
  std::optional<net::HttpClient> client_;
  bool is_over_ = false;
};

int Agent::Run() {
  while (!is_over_) {
    const Clock::time_point asked = Clock::now();
    LookAtRanks();
    if (const std::optional<Order> order = Ask()) {
      heard_ = asked;
      has_heard_ = true;
      Obey(*order);
    } else if (SecondsSince(heard_) > silence_ / 2) {
      KillRanks();
    }
    const double patience = silence_ / 2 + (has_heard_ ? kGiveUp : kAwaitFirst);
    if (SecondsSince(heard_) > patience) {
      std::cerr << Concat("error: host '", options_.host, "': no word from ", options_.coordinator,
                          " for ", patience, " s\n");
      return 1;
    }
    std::this_thread::sleep_until(asked + kBetweenReports);
  }
  return 0;
}

// nullopt: there was no answer.
std::optional<Order> Agent::Ask() {
  if (memory_) report_.memory = memory_->List();
  if (!client_) {
    const auto limit = std::chrono::milliseconds(static_cast<int64_t>(silence_ * 1000 / 4));
    StatusOr<net::HttpClient> opened =
        net::HttpClient::Open(options_.coordinator, {.timeout = limit});
    if (!opened.ok()) return std::nullopt;
    client_.emplace(*std::move(opened));
  }
  const StatusOr<net::HttpResponse> answer =
      client_->Send({.method = "POST", .path = "/agent", .body = ToText(report_)});
  if (!answer.ok() || answer->status != 200) {
    client_.reset();
    return std::nullopt;
  }
  StatusOr<Order> order = ParseOrder(answer->body);
  if (order.ok()) return *std::move(order);
  std::cerr << Concat("error: ", options_.coordinator, ": ", Message(order.status()), "\n");
  return std::nullopt;
}

void Agent::Obey(const Order& order) {
  silence_ = order.silence;
  if (order.command == Command::kEnd) {
    KillRanks();
    if (OpenMemory(order).ok()) memory_->Remove();  // also of an agent that was killed
    is_over_ = true;
    return;
  }
  const bool waits = order.command == Command::kWait;
  if (waits) KillRanks();
  if (!waits && order.generation != report_.generation) Prepare(order);
  if (report_.phase == HostPhase::kFailed) return;
  if (const Status opened = OpenMemory(order); !opened.ok()) {
    if (!waits) Fail(opened);  // when it matters, which may be never
    return;
  }
  if (waits) {
    report_.phase = HostPhase::kIdle;
    const Status removed = memory_->RemoveOthers(order.newest, order.step, order.id);
    if (!removed.ok()) Fail(removed);
    return;
  }
  if (order.command == Command::kFetch) return Fetch(order);
  if (report_.phase == HostPhase::kReady && !has_started_) StartRanks(order);
  // Before its first step a process may not have a handler yet.
  const bool has_stepped = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank.second.report.progress.step >= 0;
  });
  if (order.command != Command::kSignal || signalled_ == order.generation || !has_stepped) return;
  signalled_ = order.generation;
  for (const auto& [rank, child] : ranks_) {
    if (child.report.is_running) kill(child.pid, static_cast<int>(order.signal));
  }
}

Status Agent::OpenMemory(const Order& order) {
  if (memory_) return OkStatus();
  const char* const given = std::getenv("TESSERA_MEMORY_FOLDER");
  const std::string root = given != nullptr && *given != '\0' ? given
                           : IsDirectory(kMemoryFolder)       ? kMemoryFolder
                                                              : "/tmp";
  TESSERA_ASSIGN_OR_RETURN(memory_, HostMemory::Open(root, order.job, options_.host));
  files_->set_folder(memory_->folder());
  return OkStatus();
}

// What belongs to the generation before ends.
void Agent::Prepare(const Order& order) {
  KillRanks();
  ranks_.clear();
  report_.ranks.clear();
  report_.generation = order.generation;
  report_.phase = HostPhase::kIdle;
  report_.problem.clear();
  has_started_ = false;
  fetched_ = {};
  const StatusOr<int> port = FreePort();
  if (!port.ok()) return Fail(port.status());
  report_.free_port = *port;
}

// Beside the reports, which must not stop meanwhile.
void Agent::Fetch(const Order& order) {
  if (report_.phase != HostPhase::kIdle) return;
  if (!fetched_.valid()) {
    const Status removed = memory_->RemoveOthers(order.newest, order.step, order.id);
    if (!removed.ok()) return Fail(removed);
    fetched_ = std::async(std::launch::async,
                          [memory = &*memory_, step = order.step, files = order.files] {
                            return files.empty() ? OkStatus() : memory->Fetch(step, files);
                          });
  }
  if (fetched_.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) return;
  const Status fetched = fetched_.get();
  if (!fetched.ok()) return Fail(fetched);
  report_.phase = HostPhase::kReady;
}

void Agent::Fail(const Status& status) {
  report_.phase = HostPhase::kFailed;
  report_.problem = Message(status);
}

std::vector<std::string> Agent::EnvironmentOf(const Order& order, int64_t local) const {
  const train::ElasticRun elastic = {.folder = memory_->folder(),
                                     .host = options_.host,
                                     .interval = order.interval,
                                     .ranks = static_cast<int>(order.full_ranks),
                                     .restarted = order.generation > 1};
  std::vector<std::string> own = {Concat("RANK=", order.first_rank + local),
                                  Concat("WORLD_SIZE=", order.world_size),
                                  Concat("LOCAL_RANK=", local),
                                  Concat("LOCAL_WORLD_SIZE=", order.ranks),
                                  Concat("MASTER_ADDR=", order.master_addr),
                                  Concat("MASTER_PORT=", order.master_port),
                                  "TORCHELASTIC_USE_AGENT_STORE=False",
                                  Concat(train::ElasticRun::kVariable, "=", elastic.ToText())};
  if (!options_.gpu_ids.empty()) own.push_back("CUDA_VISIBLE_DEVICES=" + options_.gpu_ids);
  return own;
}

void Agent::StartRanks(const Order& order) {
  has_started_ = true;
  report_.phase = HostPhase::kRunning;
  for (int64_t local = 0; local < order.ranks; ++local) {
    const int64_t rank = order.first_rank + local;
    train::RemoveProgress(memory_->folder(), static_cast<int>(rank));
    const StatusOr<pid_t> pid = StartChild(options_.command, EnvironmentOf(order, local));
    if (!pid.ok()) {
      KillRanks();
      return Fail(pid.status());
    }
    ranks_[rank] = {.pid = *pid, .report = {.rank = rank}, .stopped_since = {}};
  }
  LookAtRanks();
}

// What each process does now, and how far it is.
void Agent::LookAtRanks() {
  report_.ranks.clear();
  for (auto& [number, rank] : ranks_) {
    RankReport& report = rank.report;
    if (const auto progress = train::ReadProgress(memory_->folder(), static_cast<int>(number))) {
      report.progress = *progress;
    }
    if (report.is_running) {
      if (!IsStopped(rank.pid)) {
        rank.stopped_since.reset();
      } else if (!rank.stopped_since) {
        rank.stopped_since = Clock::now();
      } else if (SecondsSince(*rank.stopped_since) > silence_ / 2) {
        report.reason = Concat("stopped for ", silence_ / 2, " s");
        kill(rank.pid, SIGKILL);
      }
      if (const std::optional<int> code = EndedChild(rank.pid)) {
        report.is_running = false;
        report.code = *code;
      }
    }
    report_.ranks.push_back(report);
  }
}

void Agent::KillRanks() {
  for (auto& [number, rank] : ranks_) {
    if (!rank.report.is_running) continue;
    if (const std::optional<int> ended = EndedChild(rank.pid)) {
      rank.report.code = *ended;
    } else {
      kill(rank.pid, SIGKILL);
      std::optional<int> code;
      while (!(code = EndedChild(rank.pid))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      rank.report.code = *code;
      rank.report.was_stopped = true;
    }
    rank.report.is_running = false;
  }
  if (!ranks_.empty()) LookAtRanks();
}

}  // namespace

int RunAgent(const AgentOptions& options) {
  // The coordinator has signals and passes them on.
  for (const int ignored : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) signal(ignored, SIG_IGN);
  StatusOr<std::unique_ptr<FileServer>> files = FileServer::Start();
  if (!files.ok()) {
    std::cerr << "error: " << Message(files.status()) << "\n";
    return 1;
  }
  return Agent(options, files->get()).Run();
}

}  // namespace tessera::tools
