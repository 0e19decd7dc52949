#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/checksum.h"
#include "core/file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr char kIndexFile[] = "checkpoint.json";
constexpr char kTensorFile[] = "tensors.safetensors";
constexpr char kFormat[] = "tessera-checkpoint";
constexpr std::string_view kPrefix = "checkpoint-";

std::vector<int64_t> Sizes(const Shape& shape) { return {shape.begin(), shape.end()}; }

// The elements of a box of `local`, contiguous and on the host.
Tensor BoxData(const CheckpointTensor& t, const BoxMapping& mapping) {
  return CopyTo(BoxView(t.tensor, {mapping.local_begin, mapping.global.size}).ContiguousCopy(),
                Device::Cpu());
}

std::string BoxKey(const CheckpointTensor& t, size_t i) {
  return t.placement.boxes().size() == 1 ? t.name : Concat(t.name, "#", i);
}

absl::Status WriteTensors(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                          Json* index) {
  std::vector<SafetensorsEntry> entries;
  for (const CheckpointTensor& t : tensors) {
    for (size_t i = 0; i < t.placement.boxes().size(); ++i) {
      entries.push_back(
          {BoxKey(t, i), t.tensor.dtype(), Sizes(t.placement.boxes()[i].global.size)});
    }
  }
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, entries));
  for (const CheckpointTensor& t : tensors) {
    Json boxes = Json::array();
    for (size_t i = 0; i < t.placement.boxes().size(); ++i) {
      const BoxMapping& mapping = t.placement.boxes()[i];
      const Tensor data = BoxData(t, mapping);
      TESSERA_RETURN_IF_ERROR(writer.Append(data.raw_data(), data.nbytes()));
      boxes.push_back({{"file", kTensorFile},
                       {"key", BoxKey(t, i)},
                       {"begin", Sizes(mapping.global.begin)},
                       {"size", Sizes(mapping.global.size)},
                       {"crc32c", Crc32c(data.raw_data(), static_cast<size_t>(data.nbytes()))}});
    }
    (*index)[t.name] = {{"dtype", std::string(DTypeName(t.tensor.dtype()))},
                        {"shape", Sizes(t.placement.global_shape())},
                        {"boxes", std::move(boxes)}};
  }
  return writer.Commit();
}

// Sizes from outside: a list of at most kMaxDims non-negative integers.
std::optional<Shape> ReadShape(const Json& json) {
  if (!json.is_array() || json.size() > static_cast<size_t>(kMaxDims)) return std::nullopt;
  Shape shape;
  for (const Json& size : json) {
    if (!size.is_number_integer() || size.get<int64_t>() < 0) return std::nullopt;
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// The part that two boxes of one tensor share; nullopt where they are disjoint.
std::optional<Box> Intersection(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.begin.ndim(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    const int64_t end = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]);
    if (end <= begin) return std::nullopt;
    both.begin[d] = begin;
    both.size[d] = end - begin;
  }
  return both;
}

Shape Minus(const Shape& a, const Shape& b) {
  Shape difference = a;
  for (int d = 0; d < a.ndim(); ++d) difference[d] -= b[d];
  return difference;
}

}  // namespace

std::string CheckpointPath(const std::string& out, int64_t step) {
  return JoinPath(out, Concat(kPrefix, step));
}

absl::Status SaveCheckpoint(const std::string& directory, int64_t step,
                            const std::vector<CheckpointTensor>& tensors, const Json& trainer) {
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory dir, AtomicDirectory::Create(directory));
  Json index = Json::object();
  TESSERA_RETURN_IF_ERROR(
      WriteTensors(JoinPath(dir.temporary_path(), kTensorFile), tensors, &index));
  const Json body = {{"format", kFormat},
                     {"version", 1},
                     {"step", step},
                     {"trainer", trainer},
                     {"tensors", std::move(index)}};
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  const Json whole = {{"body", body}, {"crc32c", Crc32c(text.data(), text.size())}};
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(dir.temporary_path(), kIndexFile),
                          whole.dump(1, ' ', false, Json::error_handler_t::replace)));
  return dir.CommitReplacing();
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  TESSERA_RETURN_IF_ERROR(checkpoint.ReadIndex());
  return checkpoint;
}

absl::Status Checkpoint::ReadIndex() {
  const std::string path = JoinPath(directory_, kIndexFile);
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object() || !whole.contains("body") || !whole.contains("crc32c") ||
      !whole["crc32c"].is_number_unsigned()) {
    return DataLoss(path, ": the index is damaged");
  }
  const Json& body = whole["body"];
  const std::string dumped = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (Crc32c(dumped.data(), dumped.size()) != whole["crc32c"].get<uint64_t>()) {
    return DataLoss(path, ": the checksum does not fit; the index is damaged");
  }
  if (!body.is_object() || body.value("format", "") != kFormat || !body.contains("step") ||
      !body["step"].is_number_integer() || !body.contains("tensors") ||
      !body["tensors"].is_object()) {
    return InvalidArgument(path, ": not an index of a Tessera checkpoint");
  }
  if (body.value("version", 0) != 1) {
    return InvalidArgument(path, ": version ", body["version"].dump(), " is not supported");
  }
  step_ = body["step"].get<int64_t>();
  trainer_ = body.value("trainer", Json::object());
  TESSERA_ASSIGN_OR_RETURN(file_, SafetensorsFile::Open(JoinPath(directory_, kTensorFile)));
  return Verify(body["tensors"]);
}

