// SPDX-License-Identifier: Apache-2.0
// The entries of a zip archive whose files are not compressed, as torch writes them, in place.
//
//   TESSERA_ASSIGN_OR_RETURN(const StoredZip zip, StoredZip::Read(bytes, "pytorch_model.bin"));
//   for (const StoredZip::Entry& entry : zip.entries()) ... entry.name, entry.data
//
// Debian's libraries for zip (libzip, minizip) read entries into memory; here they are to be
// mapped, and what that takes is the central directory (APPNOTE.TXT 4.3, with zip64) alone.
// Compressed and encrypted entries, and archives of several disks, are refused. Check sums are not
// looked at: torch can be told to write none, and checking would read every byte.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_STORED_ZIP_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_STORED_ZIP_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::models {

class StoredZip {
 public:
  struct Entry {
    std::string_view name;
    std::string_view data;
  };

  // Whether the bytes begin as an archive does.
  static bool Is(std::string_view bytes);
  // Of bytes that outlive the result; `where` begins every message.
  static StatusOr<StoredZip> Read(std::string_view bytes, const std::string& where);

  // In the directory's order.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_STORED_ZIP_H_
