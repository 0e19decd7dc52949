// SPDX-License-Identifier: Apache-2.0
// What one rank does for all, or first (Colossal-AI's DistCoordinator).
//
//   TESSERA_ASSIGN_OR_RETURN(const dist::World world, dist::OpenWorld({}));
//   const Coordinator coordinator(world.communicator);
//   TESSERA_RETURN_IF_ERROR(coordinator.OnMaster([&] { return MakeData(path); }));  // others wait
//   {
//     const auto turn = coordinator.PriorityExecution();      // rank 0 goes through the block
//     first cache = OpenOrMake(path);
//   }
//   coordinator.PrintOnMaster(Concat("step ", step, ": loss ", loss));
//
// The master is rank 0 of the group. What concerns a run's loss is rather for
// `dist::Mesh::prints()`: tp rank 0 and dp rank 0 of the last pipeline stage, which has it.
//
// A rank that fails in what others wait for does not leave them waiting: they are told.
#ifndef TESSERA_TRAIN_BOOST_COORDINATOR_H_
#define TESSERA_TRAIN_BOOST_COORDINATOR_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "core/communicator.h"
#include "dist/mesh/mesh.h"
#include "train/ranks/rank_place.h"

namespace tessera::train {

// Lets one rank of a group go through a block before the others. The first to go is told from the
// scope's end; an exception that leaves the block there is an Error on the others, before they
// begin.
class PriorityScope {
 public:
  PriorityScope(dist::Group group, int executor_rank);
  ~PriorityScope();
  PriorityScope(const PriorityScope&) = delete;
  PriorityScope& operator=(const PriorityScope&) = delete;

 private:
  const dist::Group group_;
  const int executor_rank_;
  const int exceptions_;  // under way at the scope's beginning
};

class Coordinator {
 public:
  // Over all ranks of a world. Collective.
  explicit Coordinator(const dist::Group& world);
  // Where the machines are known.
  Coordinator(const dist::Group& world, const RankPlace& place);

  int rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  int local_rank() const { return place_.local_rank; }  // among this machine's
  bool is_master() const { return rank() == 0; }
  bool is_node_master() const { return local_rank() == 0; }

  // Runs `work` on the master; every rank returns when it is done, with its failure (an exception
  // is one), which is marked as all ranks' (train/ranks/agreement.h). Collective.
  Status OnMaster(const std::function<Status()>& work) const;
  // The same on every machine's first rank.
  Status OnNodeMasters(const std::function<Status()>& work) const;

  // A line on standard output. Not collective.
  void PrintOnMaster(const std::string& text) const;
  void PrintOnNodeMaster(const std::string& text) const;

  // Rank `executor_rank` first, then the others, who need not wait for one another. Collective.
  [[nodiscard]] PriorityScope PriorityExecution(int executor_rank = 0) const {
    return PriorityScope(world_, executor_rank);
  }
  // The same on every machine by itself: its rank `executor_local_rank` first.
  [[nodiscard]] PriorityScope NodePriorityExecution(int executor_local_rank = 0) const {
    return PriorityScope(node_, executor_local_rank);
  }
  // Returns once every rank has called it.
  void BlockAll() const { world_->Barrier(); }

 private:
  Status RunWhere(bool mine, const std::function<Status()>& work) const;

  const dist::Group world_;
  const RankPlace place_;
  const dist::Group node_;  // the ranks of this machine
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_BOOST_COORDINATOR_H_