absl::Status Checkpoint::Verify(const Json& index) {
  const std::string path = JoinPath(directory_, kTensorFile);
  for (const auto& [name, json] : index.items()) {
    const auto broken = [&](const char* what) {
      return DataLoss(directory_, ": tensor '", name, "': ", what);
    };
    if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
        !json.contains("shape") || !json.contains("boxes") || !json["boxes"].is_array()) {
      return broken("the index entry is damaged");
    }
    const auto dtype = ParseDType(json["dtype"].get<std::string>());
    const auto shape = ReadShape(json["shape"]);
    if (!dtype || !shape) return broken("the index entry is damaged");
    Entry entry{*dtype, *shape, {}};
    for (const Json& box : json["boxes"]) {
      if (!box.is_object() || !box.contains("key") || !box["key"].is_string() ||
          !box.contains("crc32c") || !box["crc32c"].is_number_unsigned()) {
        return broken("a box is damaged");
      }
      const auto begin = ReadShape(box.value("begin", Json()));
      const auto size = ReadShape(box.value("size", Json()));
      if (!begin || !size || begin->ndim() != shape->ndim() || size->ndim() != shape->ndim()) {
        return broken("a box is damaged");
      }
      for (int d = 0; d < shape->ndim(); ++d) {
        if ((*begin)[d] > (*shape)[d] || (*size)[d] > (*shape)[d] - (*begin)[d]) {
          return broken("a box leaves the tensor");
        }
      }
      const std::string key = box["key"].get<std::string>();
      TESSERA_ASSIGN_OR_RETURN(const TensorView view, file_.Get(key));
      if (view.dtype != *dtype || view.shape != Sizes(*size)) {
        return broken("dtype or shape differ between index and file");
      }
      if (Crc32c(view.data, static_cast<size_t>(view.nbytes)) != box["crc32c"].get<uint64_t>()) {
        return DataLoss(path, ": tensor '", key,
                        "': the checksum does not fit; the file is damaged");
      }
      entry.boxes.push_back({key, {*begin, *size}});
    }
    entries_[name] = std::move(entry);
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::LoadOne(const Entry& entry, const CheckpointTensor& target) const {
  int64_t missing = 0;
  for (const BoxMapping& mine : target.placement.boxes()) missing += mine.global.size.numel();
  for (const BoxEntry& saved : entry.boxes) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, file_.Get(saved.key));
    const Tensor data = Empty(saved.box.size, entry.dtype);
    if (view.nbytes > 0) std::memcpy(data.raw_data(), view.data, static_cast<size_t>(view.nbytes));
    for (const BoxMapping& mine : target.placement.boxes()) {
      Box both = {mine.global.begin, mine.global.size};
      if (entry.shape.ndim() > 0) {
        const std::optional<Box> shared = Intersection(mine.global, saved.box);
        if (!shared) continue;
        both = *shared;
      }
      Shape local = mine.local_begin;
      const Shape inside = Minus(both.begin, mine.global.begin);
      for (int d = 0; d < local.ndim(); ++d) local[d] += inside[d];
      const Tensor part = BoxView(data, {Minus(both.begin, saved.box.begin), both.size});
      CopyInto(BoxView(target.tensor, {local, both.size}),
               CopyTo(part.ContiguousCopy(), target.tensor.device()));
      missing -= both.size.numel();
    }
  }
  if (missing > 0) {
    return DataLoss(directory_, ": tensor '", target.name, "' lacks ", missing, " elements");
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Load(const std::vector<CheckpointTensor>& tensors) const {
  for (const CheckpointTensor& t : tensors) {
    const auto found = entries_.find(t.name);
    if (found == entries_.end()) {
      return InvalidArgument(directory_, ": tensor '", t.name, "' is missing");
    }
    if (found->second.shape != t.placement.global_shape() ||
        found->second.dtype != t.tensor.dtype()) {
      return InvalidArgument(directory_, ": tensor '", t.name, "' is ", found->second.dtype,
                             found->second.shape, ", expected ", t.tensor.dtype(),
                             t.placement.global_shape());
    }
  }
  if (tensors.size() < entries_.size()) {
    for (const auto& [name, entry] : entries_) {
      const bool wanted = std::any_of(tensors.begin(), tensors.end(),
                                      [&](const auto& t) { return t.name == name; });
      if (!wanted) {
        return InvalidArgument(directory_, ": tensor '", name, "' is not part of this run");
      }
    }
  }
  for (const CheckpointTensor& t : tensors) {
    TESSERA_RETURN_IF_ERROR(LoadOne(entries_.at(t.name), t));
  }
  return absl::OkStatus();
}

std::vector<int64_t> ListCheckpoints(const std::string& out) {
  std::vector<int64_t> steps;
  const auto names = ListDirectory(out);
  if (!names.ok()) return steps;
  for (const std::string& name : *names) {
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    int64_t step = -1;
    const char* end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (result.ec == std::errc() && result.ptr == end && step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> FindNewestCheckpoint(
    const std::string& out, const std::function<void(const std::string&)>& warn) {
  std::vector<int64_t> steps = ListCheckpoints(out);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto checkpoint = Checkpoint::Open(CheckpointPath(out, *step));
    if (checkpoint.ok()) return *std::move(checkpoint);
    warn(Concat("not used: ", Message(checkpoint.status())));
  }
  return std::nullopt;
}

absl::Status PruneCheckpoints(const std::string& out, int64_t keep) {
  const std::vector<int64_t> steps = ListCheckpoints(out);
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(CheckpointPath(out, steps[i])));
  }
  return absl::OkStatus();
}

}  // namespace tessera::train
