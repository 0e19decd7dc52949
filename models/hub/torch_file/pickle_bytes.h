// SPDX-License-Identifier: Apache-2.0
// The bytes of a pickle, one after another. A failure sticks: what follows it reads zeros.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_BYTES_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::models {

class PickleBytes {
 public:
  // `where`, which must outlive this, begins every message.
  PickleBytes(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  size_t position() const { return at_; }

  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (ok()) status_ = InvalidArgument(where_, ": ", parts...);
  }

  std::string_view Bytes(uint64_t count) {
    if (count > bytes_.size() - at_) {
      Fail("the pickle ends within an operation at byte ", at_);
      return {};
    }
    const std::string_view found = bytes_.substr(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return found;
  }
  // Little-endian.
  uint64_t Number(int count) {
    uint64_t value = 0;
    const std::string_view found = Bytes(static_cast<uint64_t>(count));
    for (size_t i = 0; i < found.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(found[i])) << (8 * i);
    }
    return value;
  }
  // Without the line feed at its end.
  std::string_view Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      Fail("the pickle ends within an operation at byte ", at_);
      return {};
    }
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

 private:
  const std::string_view bytes_;
  const std::string& where_;
  Status status_;
  size_t at_ = 0;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_BYTES_H_
