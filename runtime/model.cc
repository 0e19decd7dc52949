// SPDX-License-Identifier: Apache-2.0
#include "runtime/model.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/mounted_folder.h"
#include "core/batch_keys.h"
#include "data/chat/chat_tokens.h"
#include "models/classification.h"
#include "models/family.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
#include "runtime/border.h"
#include "runtime/family.h"
#include "runtime/handles.h"
#include "runtime/process.h"
#include "runtime/tensors.h"

namespace tessera::runtime {
namespace {

using models::Capability;

constexpr int64_t kMostBytes = INT64_MAX;

models::LoadOptions LoadOptionsOf(const tsr_load_options& options, DType dtype) {
  models::LoadOptions load;
  load.build.dtype = dtype;
  load.require_weights = true;
  load.map_weights = options.copy_weights == 0;
  load.warn = LogWarning;
  if (options.weights != TSR_WEIGHTS_AS_STORED) load.quantize = kQuantTypes[options.weights - 1];
  if (options.progress != nullptr) {
    load.progress = [options](int64_t done, int64_t total) {
      return options.progress(options.progress_user, static_cast<uint64_t>(done),
                              static_cast<uint64_t>(total)) == 0;
    };
  }
  for (size_t i = 0; i < options.num_adapters; ++i) load.adapters.push_back(options.adapters[i]);
  return load;
}

// What the config.json's family does not do, before any weights are read.
Status CheckLoad(const nlohmann::json& config, const tsr_load_options& options) {
  if (options.weights != TSR_WEIGHTS_AS_STORED) {
    TESSERA_RETURN_IF_ERROR(RefuseRegistered(config, "tsr_load_options: weights",
                                             "hold their weights as they are stored"));
  }
  if (options.num_adapters == 0) return OkStatus();
  return RefuseRegistered(config, "tsr_load_options: adapters", "carry no adapters");
}

void Describe(tsr_model* handle) {
  const models::Model& model = *handle->model;
  const nlohmann::json& config = model.config();
  for (const nn::Parameter* parameter : handle->model->Parameters()) {
    if (parameter->tied_to == nullptr) handle->parameters += parameter->tensor.numel();
  }
  handle->config_text = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  handle->end_tokens = handle->generation.eos_token_ids;
  if (handle->chat.ok() && handle->tokenizer != nullptr) {
    const auto turn = data::EndOfTurn(*handle->chat, *handle->tokenizer);
    std::vector<int64_t>& ends = handle->end_tokens;
    if (turn && std::find(ends.begin(), ends.end(), *turn) == ends.end()) ends.push_back(*turn);
  }
  const auto family = models::FamilyOf(config);
  if (!family.ok()) return;
  handle->model_type = (*family)->model_type;
  const models::Architecture* const architecture = (*family)->ArchitectureOf(config);
  if (architecture == nullptr) return;
  handle->architecture = architecture->name;
  if (architecture->Does(Capability::kTextLabels) || architecture->Does(Capability::kImageLabels)) {
    handle->labels = models::LabelNames(config);
  }
}

// The numbers of TSR_WEIGHTS_* are those of kQuantTypes.
static_assert(std::size(kQuantTypes) == TSR_WEIGHTS_IQ4_XS &&
              kQuantTypes[TSR_WEIGHTS_Q4_K - 1] == QuantType::kQ4K);

// Mounts a file that holds a model; given none, there is a path.
using Mount = std::function<StatusOr<MountedFolder>()>;

Status Load(const char* path, const Mount& mount, const tsr_load_options* given, tsr_model** out) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_load_options options, OptionsOf(given, "tsr_load_options"));
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.copy_weights, "tsr_load_options: copy_weights"));
  TESSERA_RETURN_IF_ERROR(
      CheckArray(options.adapters, options.num_adapters, "tsr_load_options: adapters"));
  for (size_t i = 0; i < options.num_adapters; ++i) {
    TESSERA_RETURN_IF_ERROR(CheckPath(options.adapters[i], "tsr_load_options: adapters"));
  }
  if (options.weights < TSR_WEIGHTS_AS_STORED || options.weights > TSR_WEIGHTS_IQ4_XS) {
    return InvalidArgument("tsr_load_options: weights ", options.weights, " is unknown");
  }
  TESSERA_ASSIGN_OR_RETURN(const DType dtype, ComputeDType(options.dtype));
  const NoGrad no_grad;
  models::OpenOptions open = {.load = LoadOptionsOf(options, dtype),
                              .tokenizer = models::OpenOptions::Want::kIfThere};
  if (options.tokenizer != nullptr) open.tokenizer_folder = options.tokenizer;
  open.before_weights = [&](const models::OpenedModel& opened) {
    return CheckLoad(opened.config, options);
  };
  const Lent making(&open, HandleKind::kMaking);
  auto handle = std::make_unique<tsr_model>();
  models::OpenedModel& opened = *handle;
  if (mount != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(MountedFolder archive, mount());
    TESSERA_ASSIGN_OR_RETURN(opened, models::OpenModel(std::move(archive), open));
  } else {
    TESSERA_ASSIGN_OR_RETURN(opened, models::OpenModel(path, open));
  }
  handle->adapters = static_cast<int>(options.num_adapters);
  Describe(handle.get());
  AddHandle(handle.get(), HandleKind::kModel);
  *out = handle.release();
  return OkStatus();
}

