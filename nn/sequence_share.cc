// SPDX-License-Identifier: Apache-2.0
#include "nn/sequence_share.h"

#include "core/placement.h"
#include "ops/view/view.h"

namespace tessera::nn {

SequenceShare GatheredTokens(const BuildContext& build, const ForwardContext& context) {
  if (context.cut_length == 0) return {};
  const Group& ranks = build.context_parallel;
  return {context.cut_length, SequenceRuns(context.cut_length, ranks->size(), ranks->rank())};
}

SequenceShare HiddenTokens(const BuildContext& build, const ForwardContext& context) {
  SequenceShare share = GatheredTokens(build, context);
  const Group& group = build.tensor_parallel;
  if (!build.sequence_parallel || group == nullptr || group->size() == 1) return share;
  if (share.is_whole()) share = {context.sequence_length, {{0, context.sequence_length}}};
  const Share mine = EvenShare(RunTokens(share.runs), group->size(), group->rank());
  share.runs = PartOfRuns(share.runs, mine.begin, mine.count);
  // Of a sequence shorter than the group.
  if (share.runs.empty()) share.runs.push_back({0, 0});
  return share;
}

Tensor DropShare(const Tensor& x, const DropoutOptions& given, const SequenceShare& share) {
  if (share.is_whole()) return tessera::Dropout(x, given);
  DropoutOptions options = given;
  if (options.global_shape.empty()) {
    options.global_shape = options.begin = x.shape();
    for (int d = 0; d < x.ndim(); ++d) options.begin[d] = 0;
  }
  options.global_shape[1] = share.length;
  std::vector<Tensor> parts;
  int64_t place = 0;
  for (const SequenceRun& run : share.runs) {
    options.begin[1] = run.begin;
    const Tensor part = share.runs.size() == 1 ? x : Contiguous(Slice(x, 1, place, run.count));
    parts.push_back(tessera::Dropout(part, options));
    place += run.count;
  }
  return parts.size() == 1 ? parts[0] : Cat(parts, 1);
}

}  // namespace tessera::nn
