// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/call.h"

#include <sstream>

namespace tessera::dist {

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "";
}

std::string DescribeContract(const Call& call) {
  std::ostringstream out;
  out << call.operation;
  if (!call.detail.empty()) out << "(" << call.detail << ")";
  if (call.count >= 0) out << " of " << call.dtype;
  if (call.count >= 0 && call.has_common_count()) out << " x " << call.count;
  if (!call.is_collective()) {
    out << (call.operation == "send" ? " to" : " from") << " its rank " << call.peer << ", tag "
        << call.tag;
  } else if (call.peer >= 0) {
    out << " from its rank " << call.peer;
  }
  return std::move(out).str();
}

std::string DescribeCall(const Call& call, std::string_view group) {
  std::ostringstream out;
  out << DescribeContract(call) << " in group " << group << " (";
  if (call.number > 0) out << "call " << call.number << ", ";
  out << (call.module.empty() ? "outside of any module" : "module " + call.module) << ")";
  return std::move(out).str();
}

}  // namespace tessera::dist
