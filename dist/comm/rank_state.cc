// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rank_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_text.h"
#include "base/status.h"

namespace tessera::dist {
namespace {

using nlohmann::json;

constexpr auto kReplace = json::error_handler_t::replace;

// "A: rank 1; B: ranks 0 and 2" in the form "rank 1 <verb> A, but ranks 0 and 2 <verb> B": those
// who are fewer first.
std::string Contrast(const std::vector<std::pair<int, std::string>>& calls, const char* one,
                     const char* many) {
  std::map<std::string, std::vector<int>> by_text;
  for (const auto& [rank, text] : calls) by_text[text].push_back(rank);
  std::vector<std::pair<std::vector<int>, std::string>> parts;
  for (const auto& [text, ranks] : by_text) parts.emplace_back(ranks, text);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.size(), a.first) < std::pair(b.first.size(), b.first);
  });
  std::string line;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) line += i + 1 == parts.size() ? ", but " : "; ";
    line +=
        Concat(RankList(parts[i].first), parts[i].first.size() == 1 ? one : many, parts[i].second);
  }
  return line;
}

const WaitState* WaitOfThread(const RankState& state, uint64_t thread) {
  for (const WaitState& wait : state.waits) {
    if (wait.thread == thread) return &wait;
  }
  return nullptr;
}

// The wait that keeps rank `m` from calling in `group`; nullptr if it is not blocked there.
const WaitState* Blocker(const RankState& state, const std::string& group) {
  const auto found = state.groups.find(group);
  const bool has_called = found != state.groups.end() && found->second.calls > 0;
  return WaitOfThread(state, has_called ? found->second.thread : state.main_thread);
}

}  // namespace

std::string EncodeState(const RankState& state) {
  json groups = json::object();
  for (const auto& [id, g] : state.groups) groups[id] = {g.calls, g.thread, g.last};
  json waits = json::array();
  for (const WaitState& w : state.waits) {
    waits.push_back({w.group, w.number, w.text, w.thread, w.seconds, w.members});
  }
  return json{
      {"ended", state.has_ended}, {"main", state.main_thread}, {"groups", groups}, {"waits", waits}}
      .dump(-1, ' ', false, kReplace);
}

