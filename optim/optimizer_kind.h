// SPDX-License-Identifier: Apache-2.0
// What is known of an optimizer by its name: its options, and the rule that they make of it.
//
//   TESSERA_ASSIGN_OR_RETURN(const OptimizerKind* kind, FindOptimizerKind("lion"));
//   TESSERA_ASSIGN_OR_RETURN(
//       const std::shared_ptr<const UpdateRule> rule,
//       kind->Configure({{"betas", {0.9, 0.98}}}, "run.json"));
//   std::unique_ptr<Optimizer> optimizer = rule->Make(groups, /*lr=*/1e-4);
//
// An optimizer is a folder (optim/lion): a class with
//   using Options = LionOptions;                                       // with `lr` and `Table()`
//   static std::vector<StateKind> States(const Parameter&, const Options&);
//   static bool NeedsWhole(const Parameter&, const Options&);
//   Lion(std::vector<ParameterGroup> groups, const Options& options);
// and one line that makes it known:
//   TESSERA_REGISTER_OPTIMIZER(Lion, "lion", "the sign of a momentum (Chen et al. 2023)");
#ifndef TESSERA_OPTIM_OPTIMIZER_KIND_H_
#define TESSERA_OPTIM_OPTIMIZER_KIND_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "optim/update_rule.h"

namespace tessera::optim {

struct OptimizerKind {
  std::string name;  // as users write it
  std::string help;  // one line
  const OptionTable* options;
  // Refuses, naming `source`, unknown keys and values out of range.
  std::function<StatusOr<std::shared_ptr<const UpdateRule>>(const nlohmann::json& options,
                                                            const std::string& source)>
      Configure;
};

// By name. The error of an unknown one lists the known and suggests the nearest.
StatusOr<const OptimizerKind*> FindOptimizerKind(const std::string& name);
// All that are linked in, sorted.
std::vector<std::string> OptimizerNames();

// --- Implementation ------------------------------------------------------------------------------

// The rule of an optimizer class, for stores and engines that make the optimizer themselves.
template <typename O>
class UpdateRuleOf final : public UpdateRule {
 public:
  explicit UpdateRuleOf(typename O::Options options) : options_(std::move(options)) {}
  std::vector<StateKind> States(const Parameter& parameter) const override {
    return O::States(parameter, options_);
  }
  bool NeedsWhole(const Parameter& parameter) const override {
    return O::NeedsWhole(parameter, options_);
  }
  std::unique_ptr<Optimizer> Make(std::vector<ParameterGroup> groups, double lr) const override {
    typename O::Options options = options_;
    options.lr = lr;
    return std::make_unique<O>(std::move(groups), options);
  }

 private:
  const typename O::Options options_;
};

// Takes no memory: a host that loads a library could not be told that there was none.
class OptimizerRegistration {
 public:
  using Make = OptimizerKind (*)();
  explicit OptimizerRegistration(Make make);

 private:
  friend std::map<std::string, OptimizerKind> MakeOptimizerKinds();
  const Make make_;
  const OptimizerRegistration* const before_;
};

// What TESSERA_REGISTER_OPTIMIZER registers.
template <typename O>
OptimizerKind OptimizerKindOf(std::string name, std::string help) {
  using Options = typename O::Options;
  return {std::move(name), std::move(help), &Options::Table(),
          [](const nlohmann::json& json,
             const std::string& source) -> StatusOr<std::shared_ptr<const UpdateRule>> {
            TESSERA_ASSIGN_OR_RETURN(const Options options, ParseOptions<Options>(json, source));
            return std::make_shared<const UpdateRuleOf<O>>(options);
          }};
}

}  // namespace tessera::optim

#define TESSERA_REGISTER_OPTIMIZER(type, name, help)                             \
  static const ::tessera::optim::OptimizerRegistration tessera_optimizer_##type( \
      [] { return ::tessera::optim::OptimizerKindOf<type>((name), (help)); })

#endif  // TESSERA_OPTIM_OPTIMIZER_KIND_H_
