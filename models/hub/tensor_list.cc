// SPDX-License-Identifier: Apache-2.0
#include "models/hub/tensor_list.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "core/tensor.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// nullopt: a size is negative, or 64 bits do not hold the product.
std::optional<int64_t> Elements(const std::vector<int64_t>& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  return elements;
}

// Whether the view has as many elements as there are, and reaches none beyond them.
bool LiesWithin(const ListedTensor& tensor, int64_t elements) {
  if (tensor.sizes.empty() && tensor.strides.empty()) return true;
  if (tensor.sizes.size() != tensor.strides.size() ||
      std::ssize(tensor.sizes) > int64_t{kMaxDims} || Elements(tensor.sizes) != elements) {
    return false;
  }
  int64_t last = 0;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    int64_t reach = 0;
    if (tensor.strides[i] < 0 ||
        __builtin_mul_overflow(tensor.sizes[i] - 1, tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return elements == 0 || last < elements;
}

Status CheckFits(const ListedTensor& tensor, int64_t file_bytes) {
  const std::optional<int64_t> elements = Elements(tensor.entry.shape);
  int64_t bytes = 0;
  const bool fits = elements &&
                    !__builtin_mul_overflow(
                        *elements, static_cast<int64_t>(DTypeSize(tensor.entry.dtype)), &bytes) &&
                    tensor.begin >= 0 && bytes <= file_bytes &&
                    tensor.begin <= file_bytes - bytes && LiesWithin(tensor, *elements);
  if (fits) return OkStatus();
  return DataLoss("tensor '", tensor.entry.name, "' does not lie in the file's ", file_bytes,
                  " bytes");
}

StatusOr<ListedTensor> TensorOf(const json& listed) {
  ListedTensor tensor;
  const std::string dtype = listed.at("dtype").get<std::string>();
  const std::optional<DType> known = ParseSafetensorsDType(dtype);
  if (!known) return InvalidArgument("the type '", dtype, "' is unknown");
  tensor.entry = {listed.at("name").get<std::string>(), *known,
                  listed.at("shape").get<std::vector<int64_t>>()};
  tensor.begin = listed.at("begin").get<int64_t>();
  if (listed.contains("plus")) listed.at("plus").get_to(tensor.plus);
  if (tensor.plus != 0 && !IsFloating(*known)) {
    return InvalidArgument("nothing can be added to '", dtype, "'");
  }
  if (listed.contains("sizes")) listed.at("sizes").get_to(tensor.sizes);
  if (listed.contains("strides")) listed.at("strides").get_to(tensor.strides);
  return tensor;
}

void AddTo(double plus, const Tensor& tensor) {
  DispatchFloat(tensor.dtype(), "tensor list", [&](auto zero) {
    using T = decltype(zero);
    T* const values = tensor.data<T>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      values[i] = static_cast<T>(static_cast<double>(values[i]) + plus);
    }
  });
}

}  // namespace

int64_t ListedTensor::nbytes() const {
  return Elements(entry.shape).value_or(0) * static_cast<int64_t>(DTypeSize(entry.dtype));
}

json TensorListJson(std::string_view file, const std::vector<ListedTensor>& tensors) {
  json list = json::array();
  for (const ListedTensor& tensor : tensors) {
    json& listed = list.emplace_back(json{{"name", tensor.entry.name},
                                          {"dtype", SafetensorsDTypeName(tensor.entry.dtype)},
                                          {"shape", tensor.entry.shape},
                                          {"begin", tensor.begin}});
    if (tensor.plus != 0) listed["plus"] = tensor.plus;
    if (tensor.sizes.empty()) continue;
    listed["sizes"] = tensor.sizes;
    listed["strides"] = tensor.strides;
  }
  return {{"file", file}, {"tensors", std::move(list)}};
}

StatusOr<TensorList> TensorList::Open(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  TensorList list;
  try {
    const std::string file = root.at("file").get<std::string>();
    if (file.find('/') != std::string::npos) {
      return InvalidArgument(path, ": 'file' is not a file name");
    }
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    TESSERA_ASSIGN_OR_RETURN(list.file_, MappedFile::Open(folder + file));
    for (const json& listed : root.at("tensors")) {
      StatusOr<ListedTensor> tensor = TensorOf(listed);
      Status status = tensor.status();
      if (status.ok()) status = CheckFits(*tensor, list.file_.size());
      if (!status.ok()) return Failure(status.code(), path, ": ", Message(status));
      if (!list.by_name_.emplace(tensor->entry.name, list.tensors_.size()).second) {
        return DataLoss(path, ": tensor '", tensor->entry.name, "' is there twice");
      }
      list.tensors_.push_back(*std::move(tensor));
    }
  } catch (const json::exception& error) {
    return DataLoss(path, ": ", error.what());
  }
  return list;
}

StatusOr<TensorView> TensorList::Get(std::string_view name, std::vector<std::byte>* made) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return NotFound(file_.path(), ": no tensor '", name, "'");
  const ListedTensor& tensor = tensors_[found->second];
  const DType dtype = tensor.entry.dtype;
  TensorView view = {dtype, tensor.entry.shape, file_.data() + tensor.begin, tensor.nbytes()};
  if ((tensor.sizes.empty() && tensor.plus == 0) || view.nbytes == 0) return view;
  const auto bytes = static_cast<size_t>(view.nbytes);
  std::vector<std::byte> aligned;
  if (reinterpret_cast<uintptr_t>(view.data) % DTypeSize(dtype) != 0) {
    aligned.assign(view.data, view.data + view.nbytes);
    view.data = aligned.data();
  }
  made->resize(bytes);
  const Shape sizes(tensor.sizes.empty() ? tensor.entry.shape : tensor.sizes);
  const Shape strides = tensor.sizes.empty() ? ContiguousStrides(sizes) : Shape(tensor.strides);
  const Tensor from(Storage::ReadOnly(view.data, bytes, nullptr), sizes, strides, 0, dtype);
  const Tensor to(std::make_shared<Storage>(made->data(), bytes, Device::Cpu(), nullptr), sizes,
                  ContiguousStrides(sizes), 0, dtype);
  CopyInto(to, from);
  if (tensor.plus != 0) AddTo(tensor.plus, to);
  view.data = made->data();
  return view;
}

}  // namespace tessera::models
