// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/prefetching_loader.h"

#include <exception>

#include "base/error.h"

namespace tessera::data {

PrefetchingLoader::PrefetchingLoader(MakeBatchFn make, const PrefetchingOptions& options)
    : make_(std::move(make)), options_(options) {
  TESSERA_CHECK(options.depth >= 1, "PrefetchingLoader", "depth is ", options.depth);
  thread_ = std::thread([this] { Run(); });
}

PrefetchingLoader::~PrefetchingLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

StatusOr<Batch> PrefetchingLoader::MakeGuarded(int64_t number) const {
  try {
    return make_(number);
  } catch (const std::exception& error) {
    return Internal("batch ", number, ": ", error.what());
  }
}

void PrefetchingLoader::Run() {
  for (int64_t number = options_.begin; number < options_.end; ++number) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || std::ssize(ready_) < options_.depth; });
      if (stop_) return;
    }
    StatusOr<Batch> batch = MakeGuarded(number);
    const bool failed = !batch.ok();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready_.push_back(std::move(batch));
    }
    changed_.notify_all();
    if (failed) return;  // it stays at the front for good
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

StatusOr<std::optional<Batch>> PrefetchingLoader::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return finished_ || !ready_.empty(); });
  if (ready_.empty()) return std::optional<Batch>();
  if (!ready_.front().ok()) return ready_.front().status();
  std::optional<Batch> batch = std::move(ready_.front()).value();
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace tessera::data
