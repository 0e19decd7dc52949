// SPDX-License-Identifier: Apache-2.0
#include "corpus/pipeline/pipeline.h"

#include <algorithm>

#include "base/file.h"
#include "base/json_text.h"
#include "base/nearest_name.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

StatusOr<const Step*> StepOf(const json& options, const std::string& where,
                             const std::vector<Step>& steps) {
  if (!options.is_object() || !options.contains("step") || !options["step"].is_string()) {
    return InvalidArgument(where, ": a step needs its name in \"step\"");
  }
  const std::string name = options["step"];
  const auto found = std::ranges::find(steps, name, &Step::name);
  if (found != steps.end()) return &*found;
  std::vector<std::string> names;
  for (const Step& step : steps) names.push_back(step.name);
  return InvalidArgument(where, ": unknown step '", name, "'", DidYouMean(name, names));
}

std::string DefaultOutput(const Step& step, const std::string& base) {
  switch (step.output) {
    case StepOutput::kPage:
      return base + ".html";
    case StepOutput::kTokens:
      return base;
    case StepOutput::kParts:
      return base + "-{}.jsonl.zst";
    default:
      return base + ".jsonl.zst";
  }
}

// What a step leaves for those behind it.
struct Flow {
  json input;  // null: has to be named
  json drops = json::array();
};

Status Complete(PlannedStep* planned, const std::string& folder, const std::string& where,
                Flow* flow) {
  json& options = planned->options;
  const Step& step = *planned->step;
  const std::string base = JoinPath(folder, planned->name);
  if (!options.contains("input")) {
    if (flow->input.is_null()) return InvalidArgument(where, ": input is missing");
    options["input"] = flow->input;
  }
  if (!options.contains("output")) options["output"] = DefaultOutput(step, base);
  if (!options["output"].is_string()) return InvalidArgument(where, ": output must be a text");
  const bool takes_drops = step.table->Find("drops") != nullptr;
  if (takes_drops && !options.contains("drops")) options["drops"] = flow->drops;
  if (step.drops && !options.contains("dropped")) options["dropped"] = base + ".dropped.tsv";
  if (step.drops && options["dropped"].is_string()) flow->drops.push_back(options["dropped"]);
  if (step.output == StepOutput::kDocuments) flow->input = json::array({options["output"]});
  if (step.output == StepOutput::kParts) flow->input = nullptr;
  return step.check(options, where);
}

}  // namespace

StatusOr<std::vector<PlannedStep>> PlanPipeline(const json& pipeline, const std::string& source,
                                                const std::vector<Step>& steps) {
  if (!pipeline.is_object()) return InvalidArgument(source, ": no JSON object");
  for (const auto& [key, value] : pipeline.items()) {
    if (key != "input" && key != "folder" && key != "steps") {
      return InvalidArgument(source, ": unknown key '", key, "'",
                             DidYouMean(key, {"input", "folder", "steps"}));
    }
  }
  const json folder = pipeline.value("folder", json());
  if (!folder.is_string()) return InvalidArgument(source, ": folder is missing, or no text");
  const json listed = pipeline.value("steps", json());
  if (!listed.is_array() || listed.empty()) {
    return InvalidArgument(source, ": steps is missing, or no list");
  }
  Flow flow;
  flow.input = pipeline.value("input", json());
  if (flow.input.is_string()) flow.input = json::array({flow.input});
  std::vector<PlannedStep> plan;
  for (size_t i = 0; i < listed.size(); ++i) {
    const std::string where = Concat(source, ": steps[", i, "]");
    TESSERA_ASSIGN_OR_RETURN(const Step* const step, StepOf(listed[i], where, steps));
    PlannedStep planned = {step, Concat(i < 9 ? "0" : "", i + 1, "-", step->name), listed[i]};
    planned.options.erase("step");
    if (planned.options.contains("input") && planned.options["input"].is_string()) {
      planned.options["input"] = json::array({planned.options["input"]});
    }
    TESSERA_RETURN_IF_ERROR(Complete(&planned, folder, where, &flow));
    plan.push_back(std::move(planned));
  }
  return plan;
}

StatusOr<Counts> RunPipeline(const std::string& path, const std::vector<Step>& steps,
                             const RunContext& context, bool overwrite) {
  TESSERA_ASSIGN_OR_RETURN(const json pipeline, ReadJsonFile(path, {.unique_keys = true}));
  TESSERA_ASSIGN_OR_RETURN(std::vector<PlannedStep> plan, PlanPipeline(pipeline, path, steps));
  TESSERA_RETURN_IF_ERROR(
      OnFirstRank(context, [&] { return MakeDirectories(pipeline["folder"].get<std::string>()); }));
  Counts all;
  for (size_t i = 0; i < plan.size(); ++i) {
    RunContext named = context;
    if (overwrite) plan[i].options["overwrite"] = true;
    if (context.progress) {
      named.progress = [&](const std::string& what, int64_t done, int64_t bytes) {
        context.progress(Concat(plan[i].name, ", ", what), done, bytes);
      };
    }
    const StatusOr<Counts> counts = plan[i].step->run(plan[i].options, named);
    if (!counts.ok()) {
      return Failure(counts.status().code(), plan[i].name, ": ", Message(counts.status()));
    }
    const auto of = [&](const char* name) {
      const auto found = counts->find(name);
      return found == counts->end() ? 0 : found->second;
    };
    if (context.say) context.say(Concat(plan[i].name, ": ", of("in"), " in, ", of("out"), " out"));
    if (i == 0) all["in"] = of("in");
    if (plan[i].step->output == StepOutput::kDocuments) all["out"] = of("out");
  }
  return all;
}

}  // namespace tessera::corpus
