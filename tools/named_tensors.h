// SPDX-License-Identifier: Apache-2.0
// The tensors of whatever holds some: a model's folder, a file of weights, or a checkpoint of a
// run.
//
//   TESSERA_ASSIGN_OR_RETURN(const NamedTensors a, NamedTensors::Open("runs/book/checkpoint-100"));
//   TESSERA_ASSIGN_OR_RETURN(const Tensor t, a.Read(a.names()[0]));
#ifndef TESSERA_TOOLS_NAMED_TENSORS_H_
#define TESSERA_TOOLS_NAMED_TENSORS_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"

namespace tessera::tools {

// Whether a file begins as one of weights: safetensors with the length of the header, eight bytes,
// and the header, an object; what torch.save writes as a zip archive or a pickle; a list of tensors
// is known by its name.
bool BeginsAsWeights(const std::string& path);

class NamedTensors {
 public:
  // NotFound, or what is wrong with it. A run's folder stands for its newest checkpoint.
  static StatusOr<NamedTensors> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // sorted
  // Whether a run wrote it, so that it holds more than weights.
  bool is_checkpoint() const { return is_checkpoint_; }
  // A checkpoint's weights alone, by the names that they have in a model's folder.
  NamedTensors WeightsOfModel() const;
  // On the CPU, in its own dtype. Of a name that is there.
  StatusOr<Tensor> Read(const std::string& name) const { return read_(name); }

 private:
  std::string path_;
  std::vector<std::string> names_;
  bool is_checkpoint_ = false;
  std::function<StatusOr<Tensor>(const std::string& name)> read_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_NAMED_TENSORS_H_
