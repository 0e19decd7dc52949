// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/torch_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/printable_text.h"
#include "models/hub/torch_file/state_dict.h"
#include "models/hub/torch_file/storage_type.h"
#include "models/hub/torch_file/stored_zip.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using Kind = PickleNode::Kind;

// 0x1950a86a20f9469cfc6c, with which the older format begins.
constexpr std::string_view kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kLegacyVersion = 1001;
constexpr size_t kMostDims = 64;  // torch's own limit
constexpr size_t kLongestName = 200;

std::string Shown(std::string_view name) { return PrintableLine(std::string(name), kLongestName); }

std::vector<int64_t> IntegersOf(const Pickle& pickle, const PickleNode& list) {
  std::vector<int64_t> values;
  for (const Pickle::Index item : list.items) values.push_back(pickle.at(item).integer);
  return values;
}

// The elements of a tensor of that shape; nullopt for a negative size or more than 64 bits.
std::optional<int64_t> CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

// The greatest index of an element, of a shape without zeros.
std::optional<int64_t> LastIndex(int64_t offset, const std::vector<int64_t>& shape,
                                 const std::vector<int64_t>& strides) {
  int64_t last = offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t step;
    if (strides[i] < 0 || __builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  return last;
}

bool IsRow(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    if (shape[i - 1] != 1 && strides[i - 1] != expected) return false;
    expected *= shape[i - 1];
  }
  return true;
}

// Copies the elements of a strided tensor one behind another.
void CopyRowMajor(const std::byte* from, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides, int64_t element_bytes, int64_t count,
                  std::byte* to) {
  std::vector<int64_t> at(shape.size(), 0);
  int64_t index = 0;
  for (int64_t i = 0; i < count; ++i, to += element_bytes) {
    std::memcpy(to, from + index * element_bytes, static_cast<size_t>(element_bytes));
    for (size_t d = shape.size(); d > 0; --d) {
      index += strides[d - 1];
      if (++at[d - 1] < shape[d - 1]) break;
      index -= shape[d - 1] * strides[d - 1];
      at[d - 1] = 0;
    }
  }
}

void ReverseElements(int64_t element_bytes, std::vector<std::byte>* bytes) {
  for (auto at = bytes->begin(); at < bytes->end(); at += element_bytes) {
    std::reverse(at, at + element_bytes);
  }
}

const StorageType& TypeOf(const Pickle& pickle, const PickleNode& storage) {
  return *FindStorageType(pickle.at(storage.items[0]).text);
}

}  // namespace

StatusOr<TorchFile> TorchFile::Open(const std::string& path) {
  TorchFile result;
  TESSERA_ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(result.file_.data()),
                               static_cast<size_t>(result.file_.size()));
  if (bytes.empty()) return DataLoss(path, ": is empty");
  TESSERA_RETURN_IF_ERROR(StoredZip::Is(bytes) ? result.OpenArchive(bytes)
                                               : result.OpenLegacy(bytes));
  return result;
}

// <name>/data.pkl, <name>/byteorder, and a file <name>/data/<key> for each storage.
Status TorchFile::OpenArchive(std::string_view bytes) {
  TESSERA_ASSIGN_OR_RETURN(const StoredZip zip, StoredZip::Read(bytes, path()));
  constexpr std::string_view kProgram = "/data.pkl";
  std::string prefix;
  Storages files;
  for (const StoredZip::Entry& entry : zip.entries()) {
    files[entry.name] = entry.data;
    const size_t slash = entry.name.find('/');
    if (slash != std::string_view::npos && entry.name.substr(slash) == kProgram) {
      prefix = std::string(entry.name.substr(0, slash + 1));
    }
  }
  if (prefix.empty())
    return InvalidArgument(path(), ": the zip archive has no data.pkl of torch's");
  TESSERA_ASSIGN_OR_RETURN(pickle_, Pickle::Read(files.at(prefix + "data.pkl"), path()));
  const auto order = files.find(prefix + "byteorder");
  if (order != files.end()) {
    big_endian_ = order->second == "big";
    if (!big_endian_ && order->second != "little") {
      return InvalidArgument(path(), ": byteorder '", Shown(order->second), "' is not known");
    }
  }
  Storages storages;
  const std::string folder = prefix + "data/";
  for (const auto& [name, data] : files) {
    if (name.substr(0, folder.size()) == folder) storages[name.substr(folder.size())] = data;
  }
  return List(storages);
}