Status LoadPath(const char* path, const tsr_load_options* options, tsr_model** out) {
  TESSERA_RETURN_IF_ERROR(CheckPath(path, "path"));
  if (!PathExists(path)) return NotFound(path, ": no such folder or archive");
  return Load(path, nullptr, options, out);
}

Status LoadMemory(const void* data, size_t size, const tsr_load_options* options, tsr_model** out) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(data, "data"));
  TESSERA_RETURN_IF_ERROR(CheckArray(data, size, "data"));
  const auto mount = [&] {
    const auto bytes = static_cast<int64_t>(size);
    return models::MountModel(MountedFile::OfBytes(data, bytes, nullptr), "memory");
  };
  return Load(nullptr, mount, options, out);
}

Status LoadDescriptor(int descriptor, uint64_t offset, uint64_t length,
                      const tsr_load_options* options, tsr_model** out) {
  const std::string name = Concat("descriptor ", descriptor);
  if (offset > kMostBytes || length > kMostBytes) {
    return InvalidArgument(name, ": ", length, " bytes from ", offset, " on are no part of a file");
  }
  const auto mount = [&]() -> StatusOr<MountedFolder> {
    const auto size = length == 0 ? int64_t{-1} : static_cast<int64_t>(length);
    TESSERA_ASSIGN_OR_RETURN(
        const MountedFile file,
        MountedFile::OfDescriptor(descriptor, static_cast<int64_t>(offset), size, name));
    return models::MountModel(file, name);
  };
  return Load(nullptr, mount, options, out);
}

Status LoadReader(const tsr_reader* given, const tsr_load_options* options, tsr_model** out) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(given, "reader"));
  const tsr_reader reader = *given;
  if (reader.read == nullptr || reader.length > kMostBytes) {
    return InvalidArgument("tsr_reader: ",
                           reader.read == nullptr ? "read is NULL" : "length is no size of a file");
  }
  const auto read = [reader](int64_t offset, void* buffer, int64_t count) {
    const int failure =
        reader.read(reader.user, static_cast<uint64_t>(offset), buffer, static_cast<size_t>(count));
    if (failure == 0) return OkStatus();
    return Failure(StatusCode::kUnavailable, "the reader failed with ", failure, " at byte ",
                   offset);
  };
  const auto mount = [&] {
    return models::MountModel(MountedFile::OfReader(static_cast<int64_t>(reader.length), read),
                              "reader");
  };
  return Load(nullptr, mount, options, out);
}

