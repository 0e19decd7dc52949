// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/agreement.h"

#include "dist/comm/agreement.h"

namespace tessera::train {
namespace {

constexpr char kMark[] = "tessera.agreed";

}  // namespace

Status Agree(const dist::Mesh& mesh, const Status& mine) {
  if (mesh.world()->size() == 1) return mine;
  Status status = dist::AgreeOnStatus(*mesh.world(), mine);
  if (!status.ok()) SetMark(status, kMark);
  return status;
}

bool IsAgreed(const Status& status) { return HasMark(status, kMark); }

Status AgreedLike(const Status& failure, Status said) {
  if (IsAgreed(failure)) SetMark(said, kMark);
  return said;
}

}  // namespace tessera::train
