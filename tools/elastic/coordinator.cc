// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/coordinator.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "net/http/http_server.h"
#include "tools/elastic/child.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr double kBetweenStarts = 2;  // seconds, of a host's agent
constexpr double kForAgents = 5;      // seconds that agents have to end

std::atomic<int> stop_signal{0};

double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

std::string NewJob() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof(text), "%08x%08x", random(), random());
  return text;
}

// This machine's address as `host` sees it: the address of the interface that leads to the host.
// The coordinator listens on IPv4 alone.
StatusOr<std::string> AddressTowards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), "9", &hints, &found);
  if (error != 0) return NotFound("host '", host, "': no IPv4 address: ", gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM, 0);
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST];
  const bool is_known = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text),
                                    nullptr, 0, NI_NUMERICHOST) == 0;
  if (fd >= 0) close(fd);
  if (!is_known) return NotFound("host '", host, "': no address of this machine leads to it");
  return std::string(text);
}

// What a person reads of an event.
std::string LineOf(const Json& event) {
  const std::string& kind = event["event"].get_ref<const std::string&>();
  const auto text = [&](const char* key) {
    return event[key].is_string() ? event[key].get<std::string>() : event[key].dump();
  };
  const std::string ranks = event.contains("ranks") ? event["ranks"].dump() : "";
  if (kind == "joined") return Concat("host ", text("host"), " joined (", text("slots"), " slots)");
  if (kind == "left" && ranks.empty()) {
    return Concat("host ", text("host"), " left: ", text("reason"));
  }
  if (kind == "left") {
    return Concat("ranks ", ranks, " of host ", text("host"), " left after step ", text("step"),
                  ": ", text("reason"));
  }
  if (kind == "started") {
    std::string line = Concat("start ", text("generation"), ": ", ranks, " ranks from step ",
                              text("step"), ", from ", text("from"));
    if (event.contains("seconds")) {
      line += Concat("; ", text("lost_steps"), " steps and ", text("seconds"), " s were lost");
    }
    return line;
  }
  if (kind == "slow") {
    return Concat("rank ", ranks, " of host ", text("host"), " is slow: a step took it ",
                  text("seconds_of_step"), " s, the others ", text("median"), " s");
  }
  return event.dump();
}

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, net::HttpServer server)
      : options_(options),
        server_(std::move(server)),
        members_(WithJob(options.members), Now()),
        thread_([this] { Serve(); }) {}
  ~Coordinator() {
    server_.Stop(std::chrono::milliseconds(0));
    thread_.join();
  }

  StatusOr<int> Run();

 private:
  struct Started {
    pid_t pid = -1;
    double since = -kBetweenStarts;
    std::string address;       // of this machine, as the host sees it
    bool has_removed = false;  // what its run left on the host
  };

  static MembershipOptions WithJob(MembershipOptions members) {
    members.job = NewJob();
    return members;
  }
  void Serve();
  Status StartAgents();
  void LookAtAgents();
  void TellEvents();
  void EndAgents();

  const CoordinatorOptions options_;
  net::HttpServer server_;
  std::mutex mutex_;  // guards members_
  Membership members_;
  std::map<std::string, Started> agents_;
  std::ofstream events_;
  std::thread thread_;
};

void Coordinator::Serve() {
  server_.Serve([this](net::HttpExchange exchange) {
    const net::HttpRequest& request = exchange.request();
    const StatusOr<AgentReport> report = ParseReport(request.body);
    if (request.method != "POST" || request.path != "/agent" || !report.ok()) {
      exchange.Respond(net::ErrorResponse(400, "agents of an elastic run report here"));
      return;
    }
    const std::string& peer = exchange.peer();
    const std::string address = peer.substr(0, peer.rfind(':'));
    std::unique_lock<std::mutex> guard(mutex_);
    const Order order = members_.Report(*report, address, Now());
    guard.unlock();
    exchange.Respond({.body = ToText(order)});
  });
}

