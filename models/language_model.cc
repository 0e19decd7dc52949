#include "models/language_model.h"

#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::models {

Tensor AlignedTargets(const Bundle& in) {
  return in.has("targets") ? in.at("targets") : in.get("labels");
}

Tensor ShiftedTargets(const Bundle& in) {
  if (in.has("targets") || !in.has("labels")) return in.get("targets");
  const Tensor labels = in.at("labels");
  return Pad(Slice(labels, 1, 1, labels.size(1) - 1), 1, 0, 1, -100);
}

Tensor AtLogitPositions(const Tensor& h, const Bundle& in) {
  if (!in.has("logit_positions")) return h;
  const Tensor at = in.at("logit_positions");
  const Shape rows = {at.size(0), at.size(1), h.size(2)};
  return Gather(h, 1, Unsqueeze(at, 2).AsStrided(rows, {at.stride(0), at.stride(1), 0}, 0));
}

Bundle LanguageModelOutputs(nn::VocabParallelHead& head, const Tensor& h, const Tensor& targets,
                            const Bundle& in, const RunOptions& options) {
  const Tensor h_BTC = AtLogitPositions(h, in);
  const Tensor logits_BTV = head.Forward(h_BTC, ContextFor(in, options));
  Bundle out;
  if (options.keep_logits) {
    out.set("logits", head.Gather(logits_BTV));
    out.set("last_hidden_state", h_BTC);
  }
  if (targets.defined()) {
    out.set("loss", CrossEntropy(logits_BTV, targets,
                                 head.LossOptions({.reduction = options.loss_reduction,
                                                   .overwrite_logits = !options.keep_logits})));
  }
  return out;
}

}  // namespace tessera::models
