// SPDX-License-Identifier: Apache-2.0
// The texts that a context keeps, as a safetensors file: of text i its tokens `text.i.ids` and, for
// each layer, `text.i.keys.L` and `text.i.values.L`, [1, G, T, D]. The metadata names the format,
// the model's configuration, and the checksum of all tensors.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "base/mounted_folder.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/continuous_batch.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

using models::RestingText;

constexpr char kFormat[] = "tessera context 1";

std::string NameOf(size_t text, const char* what) { return Concat("text.", text, ".", what); }
std::string NameOf(size_t text, size_t tensor) {
  return NameOf(text, Concat(tensor % 2 == 0 ? "keys." : "values.", tensor / 2).c_str());
}

// The model's configuration and the dtype of what it computes.
std::string MarkOf(const tsr_model& model) {
  return Concat(data::HashBytes(model.config_text), " ", model.model->build().dtype);
}

// Tensors with their names, and what is said about them.
struct State {
  std::vector<std::pair<std::string, Tensor>> tensors;
  SafetensorsFile::Metadata metadata;
};

State StateOf(const Call& call) {
  State state;
  models::ContinuousBatch* const kept = call.context().kept.get();
  const size_t count = kept == nullptr ? 0 : kept->RestingTokens().size();
  for (size_t i = 0; i < count; ++i) {
    RestingText text = kept->CopyResting(i);
    state.metadata[NameOf(i, "begin_size")] = Concat(text.begin_size);
    const int64_t size = std::ssize(text.ids);
    state.tensors.emplace_back(NameOf(i, "ids"), Tensor::FromVector(text.ids, {size}));
    for (size_t t = 0; t < text.keys.size(); ++t) {
      state.tensors.emplace_back(NameOf(i, t), std::move(text.keys[t]));
    }
  }
  uint32_t checksum = 0;
  for (const auto& [name, t] : state.tensors) {
    checksum = Crc32c(t.raw_data(), static_cast<size_t>(t.nbytes()), checksum);
  }
  state.metadata["format"] = kFormat;
  state.metadata["model"] = MarkOf(call.model());
  state.metadata["texts"] = Concat(count);
  state.metadata["crc32c"] = Concat(checksum);
  return state;
}

// The file's bytes, in pieces.
using Sink = std::function<Status(const void* bytes, size_t size)>;
Status Write(const State& state, const Sink& sink) {
  std::vector<SafetensorsFile::Entry> entries;
  int64_t end = 0;
  for (const auto& [name, t] : state.tensors) {
    const std::vector<int64_t> shape(t.shape().begin(), t.shape().end());
    const int64_t begin = std::exchange(end, end + static_cast<int64_t>(t.nbytes()));
    entries.push_back({name, std::string(SafetensorsDTypeName(t.dtype())), shape, begin, end});
  }
  const std::string header = safetensors_internal::FormatHeader(entries, state.metadata);
  unsigned char length[8];
  for (size_t i = 0; i < sizeof(length); ++i) {
    length[i] = static_cast<unsigned char>(uint64_t{header.size()} >> (8 * i));
  }
  TESSERA_RETURN_IF_ERROR(sink(length, sizeof(length)));
  TESSERA_RETURN_IF_ERROR(sink(header.data(), header.size()));
  for (const auto& [name, t] : state.tensors) {
    TESSERA_RETURN_IF_ERROR(sink(t.raw_data(), static_cast<size_t>(t.nbytes())));
  }
  return OkStatus();
}

Status Save(tsr_context* context, const char* path) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckPath(path, "path"));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TESSERA_RETURN_IF_ERROR(Write(
      StateOf(call), [&](const void* bytes, size_t size) { return file.Append(bytes, size); }));
  return file.Commit();
}

Status SaveMemory(tsr_context* context, void* data, size_t capacity, size_t* size) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckGiven(size, "size"));
  TESSERA_RETURN_IF_ERROR(CheckArray(data, capacity, "data"));
  const State state = StateOf(call);
  size_t needed = 0;
  TESSERA_RETURN_IF_ERROR(Write(state, [&](const void*, size_t more) {
    needed += more;
    return OkStatus();
  }));
  *size = needed;
  if (capacity == 0) return OkStatus();
  if (needed > capacity) {
    return Failure(StatusCode::kOutOfRange, needed, " bytes do not fit ", capacity);
  }
  auto* to = static_cast<unsigned char*>(data);
  return Write(state, [&](const void* bytes, size_t more) {
    std::memcpy(to, bytes, more);
    to += more;
    return OkStatus();
  });
}

// A number that the metadata has.
StatusOr<int64_t> NumberAt(const SafetensorsFile& file, const std::string& name, int64_t most) {
  const auto found = file.metadata().find(name);
  const std::string text = found == file.metadata().end() ? "" : found->second;
  int64_t value = 0;
  bool digits = !text.empty() && text.size() < 19;
  for (const char c : text) {
    digits = digits && c >= '0' && c <= '9';
    if (digits) value = 10 * value + (c - '0');
  }
  if (digits && value <= most) return value;
  return Failure(StatusCode::kDataLoss, file.path(), ": '", name, "' is '", text,
                 "', not a number of 0 to ", most);
}

