// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "dist/pipeline/bundle_channel.h"
#include "dist/pipeline/simulator.h"
#include "models/model_keys.h"

namespace tessera::dist {
namespace {

using models::Bundle;
using models::RunOptions;
using Clock = std::chrono::steady_clock;

// A chunk's input as its blocks see it: a result of the tape, whose gradient is caught here.
Tensor Boundary(const Tensor& t, const std::shared_ptr<Tensor>& caught) {
  const Tensor boundary = t.Detach();
  Record("stage_input", {}, {boundary}, nullptr);
  AddGradHook(boundary, [caught](const Tensor& grad) {
    *caught = grad;
    return Tensor();
  });
  return boundary;
}

}  // namespace

struct PipelineExecutor::Parts {
  int chunks_per_rank;
  BundleChannel channel;
  std::map<int, Schedule> schedules = {};  // simulated, by number of micro-batches
  std::map<int, Schedule> forward_schedules = {};
};

// One run of a schedule on one rank.
class PipelineExecutor::Step {
 public:
  Step(PipelineExecutor* executor, const Schedule& schedule,
       const std::vector<Bundle>& micro_batches, const StepOptions& options)
      : executor_(*executor),
        schedule_(schedule),
        inputs_(micro_batches),
        options_(options),
        channel_(executor->parts_->channel) {
    TESSERA_CHECK(2 * schedule.num_chunks() * schedule.micro_batches < Stage::kFirstTag, "pipeline",
                  schedule.micro_batches, " micro-batches on ", schedule.num_chunks(),
                  " chunks are more than message tags can tell apart");
    places_.resize(schedule.ranks.size());
    for (size_t r = 0; r < schedule.ranks.size(); ++r) {
      for (const Action& a : schedule.ranks[r]) {
        const auto place = static_cast<int64_t>(places_[r].size());
        places_[r][{static_cast<int>(a.kind), a.chunk, a.micro_batch}] = place;
      }
    }
  }

  StepResult Run() {
    const int rank = executor_.stage_.rank();
    const Clock::time_point begin = Clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    for (const Action& action : schedule_.ranks[static_cast<size_t>(rank)]) {
      const double start = seconds();
      Take(action);
      if (executor_.options_.record_timeline) {
        SynchronizeDevice(executor_.stage_.device());
        result_.timeline.push_back({action, start, seconds()});
      }
    }
    channel_.Flush();
    for (const auto& [m, loss] : losses_) result_.losses.push_back(NumberOf(loss));
    for (auto& [m, bundle] : outputs_) result_.outputs.push_back(std::move(bundle));
    return std::move(result_);
  }

 private:
  // What is kept of a micro-batch on a chunk from its forward to its gradients.
  struct Live {
    Bundle in;                  // received or handed over, until the forward
    std::vector<Tensor> roots;  // outputs that differentiate, in the order they were sent
    std::vector<Tensor> grads;  // theirs, once they have come
    std::vector<std::shared_ptr<Tensor>> caught;  // gradients of the inputs, in their order
    WeightGradQueue weights;
  };

  void Take(const Action& a) {
    if (options_.before_pass && IsOfPass(a.kind)) options_.before_pass(a);
    switch (a.kind) {
      case ActionKind::kForward:
        return Forward(a);
      case ActionKind::kBackward:
        return Backpropagate(a, /*split=*/false);
      case ActionKind::kInputGradient:
        return Backpropagate(a, /*split=*/true);
      case ActionKind::kWeightGradient:
        return WeightGradients(a);
      case ActionKind::kSendActivation:
        channel_.Send(outgoing_.at(Key(a)), &Input(a),
                      Outward(a, 1, kActivation, ActionKind::kReceiveActivation));
        outgoing_.erase(Key(a));
        return;
      case ActionKind::kReceiveActivation:
        Arrive(a, channel_.Receive(&Input(a), At(a, -1, kActivation)));
        Settle(a, -1, ActionKind::kSendActivation);
        return;
      case ActionKind::kSendGradient:
        channel_.SendTensors(returning_.at(Key(a)),
                             Outward(a, -1, kGradient, ActionKind::kReceiveGradient));
        returning_.erase(Key(a));
        return;
      case ActionKind::kReceiveGradient:
        LiveOf(a).grads = channel_.ReceiveTensors(At(a, 1, kGradient));
        Settle(a, 1, ActionKind::kSendGradient);
        return;
    }
  }

