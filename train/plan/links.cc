// SPDX-License-Identifier: Apache-2.0
#include "train/plan/links.h"

#include <vector>

#include "base/error.h"

namespace tessera::train {
namespace {

const dist::Group& GroupOf(const dist::Mesh& mesh, const std::string& name) {
  for (const dist::Group* group : {&mesh.tp(), &mesh.dp(), &mesh.pp(), &mesh.cp(), &mesh.ep(),
                                   &mesh.edp(), &mesh.model(), &mesh.world()}) {
    if ((*group)->name() == name) return *group;
  }
  throw Error("plan", Concat("the mesh has no group '", name, "'"));
}

}  // namespace

void AddCall(const dist::CommCall& call, const dist::Mesh& mesh, SentBytes* sent) {
  if (call.sent == 0) return;
  const dist::Group& group = GroupOf(mesh, call.group);
  std::map<int, int64_t>& by_distance = (*sent)[call.group];
  const auto add = [&](int member, int64_t bytes) {
    const int distance = (member - group->rank() + group->size()) % group->size();
    if (bytes > 0) by_distance[distance] += bytes;
  };
  if (call.kind == dist::CommKind::kAllToAll) {
    for (size_t r = 0; r < call.sent_to.size(); ++r) add(static_cast<int>(r), call.sent_to[r]);
  } else if (call.kind == dist::CommKind::kSend) {
    add(call.peer, call.sent);
  } else {
    by_distance[1] += call.sent;
  }
}

std::map<int, int64_t> LinksOf(const SentBytes& sent, const dist::Mesh& mesh) {
  std::map<int, int64_t> links;
  for (const auto& [name, by_distance] : sent) {
    const dist::Group& group = GroupOf(mesh, name);
    for (const auto& [distance, bytes] : by_distance) {
      links[WorldRankOf(mesh, name, (group->rank() + distance) % group->size())] += bytes;
    }
  }
  return links;
}

int WorldRankOf(const dist::Mesh& mesh, const std::string& group, int member) {
  if (group == mesh.world()->name()) return member;
  int tp = mesh.tp()->rank(), dp = mesh.dp()->rank(), pp = mesh.pp()->rank();
  const int tp_size = mesh.tp()->size(), edp_size = mesh.edp()->size(), cp = mesh.cp()->size();
  if (group == "tp") {
    tp = member;
  } else if (group == "dp") {
    dp = member;
  } else if (group == "pp") {
    pp = member;
  } else if (group == "model") {
    pp = member / tp_size;
    tp = member % tp_size;
  } else if (group == "cp") {
    dp = dp / cp * cp + member;
  } else if (group == "ep") {
    dp = member * edp_size + dp % edp_size;
  } else if (group == "edp") {
    dp = dp / edp_size * edp_size + member;
  } else {
    throw Error("plan", Concat("the mesh has no group '", group, "'"));
  }
  const int place = dp % edp_size * mesh.ep()->size() + dp / edp_size;
  return (pp * mesh.dp()->size() + place) * tp_size + tp;
}

}  // namespace tessera::train
