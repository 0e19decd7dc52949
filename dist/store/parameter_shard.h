// SPDX-License-Identifier: Apache-2.0
// A rank's share of a flat bucket of parameters, and the whole of it while somebody holds it
// gathered.
//
//   {
//     const GatheredScope scope({model.wte.weight.tensor});   // all ranks of the group
//     Print(model.wte.weight.tensor);                         // any of them
//   }
//
// The parameters' storages borrow the gathered bytes and have none in between, so that the tape and
// every view of a parameter go on as they are (core/storage.h). Elements that are asked for while
// nobody holds them are an error that names the parameter, the rank and this scope.
#ifndef TESSERA_DIST_STORE_PARAMETER_SHARD_H_
#define TESSERA_DIST_STORE_PARAMETER_SHARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "core/storage.h"
#include "dist/store/flat_bucket.h"

namespace tessera::dist {

class ParameterShard : public StorageKeeper, public std::enable_shared_from_this<ParameterShard> {
 public:
  // Cuts the parameters as they are, keeps this rank's share on `place`, and releases them.
  // Collective where they are cut already.
  static std::shared_ptr<ParameterShard> Cut(const FlatBucket& bucket, const Device& place);
  // The shard that a tensor's elements are kept in; nullptr where it has them itself.
  static std::shared_ptr<ParameterShard> Of(const Tensor& t);

  // One more holder: begins to gather where it is the first.
  void Acquire();
  // One more holder, who writes all elements: what is not gathered need not be.
  void AcquireToOverwrite();
  // Ends what Acquire began: the parameters have their elements.
  void Await();
  // One holder less; after the last the elements are given back. `written`: the parameters were
  // written to, and the share follows them.
  void Return(bool written = false);

  // 1-d, FlatBucket::ShareOf this rank: what an optimizer changes.
  const Tensor& share() const { return share_; }
  int64_t elements() const { return elements_; }
  // The share has been changed: so have the parameters' elements, which are gathered anew where
  // they are held. Collective; Await says when they are there.
  void ShareChanged();

  std::string WhyReleased(const Storage& storage) const override;

 private:
  struct Member {
    std::string name;
    std::weak_ptr<Storage> storage;
    size_t offset;  // bytes into the bucket
  };
  ParameterShard() = default;
  void Gather();
  void Lend();

  std::shared_ptr<Communicator> group_;
  std::vector<Member> members_;
  Device device_;
  int64_t elements_ = 0;
  int owner_ = -1;     // who has all of it
  int64_t begin_ = 0;  // of the share
  Tensor share_;
  int holders_ = 0;
  Tensor whole_;  // while somebody holds it
  Tensor sent_;   // the share where the group can read it, while it travels
  CommHandlePtr travelling_;
};

// What a scope is for.
enum class GatherFor {
  kReading,      // what is written is lost
  kWriting,      // the same elements on every rank
  kOverwriting,  // all elements of the parameters: what they were is not gathered
};

// While it lives the elements of the given parameters are there, on this rank. All ranks of their
// group open it, and close it, in step with their other collectives. Those that lie whole on every
// rank are passed over, so that callers need not ask.
class GatheredScope {
 public:
  GatheredScope() = default;
  explicit GatheredScope(const std::vector<Tensor>& parameters,
                         GatherFor use = GatherFor::kReading);
  ~GatheredScope();
  GatheredScope(GatheredScope&& other) noexcept;
  GatheredScope& operator=(GatheredScope&& other) noexcept;

 private:
  std::vector<std::shared_ptr<ParameterShard>> shards_;
  bool writes_ = false;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_PARAMETER_SHARD_H_
