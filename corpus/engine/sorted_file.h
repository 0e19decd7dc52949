// SPDX-License-Identifier: Apache-2.0
// What is to be done with documents, in a file sorted by their numbers.
//
//   struct Drop { int64_t number; int64_t id_offset; };
//   TESSERA_ASSIGN_OR_RETURN(auto drops, SortedFile<Drop>::Open("work/drops"));
//   for (const Drop& drop : drops.Of(document.number)) ...
#ifndef TESSERA_CORPUS_ENGINE_SORTED_FILE_H_
#define TESSERA_CORPUS_ENGINE_SORTED_FILE_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "base/status.h"

namespace tessera::corpus {

template <typename T>
class SortedFile {
 public:
  static StatusOr<SortedFile> Open(const std::string& path) {
    TESSERA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    return SortedFile(std::move(file));
  }

  std::span<const T> all() const {
    return {reinterpret_cast<const T*>(file_.data()),
            static_cast<size_t>(file_.size()) / sizeof(T)};
  }
  // Those with this number.
  std::span<const T> Of(int64_t number) const {
    const std::span<const T> known = all();
    return {std::ranges::lower_bound(known, number, {}, &T::number),
            std::ranges::upper_bound(known, number, {}, &T::number)};
  }

 private:
  explicit SortedFile(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
};

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_ENGINE_SORTED_FILE_H_
