// SPDX-License-Identifier: Apache-2.0
#include "train/trace/compare_traces.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "train/trace/digest.h"
#include "train/trace/digest_trace.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr size_t kDigits = 16;  // of a digest

// One digest, with what it is of.
struct Seen {
  std::string what;  // "forward: result 0 of 'linear' in h.0.mlp"
  std::string digest;
  size_t number = 0;  // in `operations`
};

// A rank's step.
struct RankStep {
  int64_t ranks = 0;  // of the run when it took the step; 0: an earlier version did not write it
  std::map<int64_t, std::string> batches;     // by micro-batch
  std::map<int64_t, std::vector<Seen>> seen;  // likewise
  std::shared_ptr<const Json> operations;     // shared by steps that have the same
  std::map<std::string, std::map<std::string, std::string>> tensors;  // by name and part
  std::string loss;
  std::string grad_norm;
};

struct Run {
  std::string path;
  Json config;
  std::map<int64_t, std::vector<RankStep>> steps;  // by rank; those that all ranks have written
};
using RankSteps = std::map<int64_t, std::map<int64_t, RankStep>>;  // by step and rank

uint64_t NumberOf(const std::string& digest) { return std::strtoull(digest.c_str(), nullptr, 16); }

TracedTensor TensorIn(TracedTensor::Kind kind, const Run& run, int64_t step, size_t rank,
                      uint64_t digest) {
  return {.kind = kind,
          .step = step,
          .rank = static_cast<int64_t>(rank),
          .ranks = std::ssize(run.steps.at(step)),
          .digest = digest};
}

// What was seen, so that it is found again.
TracedTensor OperationIn(const Run& run, int64_t step, size_t rank, const Seen& seen) {
  TracedTensor tensor =
      TensorIn(TracedTensor::Kind::kOperation, run, step, rank, NumberOf(seen.digest));
  const Json& operations = *run.steps.at(step)[rank].operations;
  const Json& operation = operations[seen.number];
  tensor.place = {
      .micro_batch = operation[0], .backward = operation[1] == "backward", .chunk = operation[2]};
  tensor.operation = operation[3];
  tensor.module = operation[4];
  tensor.gradient = operation[5] == "gradient";
  tensor.index = operation[6];
  for (size_t i = 0; i < seen.number; ++i) tensor.occurrence += operations[i] == operation ? 1 : 0;
  return tensor;
}

// What differs, and the two tensors where there are two.
struct Difference {
  std::string text = {};
  std::optional<TracedTensor> in_a = {}, in_b = {};

  explicit operator bool() const { return !text.empty(); }
};

std::string TextOf(const Json& operation) {
  const std::string module = operation[4];
  const bool gradient = operation[5] == "gradient";
  return Concat(operation[1].get<std::string>(), ": ",
                gradient ? "the gradient for input " : "result ", operation[6].get<int64_t>(),
                " of '", operation[3].get<std::string>(), "'",
                module.empty() ? "" : " in " + module);
}

// `latest`: the operations of the latest row that had any.
RankStep RankStepOf(const Json& row, const std::shared_ptr<const Json>& latest) {
  RankStep step;
  step.operations = latest;
  const Json& operations = *latest;
  step.ranks = row.value("ranks", int64_t{0});
  step.loss = row.value("loss", "");
  step.grad_norm = row.value("grad_norm", "");
  const Json batches = row.value("batches", Json::object());
  for (const auto& [number, digest] : batches.items()) {
    step.batches[std::strtoll(number.c_str(), nullptr, 10)] = digest;
  }
  const std::string digests = row.value("digests", "");
  for (size_t i = 0; i < operations.size() && (i + 1) * kDigits <= digests.size(); ++i) {
    // What is read where two runs differ is there, too: all seven parts, and the chunk's number.
    static_cast<void>(operations[i].at(6));
    static_cast<void>(operations[i].at(2).get<int64_t>());
    step.seen[operations[i][0].get<int64_t>()].push_back(
        {TextOf(operations[i]), digests.substr(i * kDigits, kDigits), i});
  }
  const Json tensors = row.value("tensors", Json::object());
  for (const auto& [name, parts] : tensors.items()) {
    for (const auto& [part, digest] : parts.items()) step.tensors[name][part] = digest;
  }
  return step;
}

