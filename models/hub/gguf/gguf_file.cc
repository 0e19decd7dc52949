// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tessera::models {
namespace {

std::string_view TextOf(const std::byte* data, int64_t size) {
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(size)};
}

// What is read on demand is read whole.
StatusOr<MountedFile> InMemory(const MountedFile& file) {
  if (file.data() != nullptr || file.size() == 0) return file;
  const auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(file.size()));
  TESSERA_RETURN_IF_ERROR(file.Read(0, bytes->data(), file.size()));
  return MountedFile::OfBytes(bytes->data(), file.size(), bytes);
}

// A file in parts counts them; the names of its parts have the numbers from 1.
constexpr std::string_view kPartCountKey = "split.count";
constexpr std::string_view kPartNumberKey = "split.no";
constexpr std::string_view kPartTensorsKey = "split.tensors.count";

std::string FiveDigits(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

// "m" of "m-00002-of-00003.gguf"; nullopt for a name of another form.
std::optional<std::string> NameBeforeNumber(const std::string& path, int64_t parts) {
  const std::string end = Concat("-of-", FiveDigits(parts), ".gguf");
  const size_t number = end.size() + FiveDigits(parts).size();
  if (!path.ends_with(end) || path.size() <= number || path[path.size() - number - 1] != '-') {
    return std::nullopt;
  }
  return path.substr(0, path.size() - number - 1);
}

}  // namespace

bool IsGgufFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  return file.ok() && BeginsAsGguf(TextOf(file->data(), file->size()));
}

StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(GgufFile file, OpenPart(path));
  int64_t parts = 1;
  TESSERA_RETURN_IF_ERROR(file.Read(kPartCountKey, &parts));
  if (parts <= 1) return file;
  const std::optional<std::string> name = NameBeforeNumber(path, parts);
  if (!name) {
    return InvalidArgument(path, ": is one of ", parts, " parts, whose names end with -00001-of-",
                           FiveDigits(parts), ".gguf and so on");
  }
  std::optional<GgufFile> whole;
  int64_t tensors = -1;
  for (int64_t i = 0; i < parts; ++i) {
    const std::string part_path =
        Concat(*name, "-", FiveDigits(i + 1), "-of-", FiveDigits(parts), ".gguf");
    auto part = OpenPart(part_path);
    if (part.status().code() == StatusCode::kNotFound) {
      return NotFound(part_path, ": there is no such file; ", path, " is one of ", parts, " parts");
    }
    TESSERA_RETURN_IF_ERROR(part.status());
    int64_t count = 1;
    int64_t number = -1;
    TESSERA_RETURN_IF_ERROR(part->Read(kPartCountKey, &count));
    TESSERA_RETURN_IF_ERROR(part->Read(kPartNumberKey, &number));
    if (count != parts || number != i) {
      return InvalidArgument(part_path, ": is part ", number + 1, " of ", count, ", not ", i + 1,
                             " of ", parts);
    }
    if (i == 0) {
      TESSERA_RETURN_IF_ERROR(part->Read(kPartTensorsKey, &tensors));
      whole = *std::move(part);
    } else {
      TESSERA_RETURN_IF_ERROR(whole->Join(*std::move(part)));
    }
  }
  if (tensors >= 0 && tensors != std::ssize(whole->tensors())) {
    return DataLoss(whole->path(), ": the parts have ", whole->tensors().size(), " tensors, not ",
                    tensors);
  }
  return *std::move(whole);
}

Status GgufFile::Join(GgufFile part) {
  for (GgufTensor& tensor : part.header_.tensors) {
    tensor.part = parts_.size();
    if (!tensors_.emplace(tensor.name, tensors().size()).second) {
      return DataLoss(part.path(), ": tensor '", tensor.name, "' is in another part too");
    }
    header_.tensors.push_back(std::move(tensor));
  }
  parts_.push_back(std::move(part.parts_[0]));
  return OkStatus();
}

StatusOr<GgufFile> GgufFile::OpenPart(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const auto owner = std::make_shared<const MappedFile>(std::move(mapped));
  return Of(MountedFile::OfBytes(owner->data(), owner->size(), owner), path);
}

StatusOr<GgufFile> GgufFile::Of(const MountedFile& bytes, const std::string& name) {
  GgufFile result;
  result.path_ = name;
  TESSERA_ASSIGN_OR_RETURN(MountedFile in_memory, InMemory(bytes));
  const int64_t size = in_memory.size();
  TESSERA_ASSIGN_OR_RETURN(result.header_,
                           ParseGgufHeader(TextOf(in_memory.data(), size), size, name));
  result.parts_.push_back(std::move(in_memory));
  for (size_t i = 0; i < result.metadata().size(); ++i) {
    result.values_.emplace(result.metadata()[i].first, i);
  }
  for (size_t i = 0; i < result.tensors().size(); ++i) {
    result.tensors_.emplace(result.tensors()[i].name, i);
  }
  return result;
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &metadata()[found->second].second;
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  return found == tensors_.end() ? nullptr : &tensors()[found->second];
}

