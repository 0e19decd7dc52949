// SPDX-License-Identifier: Apache-2.0
// What a Python pickle describes, read without running any of it.
//
//   TESSERA_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Read(bytes, "model.bin"));
//   const PickleNode* layers = pickle.Find(pickle.root(), "layers");
//
// A pickle is a program for a stack machine that builds objects and calls functions. This machine
// builds a graph of nodes. It knows the functions and classes by which checkpoints are made up,
// by name: those that rebuild tensors give tensors, the rest (argparse.Namespace, numpy's arrays,
// Megatron's enumerations, ...) give inert objects. Any other name is refused.
//
// All opcodes of protocols 0 to 5 that such files use; PERSID, INST, OBJ, the extension registry
// and buffers that lie outside are refused. Memory is bounded: a pickle of more than 2 million
// objects is refused, and text stays in the caller's bytes.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::models {

struct PickleNode {
  enum class Kind : uint8_t {
    kNone,
    kBool,     // integer
    kInt,      // integer
    kFloat,    // real
    kText,     // text: a string, bytes, or an integer of more than 64 bits
    kList,     // items; tuples and sets, too
    kDict,     // items: key, value, key, value, ...; insertion order
    kGlobal,   // text: "module" and name with a dot between them
    kObject,   // items: the class or function, its arguments, then states
    kStorage,  // items: type, key, location, number of elements, and the legacy format's view
    kTensor,   // items: storage, offset, sizes, strides
  };
  using Index = uint32_t;

  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string_view text = {};
  std::vector<Index> items = {};
};

class Pickle {
 public:
  using Index = PickleNode::Index;

  // Of the bytes, which must outlive the result; what is behind the pickle is not looked at.
  // `where` begins every message: "<where>: 'os.system' is no part of a checkpoint; ...".
  static StatusOr<Pickle> Read(std::string_view bytes, const std::string& where);

  const PickleNode& root() const { return nodes_[root_]; }
  const PickleNode& at(Index index) const { return nodes_[index]; }
  const std::vector<PickleNode>& nodes() const { return nodes_; }
  // The value of a text key in a dictionary; nullptr if there is none, or it is no dictionary.
  const PickleNode* Find(const PickleNode& dict, std::string_view key) const;
  // Bytes up to and with STOP.
  int64_t size() const { return size_; }

 private:
  friend class PickleMachine;
  std::vector<PickleNode> nodes_;
  // "module.name" of globals: the pickle has it in two parts.
  std::deque<std::string> names_;
  Index root_ = 0;
  int64_t size_ = 0;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_H_
