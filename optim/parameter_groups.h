// SPDX-License-Identifier: Apache-2.0
// Which parameters decay.
//
//   std::vector<ParameterGroup> groups = SplitByDecay(parameters, {.weight_decay = 0.1});
//   AdamW optimizer(groups, {.lr = 3e-4});
//
// Matrices and embeddings (ndim >= 2) decay; biases and norms (ndim < 2) do not, as nanoGPT's and
// Megatron-LM's recipes for GPT have it. Two names go before ndim, as in Hugging Face's Trainer:
// T5's table `relative_attention_bias` is a bias and does not decay, and DoRA's
// `lora_magnitude_vector` is neither bias nor norm and decays. Names in the options go before all.
// To be applied to the model's parameters before any flattening into shards, which would make
// everything one-dimensional.
#ifndef TESSERA_OPTIM_PARAMETER_GROUPS_H_
#define TESSERA_OPTIM_PARAMETER_GROUPS_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/parameter.h"

namespace tessera::optim {

struct DecayOptions {
  double weight_decay = 0;
  // Name patterns that go before these rules, `no_decay` first: "*" stands for any run of
  // characters, and the whole name must match ("*.wpe.weight", "*norm*").
  std::vector<std::string> no_decay = {};
  std::vector<std::string> decay = {};
};

// The groups "decay" and "no_decay" (weight_decay 0), each in the given order; an empty one is left
// out.
std::vector<ParameterGroup> SplitByDecay(const std::vector<Parameter>& parameters,
                                         const DecayOptions& options);

// The same with a rule of one's own in the place of names and ndim.
//
//   AdamW optimizer(SplitByDecay(ParametersOf(net), 0.1, [](const Parameter& p) {
//                     return p.tensor.ndim() >= 2 && !p.table;
//                   }), {.lr = 3e-4});
std::vector<ParameterGroup> SplitByDecay(const std::vector<Parameter>& parameters,
                                         double weight_decay,
                                         const std::function<bool(const Parameter&)>& decays);

// A group and what is in it.
struct GroupRule {
  std::string name;
  std::function<bool(const Parameter&)> takes;  // nullptr: every one
  double weight_decay = 0;
  double lr_scale = 1;
};
// One group for each rule, in their order, without those that would be empty. A parameter is in the
// first group that takes it; one that none takes throws Error with its name.
std::vector<ParameterGroup> GroupBy(const std::vector<Parameter>& parameters,
                                    const std::vector<GroupRule>& rules);

// Whether the whole name matches a pattern of characters and "*".
bool MatchesPattern(std::string_view name, std::string_view pattern);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_PARAMETER_GROUPS_H_
