// SPDX-License-Identifier: Apache-2.0
// Reads a model's configuration (Hugging Face's config.json) into a struct that declares its keys,
// and checks how they go together.
//
//   struct MyConfig {
//     int64_t width = 64;
//     int64_t heads = 4;
//     static const OptionTable& Table();               // base/options.h
//   };
//
//   MyConfig c;
//   ConfigReader reader(json, "my_model");
//   reader.Read(&c);                                   // absent and null keys keep their defaults
//   reader.Require(c.width % c.heads == 0, "'width' is not a multiple of 'heads'");
//   TESSERA_RETURN_IF_ERROR(reader.status());          // the first problem, naming its key
//
// The table refuses by name the keys that change results and are not supported. Other keys stay in
// the json, which the model keeps.
#ifndef TESSERA_MODELS_CONFIG_READER_H_
#define TESSERA_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// Far beyond any model; products of two sizes stay within 64 bits.
inline constexpr double kMostRows = int64_t{1} << 31;  // of a table, and of positions
inline constexpr double kMostWidth = 1 << 20;
inline constexpr double kMostInnerWidth = 1 << 24;
inline constexpr double kMostLayers = 10000;

// Notes of a size, and of a share of elements that dropout sets to zero.
inline OptionNotes SizeBelow(double most) { return {.least = 1, .below = most}; }
inline OptionNotes DropoutShare() { return {.least = 0, .below = 1}; }

class ConfigReader {
 public:
  // `json` must outlive this.
  ConfigReader(const nlohmann::json& json, std::string family)
      : json_(json), family_(std::move(family)) {}

  // The keys of S::Table().
  template <typename S>
  void Read(S* config) {
    Update(S::Table().ApplySupported(json_, source(), config));
  }
  // A key that no table has.
  template <typename T>
  void Read(const char* key, T* value, const OptionNotes& notes = {}) {
    Update(ReadMember(json_, key, source(), value, notes));
  }
  bool Has(const char* key) const;

  void Require(bool condition, const std::string& problem) {
    if (!condition) Update(InvalidArgument(source(), ": ", problem));
  }
  // What was made of a key's value.
  void RequireOk(const char* key, const Status& status) {
    Require(status.ok(), Concat("'", key, "': ", Message(status)));
  }
  // `size` is shared out over `parts`.
  void RequireMultiple(const char* size_key, int64_t size, const char* parts_key, int64_t parts) {
    Require(parts > 0 && size % parts == 0,
            Concat("'", size_key, "' (", size, ") is not a multiple of '", parts_key, "' (", parts,
                   ")"));
  }
  // A row of the vocabulary.
  void RequireToken(const char* key, int64_t id, int64_t vocab_size) {
    Require(id >= 0 && id < vocab_size,
            Concat("'", key, "' (", id, ") is outside of the vocabulary (", vocab_size, ")"));
  }

  // `pad_token_id`: negative ones count from the vocabulary's end, as PyTorch has it; null is none
  // (-1). Where the key is absent, *id is the family's.
  void ReadPaddingToken(int64_t vocab_size, int64_t* id);
  // Which layers slide, where `layer_types` says it; nullopt: it does not.
  std::optional<std::vector<bool>> ReadSlidingLayers(size_t layers);
  // Which of `names` the first of `architectures` is; 0 where the key is absent or empty.
  size_t ReadArchitecture(const std::vector<std::string>& names);

  const Status& status() const { return status_; }

 private:
  std::string source() const { return "config of " + family_; }
  void Update(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  const nlohmann::json& json_;
  const std::string family_;
  Status status_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_CONFIG_READER_H_
