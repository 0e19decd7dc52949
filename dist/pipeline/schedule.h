// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data: what each rank does, in order.
//
//   TESSERA_ASSIGN_OR_RETURN(ScheduleKind kind, ParseSchedule("1f1b"));
//   TESSERA_ASSIGN_OR_RETURN(Schedule s, MakeSchedule(kind, {.stages = 4, .micro_batches = 8}));
//   for (const Action& a : s.ranks[0]) std::cout << a << "\n";      // "forward of micro-batch 0
//   ..."
//
// A model is cut into `stages * chunks_per_rank` chunks of consecutive blocks; chunk c lies on rank
// c mod stages. An action does one thing with one micro-batch on one chunk:
//   forward                the chunk's blocks
//   backward               its whole backward pass: gradients of its inputs and of its weights
//   input gradient         only the former, what the chunk before waits for; the latter wait in a
//   weight gradient        queue until this action
//   send/receive           activation: of a chunk's outputs / inputs; gradient: of its inputs /
//                          outputs. Chunks that are neighbours on one rank need none of these.
// Sends do not block, receives do. A micro-batch is live on a chunk from its forward until its
// gradients of the weights are computed. On every chunk, gradients of weights are computed in the
// order of the micro-batches, so that their sums have the bits of one process.
//
// With p stages, m micro-batches, F, B and W the times of a forward, an input gradient and a weight
// gradient of one rank's blocks, and transfers that take no time:
//   gpipe        all forwards, then all backwards       idle (p-1)(F+B+W)    live m
//                (Huang et al. 2019)
//   1f1b         a backward as soon as there is one     idle (p-1)(F+B+W)    live min(m, p)
//                (Narayanan et al. 2019, PipeDream-Flush)
//   interleaved  v chunks per rank (Narayanan et al.    idle (p-1)(F+B+W)/v  live p(1+(p-1)/(pv))
//                2021); m a multiple of p
//   zb-h1        1f1b whose weight gradients fill the   idle (p-1)(F+B-W)    live min(m, p)
//                gaps (Qi et al. 2023)
//   zb-h2        likewise, with more forwards ahead     idle (p-1)F if B=W   live min(m, 2p-1)
//                (Qi et al. 2023)                       between a rank's first action and its last
// `live` is the greatest of any rank, in micro-batches of a whole rank's blocks.
#ifndef TESSERA_DIST_PIPELINE_SCHEDULE_H_
#define TESSERA_DIST_PIPELINE_SCHEDULE_H_

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::dist {

enum class ActionKind {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // of the whole model
  friend bool operator==(const Action&, const Action&) = default;
};

// "forward of micro-batch 3 on chunk 1".
std::ostream& operator<<(std::ostream& out, const Action& action);

struct Schedule {
  std::string name;
  int stages = 1;           // ranks
  int chunks_per_rank = 1;  // v
  int micro_batches = 1;
  std::vector<std::vector<Action>> ranks;  // [stages]

  int num_chunks() const { return stages * chunks_per_rank; }
  int RankOf(int chunk) const { return chunk % stages; }
};

// What a schedule is made for.
struct PipelineShape {
  int stages = 1;
  int chunks_per_rank = 1;
  int micro_batches = 1;
};

// The values of the configuration's key `schedule`.
enum class ScheduleKind {
  kGPipe,
  kOneForwardOneBackward,
  kInterleaved,
  kZeroBubbleH1,
  kZeroBubbleH2
};

// As the configuration has them.
const std::vector<std::string>& ScheduleNames();
std::string_view ScheduleName(ScheduleKind kind);
// Also "zero_bubble" (zb-h1, whose memory is that of 1f1b). InvalidArgument lists the names.
StatusOr<ScheduleKind> ParseSchedule(std::string_view name);

// Whether a schedule fits a shape; InvalidArgument says in one line what it needs: numbers of at
// least 1; several chunks per rank with `interleaved` alone, and that with micro-batches that the
// stages divide.
Status CheckSchedule(ScheduleKind kind, const PipelineShape& shape);

// The schedule of every rank, transfers included.
StatusOr<Schedule> MakeSchedule(ScheduleKind kind, const PipelineShape& shape);
// Forwards only, for evaluation: every chunk takes the micro-batches in order.
StatusOr<Schedule> MakeForwardSchedule(const PipelineShape& shape);

// Puts the transfers into ranks that have forwards and gradients only: what a chunk computed is
// sent at once, what it needs is received right before. The actions of one step, for hand-made
// schedules.
void InsertTransfers(Schedule* schedule);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_SCHEDULE_H_
