// SPDX-License-Identifier: Apache-2.0
// One call of a collective or a message, as contracts compare it and messages name it.
#ifndef TESSERA_DIST_COMM_CALL_H_
#define TESSERA_DIST_COMM_CALL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/communicator.h"
#include "core/dtype.h"

namespace tessera::dist {

struct Call {
  std::string_view operation;  // a literal: "all_reduce"
  std::string_view detail;     // a literal: "sum"; or empty
  DType dtype = DType::kUInt8;
  int64_t count = -1;  // elements; -1: an operation without operands
  int peer = -1;       // the root, or the other rank of a message
  int tag = -1;        // of a message
  std::string module;  // CurrentModulePath() where it was made
  int64_t number = 0;  // of this group's collectives, from 1; 0 for messages
  bool is_collective() const { return tag < 0; }
  // Whether all ranks have operands of `count` elements; in an AllToAll each has its own number.
  bool has_common_count() const { return operation != "all_to_all"; }
};

// What the ranks of a call must agree on: "all_reduce(sum) of float32 x 1024", "all_to_all of
// float32".
std::string DescribeContract(const Call& call);
// "all_reduce(sum) of float32 x 1024 in group tp (call 17, module transformer.h.0.attn)".
std::string DescribeCall(const Call& call, std::string_view group);

// "sum", "max", "min".
std::string_view ReduceOpName(ReduceOp op);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_CALL_H_
