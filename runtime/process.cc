// SPDX-License-Identifier: Apache-2.0
#include "runtime/process.h"

#include <atomic>
#include <mutex>
#include <string_view>

#include "base/version.h"
#include "core/allocator.h"
#include "core/thread_pool.h"
#include "runtime/border.h"
#include "runtime/handles.h"

namespace tessera::runtime {
namespace {

constinit std::atomic<const tsr_allocator*> host_allocator = nullptr;

struct Logger {
  std::mutex mutex;
  tsr_logger log = nullptr;
  void* user = nullptr;
};
Logger& HostLogger() {
  static auto* const logger = new Logger;
  return *logger;
}

// Blocks outlive the configuration they were made under, and so do allocators, each once.
struct KeptAllocator {
  tsr_allocator allocator;
  const KeptAllocator* next = nullptr;
};

const tsr_allocator* Kept(const tsr_allocator& wanted) {
  static constinit std::mutex mutex;
  static constinit const KeptAllocator* first = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const KeptAllocator* kept = first; kept != nullptr; kept = kept->next) {
    const tsr_allocator& known = kept->allocator;
    if (known.allocate == wanted.allocate && known.release == wanted.release &&
        known.user == wanted.user) {
      return &known;
    }
  }
  first = new KeptAllocator{wanted, first};
  return &first->allocator;
}

Status Configure(const tsr_configuration* given) {
  TESSERA_ASSIGN_OR_RETURN(const tsr_configuration wanted, OptionsOf(given, "tsr_configuration"));
  const tsr_allocator* const allocator = wanted.allocator;
  if (allocator != nullptr && (allocator->allocate == nullptr || allocator->release == nullptr)) {
    return InvalidArgument("tsr_configuration: an allocator needs both of its functions");
  }
  if (wanted.threads < 0 || wanted.threads > kMostThreads) {
    return InvalidArgument("tsr_configuration: threads is ", wanted.threads,
                           "; it is 0 (all cores) to ", kMostThreads);
  }
  if (AnyHandles()) {
    return Failure(kBusy, "tsr_configure: there are models, contexts or trainers, or a call is ",
                   "making one");
  }
  Allocator::For(Device::Cpu()).ReleaseCached();
  SetHostAllocator(allocator == nullptr ? nullptr : Kept(*allocator));
  {
    Logger& logger = HostLogger();
    const std::lock_guard<std::mutex> lock(logger.mutex);
    logger.log = wanted.logger;
    logger.user = wanted.logger_user;
  }
  SetNumThreads(wanted.threads == 0 ? AvailableCores() : wanted.threads);
  return OkStatus();
}

}  // namespace

const tsr_allocator* HostAllocator() noexcept {
  return host_allocator.load(std::memory_order_acquire);
}

void SetHostAllocator(const tsr_allocator* allocator) {
  host_allocator.store(allocator, std::memory_order_release);
}

void LogWarning(const std::string& message) {
  Logger& logger = HostLogger();
  tsr_logger log = nullptr;
  void* user = nullptr;
  {
    const std::lock_guard<std::mutex> lock(logger.mutex);
    log = logger.log;
    user = logger.user;
  }
  if (log != nullptr) log(user, TSR_LOG_WARNING, message.c_str());
}

}  // namespace tessera::runtime

static_assert(std::string_view(TSR_VERSION) == TESSERA_VERSION,
              "base/version.h has another number");

const char* tsr_version(void) { return TSR_VERSION; }

tsr_status* tsr_configure(const tsr_configuration* configuration) {
  return tessera::runtime::AtBorder([&] { return tessera::runtime::Configure(configuration); });
}