Status ReadRank(const std::string& path, int64_t rank, RankSteps* steps) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  auto operations = std::make_shared<const Json>(Json::array());
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // a rank that was killed left it unfinished
    ++number;
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("step")) {
      return DataLoss(path, ":", number, ": is not a row of digests");
    }
    if (row.contains("operations")) operations = std::make_shared<const Json>(row["operations"]);
    try {
      (*steps)[row["step"].get<int64_t>()].try_emplace(rank, RankStepOf(row, operations));
    } catch (const Json::exception&) {
      return DataLoss(path, ":", number, ": is not a row of digests");
    }
  }
  return OkStatus();
}

// The ranks of a step that all of them have written; none: some have not. A run that was continued
// on fewer ranks has the old rows of the others, too.
std::vector<RankStep> StepOfAllRanks(std::map<int64_t, RankStep> ranks) {
  std::vector<RankStep> whole;
  for (auto& [rank, step] : ranks) {
    if (rank != std::ssize(whole)) return {};
    if (rank > 0 && rank >= whole.front().ranks && whole.front().ranks > 0) break;
    whole.push_back(std::move(step));
  }
  return std::ssize(whole) < whole.front().ranks ? std::vector<RankStep>() : whole;
}

StatusOr<Run> ReadRun(const std::string& path) {
  Run run;
  run.path = path;
  const StatusOr<std::string> config = ReadFile(JoinPath(path, "config.json"));
  if (config.ok()) run.config = Json::parse(*config, nullptr, /*allow_exceptions=*/false);
  RankSteps steps;
  int64_t files = 0;
  for (; PathExists(DigestFile(path, files)); ++files) {
    TESSERA_RETURN_IF_ERROR(ReadRank(DigestFile(path, files), files, &steps));
  }
  for (auto& [step, ranks] : steps) {
    const int64_t all = ranks.begin()->second.ranks;
    if (all > files) {
      return NotFound(DigestFile(path, files), ": no such file; step ", step, " had ", all,
                      " ranks");
    }
    std::vector<RankStep> whole = StepOfAllRanks(std::move(ranks));
    if (!whole.empty()) run.steps[step] = std::move(whole);
  }
  return run;
}

// Each tensor's digest, of all its parts; or which ranks hold the same part and differ.
std::map<std::string, uint64_t> WholeTensors(const std::vector<RankStep>& ranks,
                                             std::string* torn) {
  std::map<std::string, uint64_t> whole;
  std::map<std::pair<std::string, std::string>, std::pair<size_t, std::string>> known;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [name, parts] : ranks[r].tensors) {
      for (const auto& [part, digest] : parts) {
        const auto [first, is_new] = known.try_emplace({name, part}, r, digest);
        if (is_new) {
          whole[name] += NumberOf(digest);
        } else if (first->second.second != digest && torn->empty()) {
          *torn = Concat(name, " of rank ", r, " is not that of rank ", first->second.first);
        }
      }
    }
  }
  return whole;
}

Difference TensorDifference(const Run& a, const Run& b, int64_t step) {
  std::string torn_a, torn_b;
  const auto of_a = WholeTensors(a.steps.at(step), &torn_a);
  const auto of_b = WholeTensors(b.steps.at(step), &torn_b);
  if (torn_a != torn_b) {
    return {torn_a.empty() ? Concat(torn_b, " in ", b.path) : Concat(torn_a, " in ", a.path)};
  }
  for (const auto& [name, digest] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end()) return {Concat(name, " is in ", a.path, " alone")};
    if (other->second == digest) continue;
    Difference found = {.text = name + " differs"};
    found.in_a = TensorIn(TracedTensor::Kind::kState, a, step, 0, digest);
    found.in_b = TensorIn(TracedTensor::Kind::kState, b, step, 0, other->second);
    found.in_a->name = found.in_b->name = name;
    return found;
  }
  for (const auto& [name, digest] : of_b) {
    if (!of_a.contains(name)) return {Concat(name, " is in ", b.path, " alone")};
  }
  return {};
}

// Of each micro-batch the first rank that has it, and its digest.
std::map<int64_t, std::pair<size_t, std::string>> BatchesOf(const std::vector<RankStep>& ranks) {
  std::map<int64_t, std::pair<size_t, std::string>> batches;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [number, digest] : ranks[r].batches) batches.try_emplace(number, r, digest);
  }
  return batches;
}

