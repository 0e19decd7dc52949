// SPDX-License-Identifier: Apache-2.0
// Files that torch.save wrote (`pytorch_model.bin`, `model_optim_rng.pt`), read without Python:
// nothing in them is executed.
//
//   TESSERA_ASSIGN_OR_RETURN(const TorchFile file, TorchFile::Open("pytorch_model.bin"));
//   std::vector<std::byte> made;
//   TESSERA_ASSIGN_OR_RETURN(const TensorView wte, file.Get("transformer.wte.weight", &made));
//
// Both formats: the zip archive of torch 1.6 and later, and the row of pickles before it. The file
// is mapped, and a tensor's bytes are where they lie unless it is transposed, a slice, or
// big-endian. Tensors may share storages. Elements are F64, F32, F16, BF16, I64, I32, I16, I8, U8
// or BOOL.
//
// What is listed are the tensors of the state dictionary: the one below the file's "state_dict",
// "model_state_dict", "module" or "model" (that of a training), whatever else is beside it, or the
// file's dictionary. Dictionaries within it are joined by dots: {"a": {"b": t}} has "a.b". If
// all names begin with "module." (torch's DistributedDataParallel), that is left out, and so is
// "model." in a checkpoint of Lightning.
//
// Refused, in one line that names the file: names of functions and classes that are no part of a
// checkpoint (models/hub/torch_file/pickle_globals.cc), files that are cut off, tensors that reach
// beyond their storage or repeat its elements, compressed archives.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_TORCH_FILE_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_TORCH_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "core/safetensors.h"
#include "models/hub/torch_file/pickle.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

class TorchFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;  // as in safetensors: "F32"
    std::vector<int64_t> shape;
    int64_t nbytes = 0;
  };

  static StatusOr<TorchFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  // In the dictionary's order.
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* Find(std::string_view name) const;

  // NotFound for an unknown name, InvalidArgument for a dtype that Tessera does not have, DataLoss
  // for booleans other than 0 and 1. Valid as long as the file object, which may be moved, and
  // `made`, which holds the bytes of a tensor that is no row of its storage.
  StatusOr<TensorView> Get(std::string_view name, std::vector<std::byte>* made) const;

  // What is no tensor: numbers, texts, booleans and dictionaries of them, and the attributes of
  // argparse.Namespaces. Lists are left out.
  nlohmann::json Scalars() const;

 private:
  // Where an entry's elements are.
  struct Place {
    std::string_view storage;  // its bytes
    int64_t element_bytes = 0;
    int64_t offset = 0;  // in elements, as the strides
    std::vector<int64_t> strides;
  };
  using Storages = std::unordered_map<std::string_view, std::string_view>;

  Status OpenArchive(std::string_view bytes);
  Status OpenLegacy(std::string_view bytes);
  StatusOr<Storages> ReadLegacyStorages(std::string_view bytes) const;
  Status List(const Storages& storages);
  Status AddEntry(const std::string& name, const PickleNode& tensor, const Storages& storages);
  Status Locate(const std::string& what, const PickleNode& tensor, const Storages& storages,
                Entry* entry, Place* place) const;

  MappedFile file_;
  Pickle pickle_;
  bool big_endian_ = false;
  std::vector<Entry> entries_;
  std::vector<Place> places_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_TORCH_FILE_H_