  // --- Forward -----------------------------------------------------------------------------------

  void Arrive(const Action& a, const BundleChannel::Received& received) {
    Live& live = LiveOf(a);
    for (const BundleEntry& entry : received.layout) {
      Tensor t = *received.bundle.FindNamed(entry.name);
      if (entry.differentiates && GradEnabled()) {
        live.caught.push_back(std::make_shared<Tensor>());
        t = Boundary(t, live.caught.back());
      }
      live.in.SetNamed(entry.name, t);
    }
  }

  void Forward(const Action& a) {
    Live& live = LiveOf(a);
    if (a.chunk == 0) live.in = Input(a);
    const RunOptions run_options = options_.run_options(a.micro_batch);
    const Chunk& chunk = ChunkOf(a);
    Bundle out = chunk.run(live.in, run_options);
    live.in = Bundle();
    Count(1);
    if (a.chunk + 1 == schedule_.num_chunks()) {
      Finish(a, live, std::move(out));
      return;
    }
    for (const auto& [name, t] : out.entries()) {
      if (!IsLocalName(name) && t.defined() && RequiresGrad(t)) live.roots.push_back(t);
    }
    if (schedule_.stages > 1) {
      outgoing_[Key(a)] = std::move(out);
    } else {
      HandOver(a, std::move(out));
    }
    if (!GradEnabled()) lives_.erase(Key(a));
  }

  // The last chunk: its loss is the root of the backward pass.
  void Finish(const Action& a, Live& live, Bundle out) {
    if (options_.keep_outputs) {
      Bundle kept;
      for (const auto& [name, t] : out.entries()) kept.SetNamed(name, t.defined() ? t.Detach() : t);
      outputs_[a.micro_batch] = std::move(kept);
    }
    Tensor loss;
    if (options_.criterion) {
      loss = options_.criterion(
          out, options_.criterion_inputs ? options_.criterion_inputs(a.micro_batch) : Input(a));
    } else if (GradEnabled()) {
      loss = out.at(keys::kLoss);
    } else {
      loss = out.get(keys::kLoss);
    }
    if (loss.defined()) losses_[a.micro_batch] = loss.Detach();
    if (!GradEnabled()) {
      lives_.erase(Key(a));
      return;
    }
    live.roots = {options_.scale_loss ? options_.scale_loss(loss, a.micro_batch) : loss};
    live.grads = {Tensor()};
  }

  // To the next chunk of the same rank.
  void HandOver(const Action& a, Bundle out) {
    const Action next = {a.kind, a.micro_batch, a.chunk + 1};
    BundleChannel::Received received;
    for (const auto& [name, t] : out.entries()) {
      if (IsLocalName(name)) continue;
      received.layout.push_back({.name = name, .differentiates = t.defined() && RequiresGrad(t)});
      received.bundle.SetNamed(name, t);
    }
    Arrive(next, received);
  }

  // --- Backward ----------------------------------------------------------------------------------

  void Backpropagate(const Action& a, bool split) {
    Live& live = LiveOf(a);
    TESSERA_CHECK(live.grads.size() == live.roots.size(), "pipeline", "chunk ", a.chunk, " got ",
                  live.grads.size(), " gradients for ", live.roots.size(), " outputs");
    const bool last = a.chunk + 1 == schedule_.num_chunks();
    std::vector<Tensor> roots;
    std::vector<Tensor> grads;
    for (size_t i = 0; i < live.roots.size(); ++i) {
      if (!last && !live.grads[i].defined()) continue;  // nobody behind used it
      roots.push_back(live.roots[i]);
      grads.push_back(live.grads[i]);
    }
    if (!split) BeginGradients(a);
    BackwardOptions options;
    if (split) options = {.weight_queue = &live.weights, .queue_leaf_gradients = true};
    if (!roots.empty()) Backward(roots, grads, options);
    live.roots.clear();
    live.grads.clear();
    Return(a, live);
    if (!split) Release(a);
  }