Status GgufFile::WrongKind(std::string_view key, std::string_view wanted) const {
  return InvalidArgument(path(), ": key '", key, "' is not ", wanted);
}

Status GgufFile::Read(std::string_view key, int64_t* value) const {
  const GgufValue* const found = FindValue(key);
  if (found == nullptr) return OkStatus();
  const bool fits = std::visit(
      [value](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          *value = static_cast<int64_t>(held);
          return std::in_range<int64_t>(held);
        }
        return false;
      },
      *found);
  return fits ? OkStatus() : WrongKind(key, "an integer");
}

Status GgufFile::Read(std::string_view key, double* value) const {
  const GgufValue* const found = FindValue(key);
  if (found == nullptr) return OkStatus();
  const bool fits = std::visit(
      [value](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          *value = static_cast<double>(held);
          return true;
        }
        return false;
      },
      *found);
  return fits ? OkStatus() : WrongKind(key, "a number");
}

Status GgufFile::Read(std::string_view key, bool* value) const {
  const GgufValue* const found = FindValue(key);
  if (found == nullptr) return OkStatus();
  const bool* const held = std::get_if<bool>(found);
  if (held == nullptr) return WrongKind(key, "true or false");
  *value = *held;
  return OkStatus();
}

Status GgufFile::Read(std::string_view key, std::string* value) const {
  const GgufValue* const found = FindValue(key);
  if (found == nullptr) return OkStatus();
  const std::string* const held = std::get_if<std::string>(found);
  if (held == nullptr) return WrongKind(key, "a text");
  *value = *held;
  return OkStatus();
}

template <typename T>
Status GgufFile::ReadArray(std::string_view key, std::vector<T>* value) const {
  const GgufValue* const found = FindValue(key);
  if (found == nullptr) return OkStatus();
  const GgufArray* const array = std::get_if<GgufArray>(found);
  const auto* const held = array == nullptr ? nullptr : std::get_if<std::vector<T>>(array);
  if (held == nullptr) {
    return WrongKind(key, std::is_same_v<T, std::string> ? "a list of texts"
                          : std::is_same_v<T, float>     ? "a list of float32"
                                                         : "a list of int32");
  }
  *value = *held;
  return OkStatus();
}

Status GgufFile::Read(std::string_view key, std::vector<int32_t>* value) const {
  return ReadArray(key, value);
}
Status GgufFile::Read(std::string_view key, std::vector<float>* value) const {
  return ReadArray(key, value);
}
Status GgufFile::Read(std::string_view key, std::vector<std::string>* value) const {
  return ReadArray(key, value);
}

StatusOr<const GgufTensor*> GgufFile::Get(std::string_view name) const {
  const GgufTensor* const tensor = Find(name);
  if (tensor == nullptr) return NotFound(path(), ": no tensor '", name, "'");
  if (DenseTypeOf(tensor->type) || QuantTypeOf(tensor->type)) return tensor;
  return InvalidArgument(path(), ": tensor '", name, "' is ", tensor->type.name, "; ",
                         ReadGgufTypes(), " are supported");
}

StatusOr<GgufWriter> GgufWriter::Create(const std::string& path, const GgufMetadata& metadata,
                                        std::vector<GgufTensor> tensors) {
  const std::string header = FormatGgufHeader(metadata, &tensors);
  // What the reader would refuse is not written.
  const int64_t end = tensors.empty() ? static_cast<int64_t>(header.size())
                                      : tensors.back().begin + tensors.back().nbytes;
  TESSERA_ASSIGN_OR_RETURN(const GgufHeader parsed, ParseGgufHeader(header, end, path));
  if (parsed.data_begin != static_cast<int64_t>(header.size())) {
    return InvalidArgument(path, ": key '", kGgufAlignmentKey, "' is not to be given");
  }
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TESSERA_RETURN_IF_ERROR(file.Append(header));
  return GgufWriter(path, std::move(file), std::move(tensors));
}

Status GgufWriter::Append(const void* bytes, int64_t size) {
  static constexpr std::array<char, 64> kZeros = {};
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    if (current_ == tensors_.size()) {
      return Internal(path_, ": ", size, " bytes more than the tensors' shapes say");
    }
    const GgufTensor& tensor = tensors_[current_];
    const int64_t take = std::min(size, tensor.nbytes - written_);
    TESSERA_RETURN_IF_ERROR(file_.Append(from, static_cast<size_t>(take)));
    from += take;
    size -= take;
    written_ += take;
    if (written_ < tensor.nbytes) break;
    const int64_t padding = GgufAligned(tensor.nbytes) - tensor.nbytes;
    TESSERA_RETURN_IF_ERROR(file_.Append(kZeros.data(), static_cast<size_t>(padding)));
    ++current_;
    written_ = 0;
  }
  return OkStatus();
}

Status GgufWriter::Commit() {
  while (current_ < tensors_.size() && tensors_[current_].nbytes == 0) ++current_;
  if (current_ != tensors_.size()) {
    return Internal(path_, ": bytes of tensor '", tensors_[current_].name, "' are missing");
  }
  return file_.Commit();
}

}  // namespace tessera::models
