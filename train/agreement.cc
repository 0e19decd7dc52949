#include "train/agreement.h"

#include "absl/strings/cord.h"
#include "dist/comm/agreement.h"

namespace tessera::train {
namespace {

constexpr char kMark[] = "tessera.agreed";

}  // namespace

absl::Status Agree(const dist::Mesh& mesh, const absl::Status& mine) {
  if (mesh.world()->size() == 1) return mine;
  absl::Status status = dist::AgreeOnStatus(*mesh.world(), mine);
  if (!status.ok()) status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsAgreed(const absl::Status& status) { return status.GetPayload(kMark).has_value(); }

}  // namespace tessera::train
