#include "models/model.h"

#include "core/batch_keys.h"
#include "core/error.h"
#include "models/model_keys.h"
#include "nn/dropout.h"

namespace tessera::models {

std::pair<int, int> Model::block_range() const {
  const int end = build().end_block < 0 ? num_blocks() : build().end_block;
  return {build().first_block, end};
}

bool Model::HasBlock(int block) const {
  const auto [first, end] = block_range();
  return block >= first && block < end;
}

nn::ForwardContext ContextFor(const Bundle& in, const RunOptions& options) {
  nn::ForwardContext context = options.context;
  context.sequence_length = in.at(keys::kPositionIds).size(-1);
  return context;
}

Bundle Model::Run(const Bundle& inputs, const RunOptions& options) const {
  Bundle bundle = inputs;
  const auto [first, end] = block_range();
  for (const auto& [name, tensor] : inputs.entries()) {
    TESSERA_CHECK(first > 0 || inputs_.empty() || inputs_.has(name), "model", "'", name,
                  "' is no input of this model; inputs are: ", inputs_.Text());
  }
  for (int block = first; block < end; ++block) {
    bundle = RunBlock(block, std::move(bundle), options);
  }
  return bundle;
}

void Model::SetDropout(double p) {
  VisitModules([p](nn::Module& m) {
    if (auto* dropout = dynamic_cast<nn::Dropout*>(&m)) dropout->set_p(p);
  });
}

}  // namespace tessera::models
