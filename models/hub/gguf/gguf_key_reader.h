// SPDX-License-Identifier: Apache-2.0
// The hyperparameters of one architecture in a GGUF file, by their names behind its own; the first
// problem stays.
//
//   GgufKeyReader reader(file, "gemma3");
//   const int64_t width = reader.Needed("embedding_length");     // gemma3.embedding_length
//   reader.MayRead("attention.sliding_window", &window);         // or a list of it for all layers
//   reader.Require("attention.sliding_window", window > 0, "is missing");
//   TESSERA_RETURN_IF_ERROR(reader.status());
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_KEY_READER_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_KEY_READER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"

namespace tessera::models {

class GgufKeyReader {
 public:
  GgufKeyReader(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  template <typename T>
  void MayRead(std::string_view key, T* value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      if (ReadOfLayers(key, value)) return;
    }
    status_.Update(file_.Read(Full(key), value));
  }
  int64_t Needed(std::string_view key) {
    int64_t value = 0;
    if (file_.FindValue(Full(key)) == nullptr) {
      status_.Update(InvalidArgument(file_.path(), ": key '", Full(key), "' is missing"));
    }
    MayRead(key, &value);
    return value;
  }
  void Require(std::string_view key, bool condition, std::string_view problem) {
    if (!condition) {
      status_.Update(InvalidArgument(file_.path(), ": key '", Full(key), "' ", problem));
    }
  }
  const Status& status() const { return status_; }

 private:
  // Of a list with a number for each layer, the one that all have. False: it is no such list.
  bool ReadOfLayers(std::string_view key, int64_t* value) {
    const GgufValue* const found = file_.FindValue(Full(key));
    const auto* const array = found == nullptr ? nullptr : std::get_if<GgufArray>(found);
    if (array == nullptr) return false;
    return std::visit(
        [&](const auto& list) {
          using List = std::decay_t<decltype(list)>;
          if constexpr (std::is_same_v<List, std::vector<int32_t>> ||
                        std::is_same_v<List, std::vector<uint32_t>>) {
            if (list.empty()) return false;
            *value = list[0];
            Require(key, std::ranges::count(list, list[0]) == std::ssize(list),
                    "differs between layers, which is not supported");
            return true;
          }
          return false;
        },
        *array);
  }
  std::string Full(std::string_view key) const { return Concat(architecture_, ".", key); }

  const GgufFile& file_;
  const std::string architecture_;
  Status status_;
};

// The shortest decimal that is this float: 1e-05, where its value is 9.99999974e-06. (std::to_chars
// finds it too, but its tables would add 100 kB to the C library.)
inline double GgufDecimal(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  for (int digits = 1; digits <= 9; ++digits) {
    const int places = digits - 1 - exponent;
    const double unit = std::pow(10, std::abs(places));
    const double near =
        places > 0 ? std::round(value * unit) / unit : std::round(value / unit) * unit;
    if (static_cast<float>(near) == static_cast<float>(value)) return near;
  }
  return value;
}

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_KEY_READER_H_