  // The gradients of a chunk's inputs go to the chunk before it.
  void Return(const Action& a, Live& live) {
    if (a.chunk == 0) return;
    std::vector<Tensor> grads;
    for (const auto& caught : live.caught) grads.push_back(*caught);
    live.caught.clear();
    if (schedule_.stages > 1) {
      returning_[Key(a)] = std::move(grads);
    } else {
      LiveOf({a.kind, a.micro_batch, a.chunk - 1}).grads = std::move(grads);
    }
  }

  void WeightGradients(const Action& a) {
    BeginGradients(a);
    LiveOf(a).weights.Run();
    Release(a);
  }

  void BeginGradients(const Action& a) {
    if (options_.before_gradients) {
      options_.before_gradients(a.chunk / schedule_.stages, a.micro_batch);
    }
  }

  void Release(const Action& a) {
    lives_.erase(Key(a));
    Count(-1);
  }

  // --- Places ------------------------------------------------------------------------------------

  // What arrives for a forward pass is recorded as its first operation.
  static bool IsOfPass(ActionKind kind) {
    return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
           kind == ActionKind::kInputGradient || kind == ActionKind::kWeightGradient ||
           kind == ActionKind::kReceiveActivation;
  }

  enum Direction { kActivation, kGradient };
  using Place = std::pair<int, int>;

  static Place Key(const Action& a) { return {a.chunk, a.micro_batch}; }
  Live& LiveOf(const Action& a) { return lives_[Key(a)]; }
  const Bundle& Input(const Action& a) const { return inputs_[static_cast<size_t>(a.micro_batch)]; }
  const Chunk& ChunkOf(const Action& a) const {
    return executor_.stage_.chunks()[static_cast<size_t>(a.chunk / schedule_.stages)];
  }
  void Count(int change) {
    if (!GradEnabled()) return;
    live_ += change;
    result_.peak_live = std::max(result_.peak_live, live_);
  }

  // A message belongs to the cut between two chunks, known by the later one.
  BundleChannel::Address At(const Action& a, int neighbour, Direction direction) const {
    const int cut = std::max(a.chunk, a.chunk + neighbour);
    const int lane = 2 * cut + direction;
    return {.peer = schedule_.RankOf(a.chunk + neighbour),
            .lane = lane,
            .tag = lane * schedule_.micro_batches + a.micro_batch};
  }
  // Its ticket is the place of the receive among the receiver's actions.
  BundleChannel::Address Outward(const Action& a, int neighbour, Direction direction,
                                 ActionKind receive) const {
    BundleChannel::Address to = At(a, neighbour, direction);
    to.ticket = PlaceOf(to.peer, receive, a, neighbour);
    return to;
  }
  // A message that has come was sent after all that its sender had received before: those messages
  // need not be kept any longer.
  void Settle(const Action& a, int neighbour, ActionKind send) {
    const int peer = schedule_.RankOf(a.chunk + neighbour);
    channel_.Settle(peer, PlaceOf(peer, send, a, neighbour));
  }
  int64_t PlaceOf(int rank, ActionKind kind, const Action& a, int neighbour) const {
    return places_[static_cast<size_t>(rank)].at(
        {static_cast<int>(kind), a.chunk + neighbour, a.micro_batch});
  }

