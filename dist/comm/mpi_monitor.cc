// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_monitor.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "dist/comm/mpi_runtime.h"

namespace tessera::dist {

MpiMonitor::MpiMonitor(MpiRuntime& runtime)
    : runtime_(runtime),
      buffer_(RankMonitor::kLongestAnswer),
      watch_({.rank = runtime.world_->rank,
              .size = runtime.world_->size,
              .check_collectives = runtime.options_.check_collectives,
              .collective_timeout = runtime.options_.collective_timeout,
              .send = [this](int rank, RankMonitor::Kind kind,
                             std::string text) { SendTo(rank, kind, std::move(text)); },
              .state = [this] { return OwnState(); },
              .waits = [this] { return Waits(false); }}) {
  Mpi().Comm_dup(Mpi().comm_world, &comm_);
  PostReceive();
}

void MpiMonitor::Close() {
  Mpi().Cancel(&receive_);
  Mpi().Wait(&receive_, MPI_STATUS_IGNORE);
}

void MpiMonitor::PostReceive() {
  Mpi().Irecv(buffer_.data(), static_cast<int>(buffer_.size()), Mpi().byte_type, MPI_ANY_SOURCE,
              MPI_ANY_TAG, comm_, &receive_);
}

std::vector<WaitState> MpiMonitor::Waits(bool blocked_only) const {
  std::vector<WaitState> waits;
  for (const MpiOperationPtr& operation : runtime_.in_flight_) {
    const MpiOperation& o = *operation;
    if (o.done || o.call.operation == "end") continue;
    if (!o.is_waited && (blocked_only || !o.call.is_collective())) continue;
    WaitState wait;
    wait.group = o.group->id;
    wait.number = o.call.number;
    wait.text = DescribeCall(o.call, o.group->name);
    wait.thread = std::hash<std::thread::id>()(o.thread);
    wait.seconds = SecondsSince(o.since);
    wait.members = o.call.is_collective()
                       ? o.group->world
                       : std::vector<int>{o.group->world[static_cast<size_t>(o.call.peer)]};
    waits.push_back(std::move(wait));
  }
  return waits;
}

RankState MpiMonitor::OwnState() const {
  RankState state;
  state.has_ended = has_ended_;
  state.main_thread = std::hash<std::thread::id>()(runtime_.main_thread_);
  for (const auto& [id, weak] : runtime_.groups_) {
    const auto group = weak.lock();
    if (group == nullptr) continue;
    state.groups[id] = {group->last_call.number, std::hash<std::thread::id>()(group->last_thread),
                        DescribeCall(group->last_call, group->name)};
  }
  state.waits = Waits(true);
  return state;
}

void MpiMonitor::SendTo(int rank, int tag, std::string text) {
  Outgoing& message = outgoing_.emplace_back();
  message.text = std::move(text);
  Mpi().Isend(message.text.data(), static_cast<int>(message.text.size()), Mpi().byte_type, rank,
              tag, comm_, &message.request);
}

void MpiMonitor::ReadMessages() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    Mpi().Test(&receive_, &flag, &status);
    if (flag == 0) return;
    int bytes = 0;
    Mpi().Get_count(&status, Mpi().byte_type, &bytes);
    const std::string text(buffer_.data(), static_cast<size_t>(bytes));
    PostReceive();
    watch_.Receive(status.MPI_SOURCE, static_cast<RankMonitor::Kind>(status.MPI_TAG), text);
  }
}

std::optional<std::string> MpiMonitor::Poll() {
  ReadMessages();
  std::erase_if(outgoing_, [](Outgoing& message) {
    int flag = 0;
    Mpi().Test(&message.request, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
  });
  double longest = 0;
  for (const MpiOperationPtr& o : runtime_.in_flight_) {
    if (o->call.operation != "end") longest = std::max(longest, SecondsSince(o->since));
  }
  return watch_.Poll(longest);
}

}  // namespace tessera::dist