Status DescribeTo(const tsr_model* model, tsr_model_info* out) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "info"));
  size_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  if (size < sizeof(size) || size > sizeof(tsr_model_info)) {
    return InvalidArgument("tsr_model_info: size is ", size, "; set it to sizeof(tsr_model_info)");
  }
  tsr_model_info info = {};
  info.size = size;
  info.model_type = model->model_type.c_str();
  info.architecture = model->architecture.c_str();
  info.config = model->config_text.c_str();
  info.parameters = model->parameters;
  info.max_positions = model->model->max_positions();
  info.hidden_size = model->model->hidden_size();
  if (model->encoder.ok()) info.embedding_size = model->encoder->size(*model->model);
  info.labels = std::ssize(model->labels);
  info.generates = models::Generates(*model->model) ? 1 : 0;
  info.has_tokenizer = model->tokenizer != nullptr ? 1 : 0;
  const data::Tokenizer* const tokenizer = model->tokenizer.get();
  const auto id_or = [](const std::optional<int32_t>& id) { return int64_t{id.value_or(-1)}; };
  info.bos_token = tokenizer == nullptr ? -1 : id_or(tokenizer->bos_id());
  info.eos_token = tokenizer == nullptr ? -1 : id_or(tokenizer->eos_id());
  info.pad_token = tokenizer == nullptr ? -1 : id_or(tokenizer->pad_id());
  info.end_tokens = model->end_tokens.data();
  info.num_end_tokens = model->end_tokens.size();
  if (model->pictures) {
    info.image_channels = model->pictures->channels();
    info.image_height = model->pictures->height();
    info.image_width = model->pictures->width();
  } else {
    info.vocab_size = model->model->vocab_size();
  }
  std::memcpy(out, &info, size);
  return OkStatus();
}

Status Release(tsr_model* model) {
  if (model == nullptr) return OkStatus();
  TESSERA_RETURN_IF_ERROR(RemoveHandle(model, HandleKind::kModel));
  delete model;
  return OkStatus();
}

}  // namespace

StatusOr<const data::Tokenizer*> TokenizerOf(const tsr_model& model) {
  if (model.tokenizer != nullptr) return model.tokenizer.get();
  return NotFound("the model was loaded without a tokenizer");
}

}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_model_load(const char* path, const tsr_load_options* options, tsr_model** out) {
  return AtBorder([&] { return tessera::runtime::LoadPath(path, options, out); });
}

tsr_status* tsr_model_load_memory(const void* data, size_t size, const tsr_load_options* options,
                                  tsr_model** out) {
  return AtBorder([&] { return tessera::runtime::LoadMemory(data, size, options, out); });
}

tsr_status* tsr_model_load_descriptor(int descriptor, uint64_t offset, uint64_t length,
                                      const tsr_load_options* options, tsr_model** out) {
  return AtBorder(
      [&] { return tessera::runtime::LoadDescriptor(descriptor, offset, length, options, out); });
}

tsr_status* tsr_model_load_reader(const tsr_reader* reader, const tsr_load_options* options,
                                  tsr_model** out) {
  return AtBorder([&] { return tessera::runtime::LoadReader(reader, options, out); });
}

tsr_status* tsr_model_describe(const tsr_model* model, tsr_model_info* info) {
  return AtBorder([&] { return tessera::runtime::DescribeTo(model, info); });
}

const char* tsr_model_label(const tsr_model* model, int64_t label) {
  if (!tessera::runtime::IsHandle(model, tessera::runtime::HandleKind::kModel)) return nullptr;
  if (label < 0 || label >= std::ssize(model->labels)) return nullptr;
  return model->labels[static_cast<size_t>(label)].c_str();
}

tsr_status* tsr_model_release(tsr_model* model) {
  return AtBorder([&] { return tessera::runtime::Release(model); });
}
