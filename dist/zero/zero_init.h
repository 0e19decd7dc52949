// Building a model of which no rank ever holds the whole (DeepSpeed's `zero.Init`, Colossal-AI's
// `ZeroInitContext`).
//
//   ZeroInitContext sharded(mesh.dp(), {.shards_on = Device::Host()});
//   build.on_parameter = sharded.on_parameter();
//   build.on_loaded = sharded.on_loaded();          // for weights read from files
//   auto model = models::BuildModel(config, build);
//   ZeroEngine zero({model.get()}, ..., {.stage = 3});
//
// A parameter is cut as soon as it has its first values: this rank keeps 1/N of it, and its storage
// gives its bytes back. Until an engine takes over, elements that are asked for are gathered
// (a collective); what was so gathered, or written to, is cut again by `Reshard`, by on_loaded, and
// before the next parameter is made. Peak memory is this rank's shards and the largest parameter.
// The context may end before the model does.
#ifndef TESSERA_DIST_ZERO_ZERO_INIT_H_
#define TESSERA_DIST_ZERO_ZERO_INIT_H_

#include <functional>
#include <memory>

#include "core/communicator.h"
#include "nn/module.h"

namespace tessera::dist {

struct ZeroInitOptions {
  // Where shards live: Device::Host() off-loads them from the beginning; unset: with the parameter.
  std::optional<Device> shards_on = std::nullopt;
};

class ZeroInitContext {
 public:
  ZeroInitContext(std::shared_ptr<Communicator> group, const ZeroInitOptions& options);

  // For nn::BuildContext::on_parameter.
  std::function<void(nn::Parameter&)> on_parameter() const;
  // For nn::BuildContext::on_loaded: the parameter's values were written.
  std::function<void(nn::Parameter&)> on_loaded() const;
  // Cuts again whatever is whole.
  void Reshard() const;

 private:
  class Shards;
  std::shared_ptr<Shards> shards_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_ZERO_INIT_H_
