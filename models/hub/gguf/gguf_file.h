// SPDX-License-Identifier: Apache-2.0
// GGUF files, llama.cpp's: metadata by key, tensors by name, all in one file or in parts beside one
// another (m-00001-of-00003.gguf), which are read as one file.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open("model.gguf"));
//   std::string architecture;
//   TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
//   TESSERA_ASSIGN_OR_RETURN(const GgufTensor* t, file.Get("token_embd.weight"));
//   const std::byte* rows = file.BytesOf(*t);
//
//   TESSERA_ASSIGN_OR_RETURN(GgufWriter out, GgufWriter::Create(
//       path, {{"general.architecture", "llama"s}}, {{"output_norm.weight", kGgufF32, {64}}}));
//   TESSERA_RETURN_IF_ERROR(out.Append(numbers, 256));
//   TESSERA_RETURN_IF_ERROR(out.Commit());
//
// Reading maps the file. All that the header says is checked by `Open` (gguf_header.h), which takes
// memory in proportion to the header. Tensors of types that are not read (gguf_types.h) are listed;
// getting one is refused.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_FILE_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/mounted_folder.h"
#include "base/status.h"
#include "models/hub/gguf/gguf_header.h"

namespace tessera::models {

// Whether there is one at the path, by its first bytes.
bool IsGgufFile(const std::string& path);

class GgufFile {
 public:
  // Opens all parts of a model, given the path of one of them. A part that is missing, or belongs
  // to another model, is refused by its name.
  static StatusOr<GgufFile> Open(const std::string& path);
  // One that is read elsewhere, and in one part; `name` is what messages call it.
  static StatusOr<GgufFile> Of(const MountedFile& bytes, const std::string& name);

  // That of the first part, which also has the metadata.
  const std::string& path() const { return path_; }
  // In memory, one for each part.
  const std::vector<MountedFile>& parts() const { return parts_; }
  const GgufMetadata& metadata() const { return header_.metadata; }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }

  // nullptr for a key or a name that is not there.
  const GgufValue* FindValue(std::string_view key) const;
  const GgufTensor* Find(std::string_view name) const;

  // The value of a key; what is absent leaves *value as it is. InvalidArgument, with the key, for
  // a value of another kind: any integer that fits, any number, an array of just that type.
  Status Read(std::string_view key, int64_t* value) const;
  Status Read(std::string_view key, double* value) const;
  Status Read(std::string_view key, bool* value) const;
  Status Read(std::string_view key, std::string* value) const;
  Status Read(std::string_view key, std::vector<int32_t>* value) const;
  Status Read(std::string_view key, std::vector<float>* value) const;
  Status Read(std::string_view key, std::vector<std::string>* value) const;

  // NotFound for an unknown name, InvalidArgument for a type that is not read.
  StatusOr<const GgufTensor*> Get(std::string_view name) const;
  // Rows of blocks, valid as long as the file object, which may be moved.
  const std::byte* BytesOf(const GgufTensor& tensor) const {
    return parts_[tensor.part].data() + tensor.begin;
  }

 private:
  template <typename T>
  Status ReadArray(std::string_view key, std::vector<T>* value) const;
  Status WrongKind(std::string_view key, std::string_view wanted) const;
  static StatusOr<GgufFile> OpenPart(const std::string& path);
  // Takes another part's tensors.
  Status Join(GgufFile part);

  std::string path_;
  std::vector<MountedFile> parts_;
  GgufHeader header_;
  std::unordered_map<std::string, size_t> values_;
  std::unordered_map<std::string, size_t> tensors_;
};

// Writes tensors in the order given, so that each can be made, written and freed before the next.
// The same arguments give the same bytes. The file appears with `Commit` (base/file.h).
class GgufWriter {
 public:
  // Of a tensor its name, type and shape count. Refuses duplicate keys and names, rows that are no
  // whole blocks, an alignment of one's own.
  static StatusOr<GgufWriter> Create(const std::string& path, const GgufMetadata& metadata,
                                     std::vector<GgufTensor> tensors);

  // The next bytes of the tensors, in whatever pieces; what lies between tensors is written here.
  Status Append(const void* bytes, int64_t size);

  // Refuses when bytes are missing.
  Status Commit();

 private:
  GgufWriter(std::string path, AtomicFile file, std::vector<GgufTensor> tensors)
      : path_(std::move(path)), file_(std::move(file)), tensors_(std::move(tensors)) {}

  std::string path_;
  AtomicFile file_;
  std::vector<GgufTensor> tensors_;
  size_t current_ = 0;   // of tensors_
  int64_t written_ = 0;  // of its bytes
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_FILE_H_
