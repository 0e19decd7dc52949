// SPDX-License-Identifier: Apache-2.0
// NCCL between processes of this machine, by files of a directory that the unique id names.
//
// The machine is lazy (core/cuda/testing/emulation/machine.h): a stream's work runs when somebody
// waits for it. Were that true of what a rank gives to the others, a rank that waits for something
// else would hold them up, as no GPU does. A call therefore brings its stream up to date and gives
// its data away at once; what it takes is read when the stream comes to it. A program that forgets
// to wait for its data still sees old ones.
//
// Calls are nonblocking: each is in progress until it has been asked about twice, by the thread
// that made it, and no communicator is destroyed before its finalisation is done. What asks
// otherwise ends the process, as what it does is undefined.
//
// Every rank of a group leaves a file for each collective, `<group>.<number>.<rank>`. A rank that
// leaves number n has finished n - 1, so that everybody has read n - 2, whose file goes.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/testing/emulation/work.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

constexpr std::chrono::seconds kLongestWait{120};
constexpr std::chrono::microseconds kBetweenLooks{200};

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

// A file that is there is whole.
void Leave(const std::string& path, const void* data, size_t bytes) {
  {
    std::ofstream file(path + ".part", std::ios::binary);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }
  fs::rename(path + ".part", path);
}

Bytes Take(const std::string& path) {
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (!fs::exists(path)) {
    if (std::chrono::steady_clock::now() > until) {
      std::fprintf(stderr, "error: emulated NCCL: nobody left %s\n", path.c_str());
      std::_Exit(1);
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

template <typename T>
void ReduceInto(Bytes& into, const Bytes& more, ncclRedOp_t op) {
  auto* a = reinterpret_cast<T*>(into.data());
  const auto* b = reinterpret_cast<const T*>(more.data());
  for (size_t i = 0; i < into.size() / sizeof(T); ++i) {
    if (op == ncclSum) a[i] = static_cast<T>(a[i] + b[i]);
    if (op == ncclMax && a[i] < b[i]) a[i] = b[i];
    if (op == ncclMin && b[i] < a[i]) a[i] = b[i];
  }
}

void ReduceInto(Bytes& into, const Bytes& more, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
      return ReduceInto<float>(into, more, op);
    case ncclFloat64:
      return ReduceInto<double>(into, more, op);
    case ncclInt64:
      return ReduceInto<int64_t>(into, more, op);
    case ncclInt32:
      return ReduceInto<int32_t>(into, more, op);
    default:
      return ReduceInto<uint8_t>(into, more, op);
  }
}

bool IsReducible(ncclDataType_t type, ncclRedOp_t op) {
  return (type == ncclFloat32 || type == ncclFloat64 || type == ncclInt64 || type == ncclInt32 ||
          type == ncclUint8) &&
         (op == ncclSum || op == ncclMax || op == ncclMin);
}

}  // namespace

// The call that is in progress.
struct Progress {
  std::atomic<int> looks{0};  // until it is done
  std::atomic<std::thread::id> caller{};
  bool finalized = false;
};

struct ncclComm {
  std::string group;  // a path that the files' names begin with
  int rank = 0;
  int size = 1;
  int64_t calls = 0;
  int64_t splits = 0;
  std::map<int, int64_t> sent = {};      // messages, by receiver
  std::map<int, int64_t> received = {};  // by sender
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();

  std::string FileOf(int64_t call, int of_rank) const {
    return group + "." + std::to_string(call) + "." + std::to_string(of_rank);
  }
  std::string Message(int64_t number, int from, int to) const {
    return group + ".m" + std::to_string(number) + "." + std::to_string(from) + "." +
           std::to_string(to);
  }
};

namespace {

[[noreturn]] void Refuse(const char* what) {
  std::fprintf(stderr, "error: emulated NCCL: %s\n", what);
  std::_Exit(1);
}

ncclResult_t Begun(ncclComm_t comm) {
  comm->progress->caller = std::this_thread::get_id();
  comm->progress->looks = 2;
  return ncclInProgress;
}

using Gifts = std::vector<Bytes>;  // of the ranks, in their order

// One collective: gives this rank's bytes now; `take` gets everybody's when the stream is there.
ncclResult_t Exchange(ncclComm_t comm, cudaStream_t stream, const void* data, size_t bytes,
                      std::function<void(const Gifts&)> take) {
  if (cudaStreamSynchronize(stream) != cudaSuccess) return ncclUnhandledCudaError;
  const int64_t call = comm->calls++;
  Leave(comm->FileOf(call, comm->rank), data, bytes);
  const ncclComm known = *comm;
  const cudaError_t error =
      tessera::cuda::emulation::Enqueue(stream, [known, call, take = std::move(take)] {
        Gifts gifts;
        for (int r = 0; r < known.size; ++r) gifts.push_back(Take(known.FileOf(call, r)));
        if (call > 0) fs::remove(known.FileOf(call - 1, known.rank));
        take(gifts);
      });
  return error == cudaSuccess ? Begun(comm) : ncclUnhandledCudaError;
}

Bytes Reduced(const Gifts& gifts, ncclDataType_t type, ncclRedOp_t op) {
  Bytes sum = gifts[0];
  for (size_t r = 1; r < gifts.size(); ++r) ReduceInto(sum, gifts[r], type, op);
  return sum;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "the emulation refuses it";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const char* root = std::getenv("TMPDIR");
  std::string path = std::string(root != nullptr && std::strlen(root) < 80 ? root : "/tmp");
  path += "/tessera-nccl-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return ncclSystemError;
  *id = {};
  std::memcpy(id->internal, path.data(), path.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  *comm = new ncclComm{std::string(id.internal) + "/world", rank, ranks};
  return Begun(*comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t*) {
  struct Place {
    int color, key;
  };
  const Place mine{color, key};
  const std::string name = comm->group + "-" + std::to_string(comm->splits++);
  Leave(name + ".split." + std::to_string(comm->rank), &mine, sizeof(mine));
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < comm->size; ++r) {
    const Bytes bytes = Take(name + ".split." + std::to_string(r));
    Place theirs{};
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    if (theirs.color == color) members.emplace_back(theirs.key, r);
  }
  std::sort(members.begin(), members.end());
  const auto place = std::find(members.begin(), members.end(), std::pair{key, comm->rank});
  *result =
      new ncclComm{name + "c" + std::to_string(color), static_cast<int>(place - members.begin()),
                   static_cast<int>(members.size())};
  Begun(*result);
  return Begun(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->progress->finalized = true;
  return Begun(comm);
}

// The last rank to leave the world takes the directory along.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->progress->finalized || comm->progress->looks > 0) {
    Refuse("a communicator is destroyed before its finalisation is done");
  }
  const fs::path group = comm->group;
  if (group.filename() == "world") {
    Leave(comm->group + ".left." + std::to_string(comm->rank), "", 0);
    bool all = true;
    for (int r = 0; r < comm->size; ++r) {
      all = all && fs::exists(comm->group + ".left." + std::to_string(r));
    }
    std::error_code ignored;  // another rank may be the last as well
    if (all) fs::remove_all(group.parent_path(), ignored);
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Progress& progress = *comm->progress;
  const bool begun = progress.looks > 0;
  if (begun && progress.caller.load() != std::this_thread::get_id()) {
    Refuse("a thread asks about a call in progress that another has made");
  }
  if (begun) --progress.looks;
  *error = begun ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!IsReducible(type, op)) return ncclInvalidArgument;
  return Exchange(comm, stream, in, n * SizeOf(type), [=](const Gifts& gifts) {
    const Bytes sum = Reduced(gifts, type, op);
    std::memcpy(out, sum.data(), sum.size());
  });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (!IsReducible(type, op)) return ncclInvalidArgument;
  const size_t bytes = n * SizeOf(type);
  const size_t at = bytes * static_cast<size_t>(comm->rank);
  return Exchange(comm, stream, in, bytes * static_cast<size_t>(comm->size),
                  [=](const Gifts& gifts) {
                    const Bytes sum = Reduced(gifts, type, op);
                    std::memcpy(out, sum.data() + at, bytes);
                  });
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Exchange(comm, stream, in, n * SizeOf(type), [=](const Gifts& gifts) {
    auto* to = static_cast<char*>(out);
    for (const Bytes& gift : gifts) to = std::copy(gift.begin(), gift.end(), to);
  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = comm->rank == root ? n * SizeOf(type) : 0;
  return Exchange(comm, stream, in, bytes, [=](const Gifts& gifts) {
    const Bytes& gift = gifts[static_cast<size_t>(root)];
    std::memcpy(out, gift.data(), gift.size());
  });
}

ncclResult_t ncclSend(const void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (cudaStreamSynchronize(stream) != cudaSuccess) return ncclUnhandledCudaError;
  Leave(comm->Message(comm->sent[peer]++, comm->rank, peer), data, n * SizeOf(type));
  return Begun(comm);
}

ncclResult_t ncclRecv(void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::string path = comm->Message(comm->received[peer]++, peer, comm->rank);
  const cudaError_t error = tessera::cuda::emulation::Enqueue(stream, [=] {
    const Bytes message = Take(path);
    fs::remove(path);
    if (message.size() != n * SizeOf(type)) {
      std::fprintf(stderr, "error: emulated NCCL: %zu bytes came where %zu were expected\n",
                   message.size(), n * SizeOf(type));
      std::_Exit(1);
    }
    std::memcpy(data, message.data(), message.size());
  });
  return error == cudaSuccess ? Begun(comm) : ncclUnhandledCudaError;
}

ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }

}  // extern "C"