  PipelineExecutor& executor_;
  const Schedule& schedule_;
  const std::vector<Bundle>& inputs_;
  const StepOptions& options_;
  BundleChannel& channel_;
  // Of each rank: where in its list an action (kind, chunk, micro-batch) stands.
  std::vector<std::map<std::tuple<int, int, int>, int64_t>> places_;
  std::map<Place, Live> lives_;
  std::map<Place, Bundle> outgoing_;                // computed, not sent yet
  std::map<Place, std::vector<Tensor>> returning_;  // likewise
  std::map<int, Tensor> losses_;
  std::map<int, Bundle> outputs_;
  int live_ = 0;
  StepResult result_;
};

double NumberOf(const Tensor& t) {
  return t.device().is_meta() ? std::numeric_limits<double>::quiet_NaN() : t.Item();
}

// --- The executor --------------------------------------------------------------------------------

PipelineExecutor::PipelineExecutor(const Stage& stage, const ExecutorOptions& options)
    : stage_(stage),
      options_(options),
      parts_(new Parts{.chunks_per_rank = static_cast<int>(stage.chunks().size()),
                       .channel = BundleChannel(stage.group(), stage.device())}) {
  const int chunks = parts_->chunks_per_rank;
  const Tensor most = Tensor::FromVector<int64_t>({chunks, -chunks}, {2});
  if (stage.stages() > 1) stage.group()->AllReduce(most, ReduceOp::kMax)->Wait();
  TESSERA_CHECK(most.data<int64_t>()[0] == -most.data<int64_t>()[1], "pipeline",
                "ranks have different numbers of chunks, ", -most.data<int64_t>()[1], " to ",
                most.data<int64_t>()[0]);
}

PipelineExecutor::~PipelineExecutor() = default;

StatusOr<Schedule> PipelineExecutor::ScheduleFor(int micro_batches) const {
  TESSERA_ASSIGN_OR_RETURN(
      Schedule schedule,
      MakeSchedule(options_.schedule, {.stages = stage_.stages(),
                                       .chunks_per_rank = parts_->chunks_per_rank,
                                       .micro_batches = micro_batches}));
  TESSERA_RETURN_IF_ERROR(Simulate(schedule).status());
  return schedule;
}

StepResult PipelineExecutor::Run(const std::vector<Bundle>& micro_batches,
                                 const StepOptions& options) {
  const int count = static_cast<int>(micro_batches.size());
  auto found = parts_->schedules.find(count);
  if (found == parts_->schedules.end()) {
    StatusOr<Schedule> schedule = ScheduleFor(count);
    TESSERA_CHECK(schedule.ok(), "pipeline", Message(schedule.status()));
    found = parts_->schedules.emplace(count, *std::move(schedule)).first;
  }
  return Step(this, found->second, micro_batches, options).Run();
}

StepResult PipelineExecutor::Run(const Schedule& schedule, const std::vector<Bundle>& micro_batches,
                                 const StepOptions& options) {
  const Status sound = Simulate(schedule).status();
  TESSERA_CHECK(sound.ok(), "pipeline", Message(sound));
  TESSERA_CHECK(
      schedule.stages == stage_.stages() && schedule.chunks_per_rank == parts_->chunks_per_rank &&
          schedule.micro_batches == std::ssize(micro_batches),
      "pipeline", "the schedule is of ", schedule.stages, " stages, ", schedule.chunks_per_rank,
      " chunks per rank and ", schedule.micro_batches, " micro-batches, the step of ",
      stage_.stages(), ", ", parts_->chunks_per_rank, " and ", micro_batches.size());
  return Step(this, schedule, micro_batches, options).Run();
}

StepResult PipelineExecutor::Evaluate(const std::vector<Bundle>& micro_batches,
                                      const StepOptions& options) {
  if (micro_batches.empty()) return {};
  const NoGrad no_grad;
  const int count = static_cast<int>(micro_batches.size());
  auto found = parts_->forward_schedules.find(count);
  if (found == parts_->forward_schedules.end()) {
    StatusOr<Schedule> schedule = MakeForwardSchedule({.stages = stage_.stages(),
                                                       .chunks_per_rank = parts_->chunks_per_rank,
                                                       .micro_batches = count});
    TESSERA_CHECK(schedule.ok(), "pipeline", Message(schedule.status()));
    const Status sound = Simulate(*schedule).status();
    TESSERA_CHECK(sound.ok(), "pipeline", Message(sound));
    found = parts_->forward_schedules.emplace(count, *std::move(schedule)).first;
  }
  return Step(this, found->second, micro_batches, options).Run();
}

std::vector<double> PipelineExecutor::ShareLosses(const std::vector<double>& losses) {
  const int last = stage_.stages() - 1;
  if (last == 0) return losses;
  const Tensor count = Tensor::FromVector<int64_t>({std::ssize(losses)}, {1});
  stage_.group()->Broadcast(count, last)->Wait();
  std::vector<double> all = losses;
  all.resize(static_cast<size_t>(count.data<int64_t>()[0]));
  const Tensor values = Tensor::FromVector(all, {std::ssize(all)});
  if (!all.empty()) stage_.group()->Broadcast(values, last)->Wait();
  return values.ToVector<double>();
}

Bundle PipelineExecutor::ShareOutputs(const Bundle& outputs) {
  return parts_->channel.Broadcast(outputs, stage_.stages() - 1);
}

}  // namespace tessera::dist
