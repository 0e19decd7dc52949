// SPDX-License-Identifier: Apache-2.0
#include "dist/dry_run/rank_meter.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/cleanup/cleanup.h"
#include "base/error.h"
#include "core/allocator.h"
#include "core/thread_communicator.h"

namespace tessera::dist {

class RankMeter::Turns {
 public:
  void Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    free_.wait(lock, [this] { return !taken_; });
    taken_ = true;
  }
  void Give() {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_ = false;
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

namespace {

MetaBytes UsesOf(const Device& device) {
  return device.is_meta() ? MetaBytesOf(device) : MetaBytes{};
}

}  // namespace

RankMeter::RankMeter(std::shared_ptr<Turns> turns, const std::vector<Device>& devices)
    : turns_(std::move(turns)) {
  for (const Device& device : devices) uses_.push_back({.device = device});
}

const RankMeter::Use& RankMeter::UseOf(const Device& device) const {
  const auto found = std::find_if(uses_.begin(), uses_.end(),
                                  [&](const Use& use) { return use.device == device; });
  TESSERA_CHECK(found != uses_.end(), "rank_meter", device, " is not measured");
  return *found;
}

int64_t RankMeter::current_bytes(const Device& device) const {
  const Use& use = UseOf(device);
  return use.current + Allocator::For(device).stats().current_bytes - use.total;
}

int64_t RankMeter::peak_bytes(const Device& device) const {
  const Use& use = UseOf(device);
  return std::max(use.peak, use.current + Allocator::For(device).stats().peak_bytes - use.total);
}

UseBytes RankMeter::peak_uses(const Device& device) const {
  const Use& use = UseOf(device);
  const bool in_turn = peak_bytes(device) > use.peak;
  return in_turn ? use.current_uses + UsesOf(device).at_peak - use.total_uses : use.peak_uses;
}

void RankMeter::ResetPeaks() {
  for (Use& use : uses_) {
    Allocator::For(use.device).ResetPeak();
    use.peak = current_bytes(use.device);
    use.peak_uses = use.current_uses + UsesOf(use.device).current - use.total_uses;
  }
}

void RankMeter::BeginTurn() {
  turns_->Take();
  for (Use& use : uses_) {
    Allocator& allocator = Allocator::For(use.device);
    allocator.ResetPeak();
    use.total = allocator.stats().current_bytes;
    use.total_uses = UsesOf(use.device).current;
  }
}

void RankMeter::EndTurn() {
  for (Use& use : uses_) {
    use.peak_uses = peak_uses(use.device);
    use.peak = peak_bytes(use.device);
    use.current_uses = use.current_uses + UsesOf(use.device).current - use.total_uses;
    use.current = current_bytes(use.device);
  }
  turns_->Give();
}

void MeasureRanks(
    int ranks, const std::vector<Device>& devices,
    const std::function<void(const Group& group, const std::shared_ptr<RankMeter>& meter)>& body,
    const std::string& name) {
  const auto turns = std::make_shared<RankMeter::Turns>();
  RunRanks(ranks, [&](const Group& threads) {
    const Group group = threads->Split(0, threads->rank(), name);
    const auto meter = std::make_shared<RankMeter>(turns, devices);
    meter->BeginTurn();
    const absl::Cleanup end_turn = [&] { meter->EndTurn(); };
    body(CountingCommunicator(group, meter), meter);
  });
}

}  // namespace tessera::dist
