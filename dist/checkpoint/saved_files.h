// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint's pieces, read and checked.
//
//   SavedFiles files(directory);
//   TESSERA_ASSIGN_OR_RETURN(const TensorView view, files.Get(saved, entry.dtype));
//   CopyPart(view.data, saved.piece.box.size, part, place);
#ifndef TESSERA_DIST_CHECKPOINT_SAVED_FILES_H_
#define TESSERA_DIST_CHECKPOINT_SAVED_FILES_H_

#include <cstddef>
#include <map>
#include <string>

#include "base/status.h"
#include "core/placement.h"
#include "core/safetensors.h"
#include "core/tensor.h"
#include "dist/checkpoint/index.h"

namespace tessera::dist {

// Each file is opened when it is first needed, and stays open.
class SavedFiles {
 public:
  explicit SavedFiles(std::string directory);

  // A piece's bytes, which are as many as its dtype and shape say.
  StatusOr<TensorView> Get(const SavedPiece& saved, DType dtype);
  // DataLoss unless the piece is there and its checksum fits.
  Status Verify(const SavedPiece& saved, DType dtype);

 private:
  const std::string directory_;
  std::map<std::string, SafetensorsFile> open_;
};

// place (of part.size, on any device) = the part of a row-major array of the shape `whole`.
void CopyPart(const std::byte* array, const Shape& whole, const Box& part, const Tensor& place);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_SAVED_FILES_H_
