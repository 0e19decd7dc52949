// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/host_operands.h"

#include <numeric>

namespace tessera::dist {

void CheckOperands(std::string_view operation, const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.is_contiguous() && b.is_contiguous(), operation, "tensors must be contiguous");
  // Host memory is the CPU's as well.
  const bool near = a.device() == b.device() || (a.device().is_cpu() && b.device().is_cpu());
  TESSERA_CHECK(a.dtype() == b.dtype() && near, operation, a, " and ", b,
                " differ in dtype or device");
}

void CheckPeer(std::string_view operation, const Communicator& group, int peer, int tag) {
  TESSERA_CHECK(peer >= 0 && peer < group.size() && peer != group.rank(), operation, "rank ", peer,
                " is not another rank of group ", group.name());
  TESSERA_CHECK(tag >= 0 && tag <= kLargestTag, operation, "tag ", tag, " is not in 0..",
                kLargestTag);
}

void CheckReducible(std::string_view operation, DType dtype, ReduceOp op) {
  TESSERA_CHECK(dtype != DType::kBool || op != ReduceOp::kSum, operation, "bool has no sum");
}

void CheckParts(std::string_view operation, const Communicator& group, const Tensor& whole,
                const Tensor& part) {
  TESSERA_CHECK(whole.numel() == part.numel() * group.size(), operation, whole, " is not ",
                group.size(), " times ", part);
}

void CheckRoot(std::string_view operation, const Communicator& group, int root) {
  TESSERA_CHECK(root >= 0 && root < group.size(), operation, "root ", root, " in group ",
                group.name());
}

DType ReductionDType(DType dtype) { return IsHalf(dtype) ? DType::kFloat32 : dtype; }

Tensor Staged(const Tensor& t, DType dtype) {
  Tensor host = t.device().is_cpu() ? t : CopyTo(t, Device::Cpu());
  return host.dtype() == dtype ? host : CastCopy(host, dtype);
}

Tensor Flat(const Tensor& t) { return t.AsStrided({t.numel()}, {1}, t.offset()); }

std::vector<int64_t> ChunkBegins(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
  return begins;
}

char* Bytes(const Tensor& t) { return static_cast<char*>(t.raw_data()); }

}  // namespace tessera::dist
