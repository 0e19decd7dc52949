// SPDX-License-Identifier: Apache-2.0
// tar archives as folders: what `tar cf model.tar -C DIR .` or Python's tarfile wrote is read where
// it lies, without being unpacked.
//
//   TESSERA_ASSIGN_OR_RETURN(const MountedFolder folder, MountTar("model.tar"));
//   auto model = models::LoadModel(folder.path());                 // "<model.tar>"
//
//   MountTar(MountedFile::OfBytes(begin, size, nullptr), "memory");
//   MountTar(MountedFile::OfDescriptor(fd, offset, size, "bundle").value(), "bundle");
//   MountTar(MountedFile::OfReader(size, read), "asset");
//
// The formats are ustar, GNU's with its long names, and pax (IEEE Std 1003.1, `pax`). An archive
// all of whose files lie in one folder (`tar cf model.tar gpt2`) is that folder. Its files are
// parts of the archive's bytes: nothing is copied.
//
// Refused in one line that names the archive and the entry: archives that are compressed, cut off
// or without their end, damaged headers, sizes beyond the end, two entries of one name, names that
// are absolute or have "..", links, devices and sparse files.
#ifndef TESSERA_BASE_TAR_ARCHIVE_H_
#define TESSERA_BASE_TAR_ARCHIVE_H_

#include <string>

#include "base/mounted_folder.h"
#include "base/status.h"

namespace tessera {

// The file at `path`, mapped.
StatusOr<MountedFolder> MountTar(const std::string& path);

// An archive that is read elsewhere; `name` is what messages call it.
StatusOr<MountedFolder> MountTar(const MountedFile& archive, const std::string& name);

}  // namespace tessera

#endif  // TESSERA_BASE_TAR_ARCHIVE_H_
