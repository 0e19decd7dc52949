// NumPy's .npy files: one array each (numpy.lib.format, versions 1.0, 2.0 and 3.0).
//
//   TESSERA_ASSIGN_OR_RETURN(NpyArray a, ReadNpy("labels.npy"));
//   TESSERA_RETURN_IF_ERROR(WriteNpy("logits.npy", {DType::kFloat32, {2, 3}, data, 24}));
//
// Reads and writes float32, float64, float16, int64, int32, uint8 and bool, little-endian, in C
// order. Fortran order, other byte orders and other types are refused; NumPy has no bfloat16.
#ifndef TESSERA_CORE_NPY_H_
#define TESSERA_CORE_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/status.h"

namespace tessera {

// An array in a mapped file; `view.data` is aligned to the dtype when NumPy wrote the file.
struct NpyArray {
  MappedFile file;
  TensorView view;
};

// Messages name the path; the file must be exactly as long as its header says.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);

// Writes version 1.0 (2.0 for a header beyond 64 KiB) atomically. InvalidArgument for bfloat16, and
// for a shape that does not take view.nbytes.
absl::Status WriteNpy(const std::string& path, const TensorView& view);

}  // namespace tessera

#endif  // TESSERA_CORE_NPY_H_
