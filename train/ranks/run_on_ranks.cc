// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/run_on_ranks.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/printable_text.h"
#include "train/ranks/agreement.h"

namespace tessera::train {
namespace {

constexpr size_t kLongestLine = 2000;
constexpr char kReported[] = "tessera.reported";  // another rank prints it

}  // namespace

int RunOnRanks(const dist::WorldOptions& options,
               const std::function<Status(const dist::World&)>& body) {
  return ReportFailure(Guarded([&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(const dist::World world, dist::OpenWorld(options));
    return RunOnRanks(world, [&] { return body(world); });
  }));
}

Status RunOnRanks(const dist::World& world, const std::function<Status()>& body) {
  if (world.size == 1) return body();
  Status status = Guarded(body);
  if (status.ok()) return status;
  if (IsAgreed(status)) {
    if (world.rank == 0) ReportFailure(status);
    world.communicator->Barrier();  // the first rank to end takes the others with it
    SetMark(status, kReported);
    return status;
  }
  world.Abort(ReportFailure(Failure(status.code(), "rank ", world.rank, ": ", Message(status))));
}

Status Guarded(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Internal("out of memory");
  } catch (const std::system_error& error) {
    // Threads are what we ask the system for without a path.
    if (error.code() != std::errc::resource_unavailable_try_again) return Internal(error.what());
    return Internal("a thread cannot be started: ", error.code().message(),
                    "; the system allows no more (ulimit -u)");
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

Status Reported(Status failure) {
  SetMark(failure, kReported);
  return failure;
}

int ReportFailure(const Status& status) {
  if (status.ok() || status.code() == StatusCode::kCancelled) return 0;
  const bool is_usage =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound;
  const int code = is_usage ? 2 : 1;
  if (HasMark(status, kReported)) return code;
  std::string text = Message(status);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  const std::string line = "error: " + PrintableLine(text, kLongestLine) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

}  // namespace tessera::train