std::optional<RankState> DecodeState(const std::string& text) {
  const json j = ParseJson(text, "a rank's state").value_or(nullptr);
  if (!j.is_object() || !j.contains("waits") || !j.contains("groups")) return std::nullopt;
  RankState state;
  state.has_ended = j.value("ended", false);
  state.main_thread = j.value("main", uint64_t{0});
  for (const auto& [id, g] : j["groups"].items()) {
    state.groups[id] = {g[0].get<int64_t>(), g[1].get<uint64_t>(), g[2].get<std::string>()};
  }
  for (const json& w : j["waits"]) {
    state.waits.push_back({w[0].get<std::string>(), w[1].get<int64_t>(), w[2].get<std::string>(),
                           w[3].get<uint64_t>(), w[4].get<double>(), w[5].get<std::vector<int>>()});
  }
  return state;
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::vector<int> MissingRanks(const WaitState& wait, int rank, const Snapshot& snapshot) {
  std::vector<int> missing;
  for (const int m : wait.members) {
    if (m == rank) continue;
    const std::optional<RankState>& state = snapshot[static_cast<size_t>(m)];
    if (wait.number > 0 && state.has_value()) {
      const auto found = state->groups.find(wait.group);
      if (found != state->groups.end() && found->second.calls >= wait.number) continue;
    }
    missing.push_back(m);
  }
  return missing;
}

std::optional<Finding> FindEndedRank(int rank, const Snapshot& snapshot) {
  std::set<int> ended;
  std::vector<std::pair<int, std::string>> waiting;
  bool is_own = false;
  for (size_t r = 0; r < snapshot.size(); ++r) {
    if (!snapshot[r].has_value()) continue;
    for (const WaitState& wait : snapshot[r]->waits) {
      for (const int m : MissingRanks(wait, static_cast<int>(r), snapshot)) {
        const auto& other = snapshot[static_cast<size_t>(m)];
        if (!other.has_value() || !other->has_ended) continue;
        ended.insert(m);
        if (waiting.empty() || waiting.back().first != static_cast<int>(r)) {
          waiting.emplace_back(r, wait.text);
        }
        is_own = is_own || static_cast<int>(r) == rank;
      }
    }
  }
  if (!is_own) return std::nullopt;
  Finding finding;
  for (const auto& [r, text] : waiting) finding.observers.push_back(r);
  const std::vector<int> guilty(ended.begin(), ended.end());
  finding.line = Concat(RankList(guilty), guilty.size() == 1 ? " has" : " have", " ended, but ",
                        Contrast(waiting, " waits in ", " wait in "));
  const auto& state = snapshot[static_cast<size_t>(guilty[0])];
  for (const WaitState& wait : snapshot[static_cast<size_t>(rank)]->waits) {
    const auto found = state->groups.find(wait.group);
    if (found == state->groups.end() || found->second.calls == 0) continue;
    finding.line +=
        Concat("; the last call of rank ", guilty[0], " there was ", found->second.last);
    break;
  }
  return finding;
}

std::optional<Finding> FindCircle(int rank, const Snapshot& snapshot) {
  struct Node {
    int rank;
    const WaitState* wait;
    std::vector<std::pair<int, const WaitState*>> blockers;
  };
  std::vector<Node> nodes;
  for (size_t r = 0; r < snapshot.size(); ++r) {
    if (!snapshot[r].has_value()) continue;
    for (const WaitState& wait : snapshot[r]->waits) {
      if (wait.number == 0) continue;
      Node node{static_cast<int>(r), &wait, {}};
      for (const int m : MissingRanks(wait, node.rank, snapshot)) {
        const auto& state = snapshot[static_cast<size_t>(m)];
        const WaitState* blocker = state.has_value() ? Blocker(*state, wait.group) : nullptr;
        if (blocker != nullptr) node.blockers.emplace_back(m, blocker);
      }
      nodes.push_back(std::move(node));
    }
  }
  // What waits for something that is not stuck is not stuck; what remains is.
  for (bool changed = true; changed;) {
    std::set<const WaitState*> stuck;
    for (const Node& node : nodes) stuck.insert(node.wait);
    changed = std::erase_if(nodes, [&](const Node& node) {
                return std::none_of(node.blockers.begin(), node.blockers.end(),
                                    [&](const auto& b) { return stuck.contains(b.second); });
              }) > 0;
  }
  std::vector<std::pair<int, std::string>> calls;
  Finding finding;
  for (const Node& node : nodes) {
    calls.emplace_back(node.rank, node.wait->text);
    finding.observers.push_back(node.rank);
  }
  if (std::find(finding.observers.begin(), finding.observers.end(), rank) ==
      finding.observers.end()) {
    return std::nullopt;
  }
  finding.line = Concat("ranks wait for each other: ", Contrast(calls, " is in ", " are in "));
  return finding;
}

Finding DescribeTimeout(const WaitState& wait, int rank, double limit, const Snapshot& snapshot) {
  Finding finding;
  const std::vector<int> missing = MissingRanks(wait, rank, snapshot);
  for (const int m : wait.members) {
    if (std::find(missing.begin(), missing.end(), m) == missing.end()) {
      finding.observers.push_back(m);
    }
  }
  if (wait.number == 0) finding.observers = {rank};
  finding.line = Concat("the limit of ", limit,
                        " s for a collective has passed: ", RankList(finding.observers),
                        finding.observers.size() == 1 ? " is" : " are", " in ", wait.text);
  if (missing.empty()) finding.line += "; all ranks have arrived, but it does not complete";
  for (const int m : missing) {
    const auto& state = snapshot[static_cast<size_t>(m)];
    finding.line += Concat(wait.number == 0 ? "; waiting for rank " : "; missing is rank ", m);
    if (!state.has_value()) {
      finding.line += ", which does not answer (stopped, or dead)";
    } else if (state->has_ended) {
      finding.line += ", which has ended";
    } else if (!state->waits.empty()) {
      finding.line += Concat(", which waits in ", state->waits[0].text);
    } else {
      const auto found = state->groups.find(wait.group);
      const bool has_called = found != state->groups.end() && found->second.calls > 0;
      finding.line += Concat(", which computes; its last call in this group was ",
                             has_called ? found->second.last : "none");
    }
  }
  return finding;
}

std::string DescribeMismatch(const std::string& group, const std::vector<int>& members,
                             const std::vector<std::string>& calls) {
  std::vector<std::pair<int, std::string>> by_rank;
  for (size_t i = 0; i < members.size(); ++i) by_rank.emplace_back(members[i], calls[i]);
  return Concat("collectives differ in group ", group, ": ",
                Contrast(by_rank, " calls ", " call "));
}

}  // namespace tessera::dist
