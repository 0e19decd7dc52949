// SPDX-License-Identifier: Apache-2.0
// `tessera diff`: where two runs, models, checkpoints or files of weights differ first.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/model_dump.h"
#include "tools/named_tensors.h"
#include "tools/settings.h"
#include "train/ranks/run_on_ranks.h"
#include "train/trace/compare_traces.h"

namespace tessera::tools {
namespace {

struct DiffFlags {
  std::string a;
  std::string b;
  std::optional<double> tolerance;
};

// With the digits that tell it from its neighbours.
std::string NumberText(double value, DType dtype) {
  char text[40];
  std::snprintf(text, sizeof(text), dtype == DType::kFloat64 ? "%.17g" : "%.9g", value);
  return text;
}
std::string NumberText(int64_t value, DType /*dtype*/) { return Concat(value); }

// How two tensors of one shape differ.
struct Difference {
  int64_t first = -1;  // element; -1: they are the same
  int64_t count = 0;
  std::string a;  // at `first`
  std::string b;
  double greatest = 0;     // of a difference of finite numbers
  bool all_finite = true;  // of the differences
};

// What is not a number is equal to itself. (A long double holds every int64_t.)
template <typename T>
double Apart(T a, T b) {
  if (a == b || (a != a && b != b)) return 0;
  return static_cast<double>(std::abs(static_cast<long double>(a) - static_cast<long double>(b)));
}

// Of what is finite.
double GreatestMagnitude(const std::vector<double>& values) {
  double greatest = 0;
  for (const double v : values) greatest = std::max(greatest, std::isfinite(v) ? std::abs(v) : 0);
  return greatest;
}

// Elements of type T; `tolerance` is a share of the greatest magnitude.
template <typename T>
Difference CompareAs(const Tensor& x, const Tensor& y, double tolerance) {
  const std::vector<T> xs = x.ToVector<T>(), ys = y.ToVector<T>();
  const double most = tolerance > 0 ? tolerance * std::max(GreatestMagnitude(x.ToVector<double>()),
                                                           GreatestMagnitude(y.ToVector<double>()))
                                    : 0;
  Difference difference;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double apart = Apart(xs[i], ys[i]);
    if (apart <= most) continue;
    if (difference.count++ == 0) {
      difference.first = static_cast<int64_t>(i);
      difference.a = NumberText(xs[i], x.dtype());
      difference.b = NumberText(ys[i], y.dtype());
    }
    difference.all_finite = difference.all_finite && std::isfinite(apart);
    if (std::isfinite(apart)) difference.greatest = std::max(difference.greatest, apart);
  }
  return difference;
}

Difference Compare(const Tensor& a, const Tensor& b, double tolerance) {
  const Tensor x = a.ContiguousCopy(), y = b.ContiguousCopy();
  if (x.dtype() == y.dtype() &&
      std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0) {
    return {};
  }
  const bool integers = !IsFloating(x.dtype()) && !IsFloating(y.dtype());
  return integers ? CompareAs<int64_t>(x, y, tolerance) : CompareAs<double>(x, y, tolerance);
}

// "element [2, 17] is 0.5 in a and 0.25 in b; 3 of 1,024 elements differ, by at most 0.25".
std::string ElementText(const Difference& d, const Tensor& x, const std::string& a,
                        const std::string& b) {
  const std::string numbers = Concat(" is ", d.a, " in ", a, " and ", d.b, " in ", b);
  if (x.ndim() == 0) return "it" + numbers;
  const std::string most =
      d.greatest > 0 ? Concat(", by at most ", d.greatest) : std::string();  // none is finite
  return Concat("element ", train::IndexOf(d.first, x.shape()), numbers, "; ",
                WithThousands(d.count), " of ", WithThousands(x.numel()), " elements differ", most,
                most.empty() || d.all_finite ? "" : " where both are finite");
}

// What differs is what was asked for; the line is on standard output.
Status Differs(const std::string& line) {
  TESSERA_RETURN_IF_ERROR(WriteOut(line + "\n"));
  return train::Reported(Internal(line));
}

// What names a tensor of several before its element: "input_ids ".
std::string NameAmong(const train::TracedTensor& found, const std::string& name) {
  if (found.kind == train::TracedTensor::Kind::kGradients) {
    return Concat("the gradient of ", name, ": ");
  }
  return name.empty() || name == found.name ? "" : name + " ";
}

// "element [2, 17] is ..." of the first tensor that differs; empty: none does.
std::string FirstElement(const train::TracedTensor& found,
                         const std::vector<train::RetakenTensor>& of_a,
                         const std::vector<train::RetakenTensor>& of_b, const DiffFlags& flags) {
  for (const train::RetakenTensor& x : of_a) {
    const auto other =
        std::find_if(of_b.begin(), of_b.end(), [&](const auto& t) { return t.name == x.name; });
    const std::string name = NameAmong(found, x.name);
    if (other == of_b.end()) return Concat(name, "is in ", flags.a, " alone");
    const Tensor& y = other->data;
    if (x.data.shape() != y.shape() || x.data.dtype() != y.dtype()) {
      return Concat(name.empty() ? "it " : name, "is ", x.data, " in ", flags.a, " and ", y, " in ",
                    flags.b);
    }
    const Difference d = Compare(x.data, y, 0);
    if (d.first >= 0) return Concat(name, ElementText(d, x.data, flags.a, flags.b));
  }
  return found.kind == train::TracedTensor::Kind::kGradients ? "no gradient differs" : "";
}

// "; element [2, 17] is ...", of the step taken again in both runs; or why it is not known.
StatusOr<std::string> ElementOfRuns(const train::TracedTensor& in_a,
                                    const train::TracedTensor& in_b, const DiffFlags& flags) {
  const auto of_a = train::Retake(flags.a, in_a);
  const auto of_b = of_a.ok() ? train::Retake(flags.b, in_b) : of_a;
  for (const auto& [taken, path] : {std::pair(&of_a, &flags.a), std::pair(&of_b, &flags.b)}) {
    if (!taken->ok()) {
      return Internal("the step cannot be taken again: ", Message(taken->status()));
    }
    if ((*taken)->empty()) return Internal("this program does not give the bits of ", *path);
  }
  const std::string element = FirstElement(in_a, *of_a, *of_b, flags);
  return element.empty() ? "" : "; " + element;
}

std::string ElementsOfRuns(const train::TraceComparison& found, const DiffFlags& flags) {
  if (!found.in_a || !found.in_b) return "";
  const auto element = ElementOfRuns(*found.in_a, *found.in_b, flags);
  if (!element.ok()) {
    return Concat("; which element is not known, since ", Message(element.status()));
  }
  if (!found.gradients_in_a || !found.gradients_in_b) return *element;
  const auto gradient = ElementOfRuns(*found.gradients_in_a, *found.gradients_in_b, flags);
  return gradient.ok() ? *element + *gradient
                       : Concat(*element, "; whether a gradient differs is not known, since ",
                                Message(gradient.status()));
}

// "; 2 steps are in runs/a alone".
std::string StepsAlone(int64_t steps, const std::string& run) {
  if (steps == 0) return "";
  return Concat("; ", steps, steps == 1 ? " step is in " : " steps are in ", run, " alone");
}

Status DiffRuns(const DiffFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const train::TraceComparison found,
                           train::CompareTraces(flags.a, flags.b));
  if (!found.difference.empty()) {
    return Differs(Concat(found.difference, ElementsOfRuns(found, flags), found.configurations));
  }
  std::string left_out;
  if (!found.operations_compared) {
    left_out = "; the layouts cut the model differently: operations are not compared";
  } else if (!found.backward_compared) {
    left_out = "; the backward passes run other operations, which are not compared";
  }
  return WriteOut(Concat("the same ", found.steps, found.steps == 1 ? " step" : " steps", left_out,
                         StepsAlone(found.only_in_a, flags.a), StepsAlone(found.only_in_b, flags.b),
                         "\n"));
}