Difference BatchDifference(const Run& a, const Run& b, int64_t step) {
  const auto of_a = BatchesOf(a.steps.at(step));
  const auto of_b = BatchesOf(b.steps.at(step));
  for (const auto& [number, mine] : of_a) {
    const auto other = of_b.find(number);
    if (other == of_b.end()) return {Concat("micro-batch ", number, " is in ", a.path, " alone")};
    if (other->second.second == mine.second) continue;
    Difference found = {.text = Concat("micro-batch ", number, ": the data differ")};
    found.in_a = TensorIn(TracedTensor::Kind::kData, a, step, mine.first, NumberOf(mine.second));
    found.in_b = TensorIn(TracedTensor::Kind::kData, b, step, other->second.first,
                          NumberOf(other->second.second));
    found.in_a->place.micro_batch = found.in_b->place.micro_batch = number;
    return found;
  }
  for (const auto& [number, theirs] : of_b) {
    if (!of_a.contains(number)) {
      return {Concat("micro-batch ", number, " is in ", b.path, " alone")};
    }
  }
  return {};
}

// Of the ranks that work on a micro-batch, by their order: its operations.
std::map<int64_t, std::vector<std::pair<size_t, const std::vector<Seen>*>>> ByMicroBatch(
    const std::vector<RankStep>& ranks) {
  std::map<int64_t, std::vector<std::pair<size_t, const std::vector<Seen>*>>> by;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [number, seen] : ranks[r].seen) by[number].emplace_back(r, &seen);
  }
  return by;
}

// The first of one list of operations.
std::optional<size_t> FirstDifference(std::span<const Seen> a, std::span<const Seen> b) {
  for (size_t i = 0; i < a.size() || i < b.size(); ++i) {
    if (i >= a.size() || i >= b.size() || a[i].what != b[i].what || a[i].digest != b[i].digest) {
      return i;
    }
  }
  return std::nullopt;
}

// Which operations of two runs stand for one another.
enum class Alike { kAll, kForward, kNone };

// How the model is cut decides which operations a rank has, and what an operation's result is;
// other keys move or add operations of the backward pass alone.
Alike AlikeOperations(const Run& a, const Run& b) {
  const auto value = [](const Run& run, const char* key) {
    return run.config.is_object() ? run.config.value(key, Json()) : Json();
  };
  const auto differ = [&](const char* key) { return value(a, key) != value(b, key); };
  for (const char* key : {"tp", "sequence_parallel", "pp", "num_model_chunks", "cp", "ep"}) {
    if (differ(key)) return Alike::kNone;
  }
  if (differ("schedule")) {
    const bool chunks =
        value(a, "schedule") == "interleaved" || value(b, "schedule") == "interleaved";
    return chunks ? Alike::kNone : Alike::kForward;
  }
  return differ("checkpoint_activations") ? Alike::kForward : Alike::kAll;
}

// Of a micro-batch's list, where the backward pass comes behind.
std::span<const Seen> ComparedOf(const std::vector<Seen>& seen, Alike alike) {
  if (alike == Alike::kAll) return seen;
  return {seen.begin(), std::find_if(seen.begin(), seen.end(),
                                     [](const Seen& s) { return s.what.starts_with("backward"); })};
}

Difference OperationDifference(const Run& a, const Run& b, int64_t step, Alike alike,
                               bool* compared) {
  const auto of_a = ByMicroBatch(a.steps.at(step));
  const auto of_b = ByMicroBatch(b.steps.at(step));
  for (const auto& [number, in_a] : of_a) {
    const auto found = of_b.find(number);
    if (found == of_b.end() || found->second.size() != in_a.size()) {
      *compared = false;
      continue;
    }
    // Of ranks that work side by side, the one whose list parts earliest.
    Difference difference;
    size_t earliest = 0;
    for (size_t k = 0; k < in_a.size(); ++k) {
      const std::span<const Seen> x = ComparedOf(*in_a[k].second, alike);
      const std::span<const Seen> y = ComparedOf(*found->second[k].second, alike);
      const std::optional<size_t> at = FirstDifference(x, y);
      if (!at || (difference && *at >= earliest)) continue;
      earliest = *at;
      difference = {Concat("rank ", in_a[k].first, ", micro-batch ", number, ", ")};
      if (*at < x.size() && *at < y.size() && x[*at].what == y[*at].what) {
        difference.text += x[*at].what + " differs";
        difference.in_a = OperationIn(a, step, in_a[k].first, x[*at]);
        difference.in_b = OperationIn(b, step, found->second[k].first, y[*at]);
      } else {
        difference.text +=
            Concat(*at < x.size() ? x[*at].what : "nothing more", " in ", a.path, ", ",
                   *at < y.size() ? y[*at].what : "nothing more", " in ", b.path);
      }
    }
    if (difference) return difference;
  }
  return {};
}

