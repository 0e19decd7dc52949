// A rank's share of a flat bucket of parameters, and the whole of it while it is gathered.
//
// The parameters' storages borrow the gathered bytes and have none in between, so that the tape and
// every view of a parameter go on as they are (core/storage.h).
#ifndef TESSERA_DIST_ZERO_PARAMETER_SHARD_H_
#define TESSERA_DIST_ZERO_PARAMETER_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "dist/zero/flat_bucket.h"

namespace tessera::dist {

class ParameterShard : public std::enable_shared_from_this<ParameterShard> {
 public:
  // Cuts the parameters as they are (gathering those that are released), keeps this rank's share on
  // `place`, and releases them. From then on elements that are asked for are gathered.
  static std::shared_ptr<ParameterShard> Cut(const FlatBucket& bucket,
                                             std::shared_ptr<Communicator> group,
                                             const Device& place);

  // Begins to gather; does nothing when that has happened.
  void Begin();
  // Ends it: the parameters have their elements.
  void Gather();
  // Gives the elements back. Parameters that were written to meanwhile are cut again, when `keep`.
  void Release(bool keep = true);
  bool gathered() const { return full_.defined() && travelling_ == nullptr; }
  bool begun() const { return full_.defined(); }

  // [share], 1-d: what an optimizer changes, while nothing is gathered.
  const Tensor& share() const { return share_; }
  int64_t elements() const { return elements_; }
  // The parameters' elements have changed.
  void BumpVersions();

  // Called after elements were gathered because they were asked for.
  void set_on_demand(std::function<void()> on_demand) { on_demand_ = std::move(on_demand); }

 private:
  struct Member {
    std::weak_ptr<Storage> storage;
    size_t offset;         // bytes into the bucket
    uint64_t version = 0;  // when it was gathered
  };
  ParameterShard() = default;
  void Refill();

  std::shared_ptr<Communicator> group_;
  std::vector<Member> members_;
  Device device_;
  int64_t elements_ = 0;
  Tensor share_;
  Tensor sent_;  // the share where the group can read it, while it travels
  Tensor full_;
  CommHandlePtr travelling_;
  std::function<void()> on_demand_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_PARAMETER_SHARD_H_