StatusOr<Tensor> TensorAt(const SafetensorsFile& file, const std::string& name) {
  const StatusOr<TensorView> view = file.Get(name);
  // The caller's file is there: what it lacks was damaged.
  if (!view.ok()) return Failure(StatusCode::kDataLoss, view.status().message());
  const Tensor t = Empty(Shape(view->shape), view->dtype);
  std::memcpy(t.raw_data(), view->data, static_cast<size_t>(view->nbytes));
  return t;
}

Status CheckFile(const SafetensorsFile& file, const tsr_model& model) {
  const auto at = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (at("format") != kFormat) {
    return InvalidArgument(file.path(), ": is not what tsr_context_save writes");
  }
  if (at("model") != MarkOf(model)) {
    return InvalidArgument(file.path(),
                           ": is of another model: its configuration or its dtype differ");
  }
  uint32_t checksum = 0;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name));
    checksum = Crc32c(view.data, static_cast<size_t>(view.nbytes), checksum);
  }
  if (at("crc32c") == Concat(checksum)) return OkStatus();
  return Failure(StatusCode::kDataLoss, file.path(), ": its bytes do not have its checksum");
}

StatusOr<RestingText> TextAt(const SafetensorsFile& file, size_t i, const tsr_model& model,
                             int adapter) {
  RestingText text = {.ids = {}, .adapter = adapter};
  TESSERA_ASSIGN_OR_RETURN(text.begin_size, NumberAt(file, NameOf(i, "begin_size"), INT64_MAX / 2));
  TESSERA_ASSIGN_OR_RETURN(const Tensor ids, TensorAt(file, NameOf(i, "ids")));
  if (ids.dtype() != DType::kInt64 || ids.ndim() != 1) {
    return Failure(StatusCode::kDataLoss, file.path(), ": '", NameOf(i, "ids"), "' is ", ids);
  }
  text.ids = ids.ToVector<int64_t>();
  const auto tensors = 2 * static_cast<size_t>(model.model->num_cache_layers());
  for (size_t t = 0; t < tensors; ++t) {
    TESSERA_ASSIGN_OR_RETURN(Tensor keys, TensorAt(file, NameOf(i, t)));
    text.keys.push_back(std::move(keys));
  }
  return text;
}

Status RestoreFrom(const Call& call, const std::string& path) {
  tsr_context& context = call.context();
  if (context.options.kept_texts == 0) {
    return Failure(StatusCode::kFailedPrecondition,
                   "the context keeps no texts; set tsr_context_options.kept_texts");
  }
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  TESSERA_RETURN_IF_ERROR(CheckFile(file, call.model()));
  TESSERA_ASSIGN_OR_RETURN(const int64_t count,
                           NumberAt(file, "texts", std::ssize(file.entries())));
  auto kept = MakeBatch(call.model(), context.options);
  for (int64_t i = std::max<int64_t>(0, count - context.options.kept_texts); i < count; ++i) {
    TESSERA_ASSIGN_OR_RETURN(RestingText text,
                             TextAt(file, static_cast<size_t>(i), call.model(), call.adapter()));
    const Status added = kept->AddResting(std::move(text));
    if (!added.ok()) return Status(added.code(), Concat(file.path(), ": ", Message(added)));
  }
  context.kept = std::move(kept);
  return OkStatus();
}

Status Restore(tsr_context* context, const char* path) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckPath(path, "path"));
  return RestoreFrom(call, path);
}

Status RestoreMemory(tsr_context* context, const void* data, size_t size) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckGiven(data, "data"));
  TESSERA_RETURN_IF_ERROR(CheckArray(data, size, "data"));
  constexpr char kName[] = "context.safetensors";
  const MountedFolder folder(
      "memory", {{kName, MountedFile::OfBytes(data, static_cast<int64_t>(size), nullptr)}});
  return RestoreFrom(call, JoinPath(folder.path(), kName));
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_context_save(tsr_context* context, const char* path) {
  return AtBorder([&] { return tessera::runtime::Save(context, path); });
}

tsr_status* tsr_context_restore(tsr_context* context, const char* path) {
  return AtBorder([&] { return tessera::runtime::Restore(context, path); });
}

tsr_status* tsr_context_save_memory(tsr_context* context, void* data, size_t capacity,
                                    size_t* size) {
  return AtBorder([&] { return tessera::runtime::SaveMemory(context, data, capacity, size); });
}

tsr_status* tsr_context_restore_memory(tsr_context* context, const void* data, size_t size) {
  return AtBorder([&] { return tessera::runtime::RestoreMemory(context, data, size); });
}
