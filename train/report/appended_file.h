// SPDX-License-Identifier: Apache-2.0
// A file that grows by what is appended to it; what is appended reaches it at once.
//
//   TESSERA_ASSIGN_OR_RETURN(AppendedFile file, AppendedFile::Create("out/rows.csv",
//   "step,loss\n")); TESSERA_RETURN_IF_ERROR(file.Append("1,3.5\n"));
#ifndef TESSERA_TRAIN_REPORT_APPENDED_FILE_H_
#define TESSERA_TRAIN_REPORT_APPENDED_FILE_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::train {

class AppendedFile {
 public:
  // Replaces an existing file by `content`, as WriteFileAtomically does.
  static StatusOr<AppendedFile> Create(const std::string& path, std::string_view content);

  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&& other) noexcept;
  ~AppendedFile();

  Status Append(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  AppendedFile(std::string path, int descriptor);

  std::string path_;
  int descriptor_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_APPENDED_FILE_H_