// The elements in another shape of as many, or repeated where a dim is 1: rows that are all alike
// may be there once. nullopt: neither.
std::optional<Tensor> LaidOutAs(const Tensor& x, const Shape& shape) {
  const Tensor flat = x.ContiguousCopy();
  if (x.numel() == shape.numel()) {
    return flat.AsStrided(shape, ContiguousStrides(shape), flat.offset());
  }
  if (x.ndim() != shape.ndim()) return std::nullopt;
  Shape strides = ContiguousStrides(flat.shape());
  for (int d = 0; d < shape.ndim(); ++d) {
    if (x.size(d) == shape[d]) continue;
    if (x.size(d) != 1) return std::nullopt;
    strides[d] = 0;
  }
  return flat.AsStrided(shape, strides, flat.offset());
}

// A model beside what another program gave of it, which rounds otherwise.
Status DiffDump(const NamedTensors& dump, const std::string& model,
                std::optional<double> tolerance) {
  const double allowed = tolerance.value_or(1e-4);
  TESSERA_ASSIGN_OR_RETURN(const DumpTensors ours, TensorsLike(dump, model));
  for (const auto& [name, y] : ours.tensors) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor x, dump.Read(name));
    const std::optional<Tensor> alike = LaidOutAs(x, y.shape());
    if (!alike) {
      return Differs(Concat(name, ": is ", x, " in ", dump.path(), " and ", y, " in ", model));
    }
    const Difference d = Compare(*alike, y, allowed);
    if (d.first < 0) continue;
    return Differs(Concat(name, ": ", ElementText(d, *alike, dump.path(), model)));
  }
  std::string left_out;
  if (!ours.missing.empty()) {
    left_out =
        Concat("; not compared, since the model has no such modules: ",
               WithThousands(std::ssize(ours.missing)), ", ", ours.missing.front(), " first");
  }
  return WriteOut(
      Concat("the same ", ours.tensors.size(), " tensors within ", allowed, left_out, "\n"));
}