// Pickles of a magic number, a version, a dictionary about the system, the object, and the keys of
// the storages, which follow: the number of elements in 64 bits, then the elements.
Status TorchFile::OpenLegacy(std::string_view bytes) {
  const auto next = [&]() -> StatusOr<Pickle> {
    TESSERA_ASSIGN_OR_RETURN(Pickle pickle, Pickle::Read(bytes, path()));
    bytes.remove_prefix(static_cast<size_t>(pickle.size()));
    return pickle;
  };
  TESSERA_ASSIGN_OR_RETURN(const Pickle magic, next());
  if (magic.root().text != kLegacyMagic) {
    return InvalidArgument(path(), ": a pickle, but no checkpoint that torch.save wrote");
  }
  TESSERA_ASSIGN_OR_RETURN(const Pickle version, next());
  TESSERA_ASSIGN_OR_RETURN(const Pickle system, next());
  const PickleNode* little = system.Find(system.root(), "little_endian");
  if (version.root().integer != kLegacyVersion || little == nullptr || little->integer != 1) {
    return InvalidArgument(path(), ": a checkpoint of another version or byte order than torch's ",
                           kLegacyVersion, ", little-endian");
  }
  TESSERA_ASSIGN_OR_RETURN(pickle_, next());
  TESSERA_ASSIGN_OR_RETURN(const Storages storages, ReadLegacyStorages(bytes));
  return List(storages);
}

StatusOr<TorchFile::Storages> TorchFile::ReadLegacyStorages(std::string_view bytes) const {
  TESSERA_ASSIGN_OR_RETURN(const Pickle keys, Pickle::Read(bytes, path()));
  bytes.remove_prefix(static_cast<size_t>(keys.size()));
  std::unordered_map<std::string_view, int64_t> element_bytes;
  for (const PickleNode& node : pickle_.nodes()) {
    if (node.kind != Kind::kStorage) continue;
    element_bytes[pickle_.at(node.items[1]).text] = TypeOf(pickle_, node).element_bytes;
  }
  Storages storages;
  for (const Pickle::Index index : keys.root().items) {
    const auto found = element_bytes.find(keys.at(index).text);
    uint64_t count = 0;
    if (bytes.size() >= sizeof(count)) std::memcpy(&count, bytes.data(), sizeof(count));
    const bool whole =
        bytes.size() >= sizeof(count) && found != element_bytes.end() &&
        count <= (bytes.size() - sizeof(count)) / static_cast<uint64_t>(found->second);
    if (!whole) {
      return DataLoss(path(), ": storage '", Shown(keys.at(index).text),
                      "' is cut off, or no tensor is made of it");
    }
    bytes.remove_prefix(sizeof(count));
    const size_t size = static_cast<size_t>(count) * static_cast<size_t>(found->second);
    storages[found->first] = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  return storages;
}

Status TorchFile::List(const Storages& storages) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors,
                           TensorsOfStateDict(pickle_, path()));
  for (const NamedTensor& named : tensors) {
    TESSERA_RETURN_IF_ERROR(AddEntry(named.name, pickle_.at(named.tensor), storages));
  }
  return OkStatus();
}

