// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/messages.h"

#include "nlohmann/json.hpp"

namespace tessera::train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankProgress, from_memory, begun_at, step, worked)

}  // namespace tessera::train

namespace tessera::tools {

using Json = nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(HostPhase, {{HostPhase::kIdle, "idle"},
                                         {HostPhase::kReady, "ready"},
                                         {HostPhase::kRunning, "running"},
                                         {HostPhase::kFailed, "failed"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Command, {{Command::kWait, "wait"},
                                       {Command::kFetch, "fetch"},
                                       {Command::kRun, "run"},
                                       {Command::kSignal, "signal"},
                                       {Command::kEnd, "end"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, rank, is_running, code, was_stopped, reason,
                                   progress)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentReport::Files, id, here, all)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentReport, host, agent, slots, file_port, free_port,
                                   generation, phase, problem, ranks, memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Order, command, job, generation, silence, newest, step, id,
                                   files, first_rank, ranks, world_size, full_ranks, interval,
                                   master_addr, master_port, signal)

namespace {

template <typename T>
StatusOr<T> Parse(const std::string& text, const char* what) {
  try {
    return Json::parse(text).get<T>();
  } catch (const Json::exception& error) {
    return InvalidArgument("this is not ", what, ": ", error.what());
  }
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ToText(const AgentReport& report) { return Dump(report); }
StatusOr<AgentReport> ParseReport(const std::string& text) {
  return Parse<AgentReport>(text, "an agent's report");
}
std::string ToText(const Order& order) { return Dump(order); }
StatusOr<Order> ParseOrder(const std::string& text) {
  return Parse<Order>(text, "a coordinator's order");
}

}  // namespace tessera::tools