Status RunDiff(const DiffFlags& flags) {
  if (train::HasTrace(flags.a) && train::HasTrace(flags.b)) return DiffRuns(flags);
  for (const auto& [dump, model] : {std::pair(&flags.a, &flags.b), std::pair(&flags.b, &flags.a)}) {
    if (!PathExists(*dump) || IsDirectory(*dump) || !IsDirectory(*model)) continue;
    TESSERA_ASSIGN_OR_RETURN(const NamedTensors tensors, NamedTensors::Open(*dump));
    if (IsModelDump(tensors)) return DiffDump(tensors, *model, flags.tolerance);
  }
  const double tolerance = flags.tolerance.value_or(0);
  const bool traced = train::HasTrace(flags.a) || train::HasTrace(flags.b);
  TESSERA_ASSIGN_OR_RETURN(NamedTensors a, NamedTensors::Open(flags.a));
  TESSERA_ASSIGN_OR_RETURN(NamedTensors b, NamedTensors::Open(flags.b));
  std::string untraced;
  if (traced && a.is_checkpoint() && b.is_checkpoint()) {
    untraced = Concat("; ", train::HasTrace(flags.a) ? flags.b : flags.a,
                      " has no trace: only checkpoints are compared");
  }
  // Beside a model a checkpoint is one, too.
  if (a.is_checkpoint() && !b.is_checkpoint()) a = a.WeightsOfModel();
  if (b.is_checkpoint() && !a.is_checkpoint()) b = b.WeightsOfModel();
  const std::set<std::string> in_b(b.names().begin(), b.names().end());
  const std::set<std::string> in_a(a.names().begin(), a.names().end());
  std::string first;
  int64_t differing = 0;
  const auto note = [&](const std::string& line) {
    if (differing++ == 0) first = line;
  };
  for (const std::string& name : a.names()) {
    if (!in_b.contains(name)) {
      note(Concat(name, ": is in ", a.path(), " alone"));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const Tensor x, a.Read(name));
    TESSERA_ASSIGN_OR_RETURN(const Tensor y, b.Read(name));
    const bool alike = x.shape() == y.shape() && (x.dtype() == y.dtype() || tolerance > 0);
    if (!alike) {
      note(Concat(name, ": is ", x, " in ", a.path(), " and ", y, " in ", b.path()));
      continue;
    }
    const Difference d = Compare(x, y, tolerance);
    if (d.first < 0) continue;
    note(Concat(name, ": ", ElementText(d, x, a.path(), b.path())));
  }
  size_t all = in_a.size();
  for (const std::string& name : b.names()) {
    if (in_a.contains(name)) continue;
    note(Concat(name, ": is in ", b.path(), " alone"));
    ++all;
  }
  if (differing > 0) {
    return Differs(Concat(first, "; ", differing, " of ", all, " tensors differ", untraced));
  }
  return WriteOut(Concat("the same ", in_a.size(), " tensors",
                         tolerance > 0 ? Concat(" within ", tolerance) : "", untraced, "\n"));
}

}  // namespace

void AddDiffCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("diff", "Say where two runs, models or checkpoints differ first");
  using F = DiffFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add(
          "a", &F::a,
          "a model's folder, a file of weights, a checkpoint, a run's folder, or a dump of a model",
          {.type = "A"})
      .Add("b", &F::b, "likewise", {.type = "B"})
      .Add("tolerance", &F::tolerance,
           "how much numbers may differ, as a share of the greatest magnitude in their tensor; "
           "above "
           "0 their dtypes may differ, too",
           {.least = 0, .unset = "0; of a dump 1e-4"});
  command->footer(
      "Exits with 1 where they differ, after one line that says where.\n"
      "Example:\n  tessera diff runs/a/checkpoint-100 runs/b/checkpoint-100");
  RunWith<F>(command, state, std::move(table), {.by_place = {"a", "b"}, .required = {"a", "b"}},
             [](const CLI::App&, const F& flags) { return RunDiff(flags); });
}

}  // namespace tessera::tools