// Those that are not running, each a while after the last time.
Status Coordinator::StartAgents() {
  for (const AgentStart& agent : options_.agents) {
    Started& started = agents_[agent.host];
    if (started.pid > 0 || started.has_removed) continue;
    if (Now() - started.since < kBetweenStarts) continue;
    const bool is_first = started.address.empty();
    if (is_first) {
      started.address = agent.toward.empty() ? "127.0.0.1" : options_.address;
      if (started.address.empty()) {
        TESSERA_ASSIGN_OR_RETURN(started.address, AddressTowards(agent.toward));
      }
    }
    std::vector<std::string> command = agent.command;
    for (std::string& word : command) {
      word = absl::StrReplaceAll(
          word, {{kCoordinatorUrl, Concat("http://", started.address, ":", server_.port())}});
    }
    started.since = Now();
    const StatusOr<pid_t> pid = StartChild(command, {});
    if (is_first) TESSERA_RETURN_IF_ERROR(pid.status());
    if (pid.ok()) started.pid = *pid;
  }
  return OkStatus();
}

void Coordinator::LookAtAgents() {
  for (auto& [host, started] : agents_) {
    if (started.pid <= 0 || !EndedChild(started.pid)) continue;
    started.pid = -1;
    const std::lock_guard<std::mutex> guard(mutex_);
    members_.AgentEnded(host, Now());
  }
}

void Coordinator::TellEvents() {
  std::unique_lock<std::mutex> guard(mutex_);
  const std::vector<Json> events = members_.TakeEvents();
  guard.unlock();
  const double time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const Json& event : events) {
    Json row = {{"time", time}};
    row.update(event);
    events_ << row.dump() << std::endl;
    if (event["event"] != "ended") std::cerr << "launch: " << LineOf(event) << std::endl;
  }
}

// They have been told to. One that was killed before it had removed its memory starts again.
void Coordinator::EndAgents() {
  const double until = Now() + kForAgents;
  bool any = true;
  while (any && Now() < until) {
    any = false;
    for (auto& [host, started] : agents_) {
      if (started.pid > 0) {
        const std::optional<int> code = EndedChild(started.pid);
        if (code) started.pid = -1;
        started.has_removed = code == 0;
      }
      any = any || !started.has_removed;
    }
    if (any) (void)StartAgents();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const auto& [host, started] : agents_) {
    if (started.pid > 0) kill(started.pid, SIGKILL);
  }
}

StatusOr<int> Coordinator::Run() {
  TESSERA_RETURN_IF_ERROR(MakeDirectories(options_.folder));
  const std::string path = JoinPath(options_.folder, "events.jsonl");
  events_.open(path, options_.begins_afresh ? std::ios::trunc : std::ios::app);
  if (!events_) return SystemFailure(errno, path, ": cannot write");
  std::optional<Membership::Outcome> outcome;
  while (!outcome) {
    TESSERA_RETURN_IF_ERROR(StartAgents());
    LookAtAgents();
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (const int number = stop_signal.exchange(0)) members_.Stop(number);
      members_.Advance(Now());
      outcome = members_.outcome();
    }
    TellEvents();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EndAgents();
  if (!outcome->message.empty()) std::cerr << "error: " << outcome->message << std::endl;
  return outcome->code;
}

}  // namespace

StatusOr<int> RunCoordinator(const CoordinatorOptions& options) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action {};
    action.sa_handler = [](int received) { stop_signal = received; };
    sigaction(number, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);
  const bool alone = std::all_of(options.agents.begin(), options.agents.end(),
                                 [](const AgentStart& agent) { return agent.toward.empty(); }) &&
                     options.agents.size() == options.members.hosts.size();
  TESSERA_ASSIGN_OR_RETURN(
      net::HttpServer server,
      net::HttpServer::Listen({.host = alone ? "127.0.0.1" : "0.0.0.0", .port = options.port}));
  return Coordinator(options, std::move(server)).Run();
}

}  // namespace tessera::tools
