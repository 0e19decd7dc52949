// SPDX-License-Identifier: Apache-2.0
// Files of named tensors in the safetensors format (github.com/huggingface/safetensors): eight
// bytes of header length, a JSON header, the tensors' bytes one after another.
//
//   TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   TESSERA_ASSIGN_OR_RETURN(TensorView wte, file.Get("transformer.wte.weight"));
//
//   TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter out, SafetensorsWriter::Create(
//       path, {{"w", DType::kFloat32, {2, 3}}}, {{"format", "pt"}}));
//   TESSERA_RETURN_IF_ERROR(out.Append(w.data(), 24));
//   TESSERA_RETURN_IF_ERROR(out.Commit());
//
// Reading maps the file; nothing is copied until a tensor's bytes are touched. `Open` accepts what
// the format allows and nothing else: the header is at most 100 MB and lies inside the file, is
// valid UTF-8 JSON without duplicate keys, every tensor's bytes are as long as its dtype and shape
// say, and together they cover the rest of the file without holes or overlaps. Element types that
// Tessera does not compute with (I8, I16, U16, F8_E4M3, ...) are listed; reading one is refused.
#ifndef TESSERA_CORE_SAFETENSORS_H_
#define TESSERA_CORE_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "core/dtype.h"

namespace tessera {

// A tensor's bytes in somebody else's memory, row-major. `data` need not be aligned to the dtype:
// copy it with memcpy.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t nbytes = 0;
};

// The format's name of a dtype ("F32"), and back; nullopt for one that Tessera does not have.
std::string_view SafetensorsDTypeName(DType dtype);
std::optional<DType> ParseSafetensorsDType(std::string_view name);

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;  // as the file says: "F32"
    std::vector<int64_t> shape;
    int64_t begin = 0;  // bytes, from the end of the header
    int64_t end = 0;
  };
  using Metadata = std::map<std::string, std::string>;

  // Messages name the path and what is wrong with which entry.
  static StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  // In the order of their bytes.
  const std::vector<Entry>& entries() const { return entries_; }
  // The header's `__metadata__`.
  const Metadata& metadata() const { return metadata_; }
  const Entry* Find(std::string_view name) const;

  // NotFound for an unknown name, InvalidArgument for a dtype that Tessera does not have,
  // DataLoss for a boolean tensor with bytes other than 0 and 1. Valid as long as the file object
  // (which may be moved).
  StatusOr<TensorView> Get(std::string_view name) const;

 private:
  MappedFile file_;
  int64_t data_offset_ = 0;
  std::vector<Entry> entries_;
  Metadata metadata_;
  std::unordered_map<std::string, size_t> by_name_;
};

// A tensor of a file that is about to be written.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

// Writes tensors in the order given, so that each can be gathered, written and freed before the
// next. The same arguments give the same bytes. The file appears with `Commit` (base/file.h).
// Readers that map the file profit when wider dtypes come first: then all data is aligned.
class SafetensorsWriter {
 public:
  // Refuses duplicate names, `__metadata__` as a name, text that is not UTF-8, negative sizes.
  static StatusOr<SafetensorsWriter> Create(const std::string& path,
                                            const std::vector<SafetensorsEntry>& entries,
                                            const SafetensorsFile::Metadata& metadata = {});

  // The next bytes of the tensors, in whatever pieces.
  Status Append(const void* bytes, int64_t size);

  // Refuses when bytes are missing.
  Status Commit();

  // CRC-32C (base/checksum.h) of everything written so far; after `Commit`, of the file.
  uint32_t crc32c() const { return crc32c_; }

 private:
  SafetensorsWriter(std::string path, AtomicFile file, int64_t remaining);

  std::string path_;
  AtomicFile file_;
  int64_t remaining_;
  uint32_t crc32c_ = 0;
};

// All at once.
struct NamedTensorView {
  std::string name;
  TensorView tensor;
};
Status WriteSafetensors(const std::string& path, const std::vector<NamedTensorView>& tensors,
                        const SafetensorsFile::Metadata& metadata = {});

}  // namespace tessera

#endif  // TESSERA_CORE_SAFETENSORS_H_