TracedTensor GradientsIn(const Run& run, int64_t step) {
  const std::string& norm = run.steps.at(step).front().grad_norm;
  return TensorIn(TracedTensor::Kind::kGradients, run, step, 0,
                  std::bit_cast<uint64_t>(std::strtod(norm.c_str(), nullptr)));
}

Difference NumberDifference(const Run& a, const Run& b, int64_t step) {
  const RankStep& x = a.steps.at(step).front();
  const RankStep& y = b.steps.at(step).front();
  const auto differ = [](const char* name, const std::string& v, const std::string& w) {
    return Difference{Concat(name, " is ", std::strtod(v.c_str(), nullptr), " and ",
                             std::strtod(w.c_str(), nullptr), " (", v, ", ", w, ")")};
  };
  if (x.loss == y.loss && x.grad_norm == y.grad_norm) return {};
  Difference found = x.loss != y.loss
                         ? differ("the loss", x.loss, y.loss)
                         : differ("the norm of the gradients", x.grad_norm, y.grad_norm);
  if (x.grad_norm == y.grad_norm) return found;
  found.in_a = GradientsIn(a, step);
  found.in_b = GradientsIn(b, step);
  return found;
}

// Beside where the runs are.
std::string ConfigurationDifference(const Run& a, const Run& b) {
  std::string text;
  if (!a.config.is_object() || !b.config.is_object()) return text;
  for (const auto& [key, value] : a.config.items()) {
    if (key == "out" || !b.config.contains(key) || b.config[key] == value) continue;
    text += Concat(text.empty() ? "; their configurations differ in " : ", ", key, " (",
                   value.dump(), ", ", b.config[key].dump(), ")");
  }
  return text;
}

// Steps that `run` has taken and `other` has not; where a run begins is no step.
int64_t StepsAlone(const Run& run, const Run& other) {
  return std::count_if(run.steps.begin(), run.steps.end(), [&](const auto& step) {
    return !step.second.front().loss.empty() && !other.steps.contains(step.first);
  });
}

}  // namespace

bool HasTrace(const std::string& out) { return PathExists(DigestFile(out, 0)); }

StatusOr<TraceComparison> CompareTraces(const std::string& path_a, const std::string& path_b) {
  TESSERA_ASSIGN_OR_RETURN(const Run a, ReadRun(path_a));
  TESSERA_ASSIGN_OR_RETURN(const Run b, ReadRun(path_b));
  const Alike alike = AlikeOperations(a, b);
  TraceComparison result;
  result.operations_compared = alike != Alike::kNone;
  result.backward_compared = alike == Alike::kAll;
  for (const auto& [step, ranks] : a.steps) {
    if (!b.steps.contains(step)) continue;
    Difference found;
    // What a run begins with is what another has after that step.
    const bool begins = ranks.front().loss.empty() || b.steps.at(step).front().loss.empty();
    if (!begins) {
      ++result.steps;
      found = BatchDifference(a, b, step);
      if (!found && alike != Alike::kNone) {
        found = OperationDifference(a, b, step, alike, &result.operations_compared);
      }
      if (!found) found = NumberDifference(a, b, step);
    }
    const bool is_state = !found;
    if (is_state) found = TensorDifference(a, b, step);
    if (!found) continue;
    result.difference = Concat(begins ? "before step " : "step ", begins ? step + 1 : step, ": ",
                               is_state && !begins ? "after the update " : "", found.text);
    result.configurations = ConfigurationDifference(a, b);
    if (is_state && !begins && found.in_a) {
      result.gradients_in_a = GradientsIn(a, step);
      result.gradients_in_b = GradientsIn(b, step);
    }
    result.in_a = std::move(found.in_a);
    result.in_b = std::move(found.in_b);
    return result;
  }
  if (result.steps == 0) {
    return InvalidArgument(path_a, " and ", path_b, ": no step is traced in both");
  }
  result.only_in_a = StepsAlone(a, b);
  result.only_in_b = StepsAlone(b, a);
  return result;
}

}  // namespace tessera::train