Status TorchFile::AddEntry(const std::string& name, const PickleNode& tensor,
                           const Storages& storages) {
  Entry entry;
  entry.name = name;
  Place place;
  const std::string what = Concat(path(), ": tensor '", name, "'");
  TESSERA_RETURN_IF_ERROR(Locate(what, tensor, storages, &entry, &place));
  // Of a name that is there twice, the last counts.
  const auto [found, added] = by_name_.emplace(name, entries_.size());
  if (added) {
    entries_.push_back(std::move(entry));
    places_.push_back(std::move(place));
  } else {
    entries_[found->second] = std::move(entry);
    places_[found->second] = std::move(place);
  }
  return OkStatus();
}

Status TorchFile::Locate(const std::string& what, const PickleNode& tensor,
                         const Storages& storages, Entry* entry, Place* place) const {
  const PickleNode& storage = pickle_.at(tensor.items[0]);
  const StorageType& type = TypeOf(pickle_, storage);
  entry->dtype = type.dtype;
  entry->shape = IntegersOf(pickle_, pickle_.at(tensor.items[2]));
  place->element_bytes = type.element_bytes;
  place->offset = pickle_.at(tensor.items[1]).integer;
  place->strides = IntegersOf(pickle_, pickle_.at(tensor.items[3]));
  if (storage.items.size() > 4 && pickle_.at(storage.items[4]).kind != Kind::kNone) {
    return InvalidArgument(what, " is of a view of a storage, which is not supported");
  }
  const std::string_view key = pickle_.at(storage.items[1]).text;
  const auto found = storages.find(key);
  if (found == storages.end()) return DataLoss(what, ": its storage '", Shown(key), "' is missing");
  place->storage = found->second;
  const int64_t available = std::ssize(found->second) / type.element_bytes;
  if (pickle_.at(storage.items[3]).integer > available) {
    return DataLoss(what, ": its storage '", Shown(key), "' is cut off");
  }
  const std::optional<int64_t> count = CountOf(entry->shape);
  if (!count || entry->shape.size() != place->strides.size() || entry->shape.size() > kMostDims ||
      place->offset < 0) {
    return DataLoss(what, " has an impossible shape");
  }
  if (*count == 0) return OkStatus();
  if (*count > available) return InvalidArgument(what, " repeats the elements of its storage");
  entry->nbytes = *count * type.element_bytes;
  const std::optional<int64_t> last = LastIndex(place->offset, entry->shape, place->strides);
  if (!last || *last >= available) return DataLoss(what, " reaches beyond its storage");
  return OkStatus();
}

const TorchFile::Entry* TorchFile::Find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

StatusOr<TensorView> TorchFile::Get(std::string_view name, std::vector<std::byte>* made) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return NotFound(path(), ": no tensor '", name, "'");
  const Entry& entry = entries_[found->second];
  const Place& place = places_[found->second];
  const std::optional<DType> dtype = ParseSafetensorsDType(entry.dtype);
  if (!dtype) {
    return InvalidArgument(path(), ": tensor '", name, "': dtype ", entry.dtype,
                           " is not supported");
  }
  TensorView view = {
      .dtype = *dtype, .shape = entry.shape, .data = nullptr, .nbytes = entry.nbytes};
  if (view.nbytes == 0) return view;
  view.data =
      reinterpret_cast<const std::byte*>(place.storage.data()) + place.offset * place.element_bytes;
  if (big_endian_ || !IsRow(entry.shape, place.strides)) {
    made->resize(static_cast<size_t>(view.nbytes));
    CopyRowMajor(view.data, entry.shape, place.strides, place.element_bytes,
                 view.nbytes / place.element_bytes, made->data());
    if (big_endian_) ReverseElements(place.element_bytes, made);
    view.data = made->data();
  }
  const bool booleans =
      *dtype != DType::kBool || std::all_of(view.data, view.data + view.nbytes,
                                            [](std::byte b) { return b <= std::byte{1}; });
  if (!booleans) return DataLoss(path(), ": tensor '", name, "' holds more than booleans");
  return view;
}

nlohmann::json TorchFile::Scalars() const { return ScalarsOf(pickle_); }

}  // namespace tessera::models
