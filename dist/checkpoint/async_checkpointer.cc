// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/async_checkpointer.h"

#include <utility>

#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {

AsyncCheckpointer::~AsyncCheckpointer() {
  if (thread_.joinable()) thread_.join();
}

void AsyncCheckpointer::CopyToHost(CheckpointWriter* writer) {
  std::vector<CheckpointWriter::Outgoing>& outgoing = writer->outgoing();
  host_.resize(outgoing.size());
  for (size_t i = 0; i < outgoing.size(); ++i) {
    Tensor& data = outgoing[i].data;
    Tensor& host = host_[i];
    if (!host.defined() || host.dtype() != data.dtype() || !(host.shape() == data.shape())) {
      host = Empty(data.shape(), data.dtype());
    }
    CopyInto(host, data);
    data = host;
  }
}

Status AsyncCheckpointer::Begin(const std::string& directory, int64_t step,
                                const std::vector<CheckpointTensor>& tensors,
                                const nlohmann::json& trainer, Communicator& world) {
  TESSERA_CHECK(!pending(), "checkpoint", "a save is pending; commit it before ", directory);
  TESSERA_ASSIGN_OR_RETURN(CheckpointWriter writer,
                           CheckpointWriter::Begin(directory, step, tensors, trainer, world));
  Status status;
  try {
    CopyToHost(&writer);
  } catch (const OutOfMemoryError& error) {
    status = Failure(StatusCode::kResourceExhausted, directory, ": ", error.what());
    host_.clear();
  }
  TESSERA_RETURN_IF_ERROR(AgreeOnStatus(world, status));
  writer_.emplace(std::move(writer));
  written_.store(false, std::memory_order_release);
  thread_ = std::thread([this] {
    writer_->WriteMine();
    written_.store(true, std::memory_order_release);
  });
  return OkStatus();
}

Status AsyncCheckpointer::Commit(Communicator& world) {
  if (!pending()) return OkStatus();
  thread_.join();
  const Status status = writer_->Finish(world);
  writer_.reset();
  written_.store(false, std::memory_order_release);
  return status;
}

}  // namespace tessera::dist
