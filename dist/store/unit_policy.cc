// SPDX-License-Identifier: Apache-2.0
#include "dist/store/unit_policy.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "base/error.h"

namespace tessera::dist {
namespace {

// "h.3": a member of a list.
bool IsListMember(const nn::Module& module) {
  const std::string& path = module.path();
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos || dot + 1 == path.size()) return false;
  return std::all_of(path.begin() + static_cast<std::ptrdiff_t>(dot) + 1, path.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string KindsIn(nn::Module& model) {
  std::set<std::string_view> kinds;
  model.VisitModules([&](nn::Module& module) { kinds.insert(module.kind()); });
  kinds.erase("");
  std::string list;
  for (const std::string_view kind : kinds) list += Concat(list.empty() ? "" : ", ", kind);
  return list;
}

class Planner {
 public:
  Planner(nn::Module& model, const ZeroOptions& options) : options_(options) {
    if (options.auto_wrap_classes.empty() && options.auto_wrap_min_params > 0) {
      WrapBySize(model);
    } else {
      WrapByKind(model);
    }
    for (const std::string& name : options.auto_wrap_classes) {
      TESSERA_CHECK(found_.count(name) > 0, "zero", "auto_wrap_classes names '", name,
                    "', and no module of the model is one; there are: ", KindsIn(model));
    }
    Assign(model, -1);
    std::vector<nn::Module*> around;
    AddUsers(model, &around);
  }
  UnitPlan Take() { return std::move(plan_); }

 private:
  void WrapByKind(nn::Module& module) {
    bool wraps = false;
    if (options_.auto_wrap_classes.empty()) {
      wraps = IsListMember(module);
    } else {
      const std::string_view kind = module.kind();
      for (const std::string& wanted : options_.auto_wrap_classes) wraps = wraps || kind == wanted;
      if (wraps) found_.emplace(kind);
    }
    if (wraps) wrapped_.insert(&module);
    if (wraps && options_.auto_wrap_classes.empty()) return;  // lists within blocks are theirs
    for (nn::Module* child : module.children()) WrapByKind(*child);
  }

  // Returns how many elements of the module no unit has. What has no kind only holds others: no
  // pass runs through it that could gather.
  int64_t WrapBySize(nn::Module& module) {
    int64_t left = 0;
    for (const auto& p : module.own_parameters()) {
      if (p->tied_to == nullptr) left += p->tensor.numel();
    }
    for (nn::Module* child : module.children()) left += WrapBySize(*child);
    if (left < options_.auto_wrap_min_params || module.kind().empty()) return left;
    wrapped_.insert(&module);
    return 0;
  }

  int64_t NewUnit(const std::string& name) {
    plan_.units.push_back({name, {}});
    return std::ssize(plan_.units) - 1;
  }

  // Tied parameters are units of their own: their uses lie apart.
  void Assign(nn::Module& module, int64_t unit) {
    if (wrapped_.count(&module) > 0)
      unit = NewUnit(module.path().empty() ? "model" : module.path());
    int64_t own = unit;
    for (const auto& p : module.own_parameters()) {
      // A use may be before its source.
      if (p->tied_to != nullptr || tied_.count(p.get()) > 0) continue;
      if (own < 0) own = NewUnit(module.path().empty() ? "model" : module.path());
      plan_.unit_of[p.get()] = own;
    }
    for (nn::Module* child : module.children()) Assign(*child, unit);
    for (const auto& p : module.own_parameters()) {
      if (p->tied_to == nullptr) continue;
      if (tied_.insert(p->tied_to).second) plan_.unit_of[p->tied_to] = NewUnit(p->tied_to->name);
    }
  }

  void AddUser(int64_t unit, nn::Module* user) {
    std::vector<nn::Module*>& users = plan_.units[static_cast<size_t>(unit)].users;
    if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
  }

  // A unit is used by the innermost wrapped module around a parameter's module, else by that.
  void AddUsers(nn::Module& module, std::vector<nn::Module*>* around) {
    const bool wraps = wrapped_.count(&module) > 0;
    if (wraps) around->push_back(&module);
    for (const auto& p : module.own_parameters()) {
      const nn::Parameter* source = p->tied_to != nullptr ? p->tied_to : p.get();
      AddUser(plan_.unit_of.at(source), around->empty() ? &module : around->back());
    }
    for (nn::Module* child : module.children()) AddUsers(*child, around);
    if (wraps) around->pop_back();
  }

  const ZeroOptions& options_;
  std::set<const nn::Module*> wrapped_;
  std::set<std::string, std::less<>> found_;
  std::set<const nn::Parameter*> tied_;
  UnitPlan plan_;
};

}  // namespace

UnitPlan PlanUnits(nn::Module& model, const ZeroOptions& options) {
  return Planner(model, options).Take();
}

}  // namespace tessera::dist
