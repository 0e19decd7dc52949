// SPDX-License-Identifier: Apache-2.0
#include "train/boost/coordinator.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "base/error.h"
#include "train/ranks/agreement.h"

namespace tessera::train {
namespace {

constexpr char kCoordinator[] = "coordinator";

void PrintLine(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

// What the executor of a block tells the others once it is through.
bool ShareSuccess(Communicator& group, int from, bool success) {
  const Tensor told = Tensor::FromVector<int32_t>({success ? 1 : 0}, {1});
  group.Broadcast(told, from)->Wait();
  return told.data<int32_t>()[0] == 1;
}

}  // namespace

PriorityScope::PriorityScope(dist::Group group, int executor_rank)
    : group_(std::move(group)),
      executor_rank_(executor_rank),
      exceptions_(std::uncaught_exceptions()) {
  TESSERA_CHECK(executor_rank >= 0 && executor_rank < group_->size(), kCoordinator,
                "there is no rank ", executor_rank, " to go first among ", group_->size());
  if (group_->rank() == executor_rank) return;
  TESSERA_CHECK(ShareSuccess(*group_, executor_rank, true), kCoordinator, "rank ", executor_rank,
                " of group ", group_->name(), " failed in the block that it went through first");
}

// The others may have ended meanwhile, which is theirs to tell.
PriorityScope::~PriorityScope() {
  if (group_->rank() != executor_rank_) return;
  try {
    ShareSuccess(*group_, executor_rank_, std::uncaught_exceptions() == exceptions_);
  } catch (const std::exception&) {
  }
}

Coordinator::Coordinator(const dist::Group& world) : Coordinator(world, FindRankPlace(*world)) {}

Coordinator::Coordinator(const dist::Group& world, const RankPlace& place)
    : world_(world),
      place_(place),
      node_(world->Split(place.local_leader, world->rank(), "node")) {}

Status Coordinator::RunWhere(bool mine, const std::function<Status()>& work) const {
  Status status;
  if (mine) {
    try {
      status = work();
    } catch (const std::exception& e) {
      status = Internal(e.what());
    }
  }
  return Agree(dist::Mesh(world_, {}), status);
}

Status Coordinator::OnMaster(const std::function<Status()>& work) const {
  return RunWhere(is_master(), work);
}

Status Coordinator::OnNodeMasters(const std::function<Status()>& work) const {
  return RunWhere(is_node_master(), work);
}

void Coordinator::PrintOnMaster(const std::string& text) const {
  if (is_master()) PrintLine(text);
}

void Coordinator::PrintOnNodeMaster(const std::string& text) const {
  if (is_node_master()) PrintLine(text);
}

}  // namespace tessera::train
