// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/saved_files.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"

namespace tessera::dist {
namespace {

// dst (contiguous, of `part`'s size) = the region `part` of row-major elements of `whole`.
void GatherRows(const std::byte* whole, const Shape& size, const Box& part, size_t width,
                std::byte* dst) {
  const int ndim = size.ndim();
  const Shape strides = ContiguousStrides(size);
  // The dims from `dim` on lie in one stretch.
  int dim = ndim;
  int64_t run = 1;
  while (dim > 0) {
    --dim;
    run *= part.size[dim];
    if (part.size[dim] != size[dim]) break;
  }
  int64_t rows = 1;
  for (int d = 0; d < dim; ++d) rows *= part.size[d];
  const size_t bytes = static_cast<size_t>(run) * width;
  Shape at = part.begin;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; ++d) offset += at[d] * strides[d];
    std::memcpy(dst + static_cast<size_t>(row) * bytes, whole + static_cast<size_t>(offset) * width,
                bytes);
    for (int d = dim - 1; d >= 0 && ++at[d] == part.begin[d] + part.size[d]; --d) {
      at[d] = part.begin[d];
    }
  }
}

}  // namespace

SavedFiles::SavedFiles(std::string directory) : directory_(std::move(directory)) {}

StatusOr<TensorView> SavedFiles::Get(const SavedPiece& saved, DType dtype) {
  auto file = open_.find(saved.file);
  if (file == open_.end()) {
    TESSERA_ASSIGN_OR_RETURN(SafetensorsFile opened,
                             SafetensorsFile::Open(JoinPath(directory_, saved.file)));
    file = open_.emplace(saved.file, std::move(opened)).first;
  }
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, file->second.Get(saved.key));
  const Shape expected = saved.piece.shape();
  if (view.dtype != dtype || view.shape != std::vector<int64_t>(expected.begin(), expected.end())) {
    return DataLoss(file->second.path(), ": tensor '", saved.key,
                    "': dtype or shape are not those of the index");
  }
  return view;
}

Status SavedFiles::Verify(const SavedPiece& saved, DType dtype) {
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, Get(saved, dtype));
  if (Crc32c(view.data, static_cast<size_t>(view.nbytes)) == saved.crc32c) return OkStatus();
  return DataLoss(JoinPath(directory_, saved.file), ": tensor '", saved.key,
                  "': the checksum does not fit; the file is damaged");
}

void CopyPart(const std::byte* array, const Shape& whole, const Box& part, const Tensor& place) {
  const size_t width = DTypeSize(place.dtype());
  if (place.device().is_cpu() && place.is_contiguous()) {
    GatherRows(array, whole, part, width, static_cast<std::byte*>(place.raw_data()));
    return;
  }
  const Tensor rows = Empty(part.size, place.dtype());
  GatherRows(array, whole, part, width, static_cast<std::byte*>(rows.raw_data()));
  CopyInto(place, CopyTo(rows, place.device()));
}

}  // namespace tessera::dist
