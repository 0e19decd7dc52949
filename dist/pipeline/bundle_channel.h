// SPDX-License-Identifier: Apache-2.0
// Bundles of tensors as messages between the stages of a pipeline.
//
//   BundleChannel channel(mesh.pp());
//   channel.Send(out, /*destination=*/1, tag, &micro_batch);        // does not wait
//   Bundle in = channel.Receive(/*source=*/0, tag, &micro_batch);   // off the tape
//   channel.Flush();                                                // all sends have arrived
//
// Any number of tensors of any dtype and shape. Names, shapes, dtypes and which tensors
// differentiate travel with them, but only when they are not those of the message before on the
// same lane; else a message is a number of two words and the elements. Names that begin with
// `local.` are left out (models/model.h), and so are tensors that are the very ones of `own` under
// the same name: every rank has the micro-batch and takes them from there.
//
// A gradient travels likewise: a list of tensors, some of them undefined.
//
// Messages with one (source, tag) arrive in the order they were sent. A lane is one stream of like
// messages, such as the activations of a chunk; both sides name the same one.
#ifndef TESSERA_DIST_PIPELINE_BUNDLE_CHANNEL_H_
#define TESSERA_DIST_PIPELINE_BUNDLE_CHANNEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/communicator.h"
#include "models/model.h"

namespace tessera::dist {

// What a message is like, beside its elements.
struct BundleEntry {
  std::string name;
  enum class Source : uint8_t { kSent, kOwn, kUndefined } source = Source::kSent;
  bool differentiates = false;
  DType dtype = DType::kFloat32;
  Shape shape = {};
  friend bool operator==(const BundleEntry&, const BundleEntry&) = default;
};
using BundleLayout = std::vector<BundleEntry>;

// As bytes, and back; DataLoss for what is no layout.
std::vector<uint8_t> EncodeLayout(const BundleLayout& layout);
StatusOr<BundleLayout> DecodeLayout(const std::vector<uint8_t>& bytes);

class BundleChannel {
 public:
  BundleChannel(std::shared_ptr<Communicator> group, Device device);

  // Where a message goes or comes from.
  struct Address {
    int peer = 0;
    int lane = 0;
    int tag = 0;
    // Of a message that is sent, for Settle.
    int64_t ticket = -1;
  };

  // What is sent, in order: the caller keeps it to give gradients back in that order.
  BundleLayout Send(const models::Bundle& bundle, const models::Bundle* own, const Address& to);
  struct Received {
    models::Bundle bundle;
    BundleLayout layout;
  };
  Received Receive(const models::Bundle* own, const Address& from);

  void SendTensors(const std::vector<Tensor>& tensors, const Address& to);
  std::vector<Tensor> ReceiveTensors(const Address& from);

  // All ranks get `root`'s bundle (whole, its `local.` names too).
  models::Bundle Broadcast(const models::Bundle& bundle, int root);

  // What was sent is kept until it is known to have arrived: Settle lets go of the messages to
  // `peer` with tickets in [0, before), Flush of all. Both wait for them.
  void Settle(int peer, int64_t before);
  void Flush();
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  void SendLayout(const BundleLayout& layout, const Address& to);
  BundleLayout ReceiveLayout(const Address& from);
  void Post(const Tensor& t, const Address& to);

  const std::shared_ptr<Communicator> group_;
  const Device device_;
  std::map<std::pair<int, int>, BundleLayout> sent_;  // the last of a (peer, lane)
  std::map<std::pair<int, int>, BundleLayout> received_;
  struct UnderWay {
    int peer = 0;
    int64_t ticket = -1;
    CommHandlePtr handle;
    Tensor tensor;
  };
  std::deque<UnderWay> under_way_;
  int64_t bytes_sent_ = 0;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_PIPELINE_BUNDLE_CHANNEL_H_
