// SPDX-License-Identifier: Apache-2.0
// Texts and pictures as a model takes them.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/sequence_pair.h"
#include "models/family.h"
#include "models/generation/special_tokens.h"
#include "runtime/border.h"
#include "runtime/give_out.h"
#include "runtime/handles.h"
#include "runtime/model.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

// A text as the model reads it: a prompt, or the row that an encoder's inputs are.
StatusOr<std::vector<int64_t>> TokensToRead(const data::Tokenizer& tokenizer,
                                            const models::Model& model, std::string_view text,
                                            const data::EncodeOptions& options) {
  const bool is_row = !models::Generates(model) && tokenizer.row_template(/*pair=*/false);
  if (!is_row) return models::EncodePrompt(tokenizer, model.config(), text, options);
  TESSERA_ASSIGN_OR_RETURN(const data::EncodedRow row,
                           data::BuildRow(tokenizer, tokenizer.Encode(text, options)));
  return std::vector<int64_t>(row.ids.begin(), row.ids.end());
}

Status Tokenize(const tsr_model* model, const char* text, size_t length,
                const tsr_tokenize_options* given, int64_t* ids, size_t capacity, size_t* count) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(count, "count"));
  TESSERA_RETURN_IF_ERROR(CheckArray(text, length, "text"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, capacity, "ids"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_tokenize_options options,
                           OptionsOf(given, "tsr_tokenize_options"));
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.text_only, "tsr_tokenize_options: text_only"));
  TESSERA_RETURN_IF_ERROR(
      CheckFlag(options.special_as_text, "tsr_tokenize_options: special_as_text"));
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(*model));
  const std::string_view view(length == 0 ? "" : text, length);
  const data::EncodeOptions encode = {.parse_special = options.special_as_text == 0};
  std::vector<int64_t> all;
  if (options.text_only != 0) {
    const std::vector<int32_t> encoded = tokenizer->Encode(view, encode);
    all.assign(encoded.begin(), encoded.end());
  } else {
    TESSERA_ASSIGN_OR_RETURN(all, TokensToRead(*tokenizer, *model->model, view, encode));
  }
  return GiveOut(all, ids, capacity, count, "tokens");
}

Status Detokenize(const tsr_model* model, const int64_t* ids, size_t n,
                  const tsr_detokenize_options* given, char* text, size_t capacity,
                  size_t* length) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(length, "length"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckArray(text, capacity, "text"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_detokenize_options options,
                           OptionsOf(given, "tsr_detokenize_options"));
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.skip_special, "tsr_detokenize_options: skip_special"));
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(*model));
  // Either may know more: rows of the model that no token uses, tokens that the model has no rows
  // of.
  const int64_t known = std::max(tokenizer->vocab_size(), model->model->vocab_size());
  std::vector<int32_t> narrow;
  for (size_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= known) {
      return InvalidArgument("ids: ", ids[i], " (position ", i, ") is no token");
    }
    narrow.push_back(static_cast<int32_t>(ids[i]));
  }
  const std::string decoded =
      tokenizer->Decode(narrow, {.skip_special = options.skip_special != 0});
  return GiveOut(std::vector<char>(decoded.begin(), decoded.end()), text, capacity, length,
                 "bytes of text");
}

Status PixelValues(const tsr_model* model, const uint8_t* pixels, int64_t height, int64_t width,
                   int64_t channels, float* values, size_t capacity, size_t* count) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(count, "count"));
  TESSERA_RETURN_IF_ERROR(CheckArray(values, capacity, "values"));
  if (!model->pictures) return InvalidArgument("the model takes no pictures");
  // Far beyond any picture, and far from an overflow.
  constexpr int64_t kLongestSide = 1 << 16;
  if (height < 1 || width < 1 || height > kLongestSide || width > kLongestSide ||
      (channels != 1 && channels != 3)) {
    return InvalidArgument("a picture of ", height, " x ", width, " pixels of ", channels,
                           " channels; sides are 1 to ", kLongestSide, ", channels 1 or 3");
  }
  TESSERA_RETURN_IF_ERROR(CheckGiven(pixels, "pixels"));
  const auto size = static_cast<size_t>(model->pictures->OutputSize());
  std::vector<float> all;
  if (capacity >= size) {
    all.resize(size);
    const data::Image image = {.height = height,
                               .width = width,
                               .channels = channels,
                               .pixels = {pixels, pixels + height * width * channels}};
    model->pictures->Apply(image, all.data());
    return GiveOut(all, values, capacity, count, "numbers");
  }
  *count = size;
  if (capacity == 0) return OkStatus();
  return Failure(StatusCode::kOutOfRange, size, " numbers do not fit ", capacity);
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_tokenize(const tsr_model* model, const char* text, size_t length,
                         const tsr_tokenize_options* options, int64_t* ids, size_t capacity,
                         size_t* count) {
  return AtBorder([&] {
    return tessera::runtime::Tokenize(model, text, length, options, ids, capacity, count);
  });
}

tsr_status* tsr_detokenize(const tsr_model* model, const int64_t* ids, size_t n,
                           const tsr_detokenize_options* options, char* text, size_t capacity,
                           size_t* length) {
  return AtBorder(
      [&] { return tessera::runtime::Detokenize(model, ids, n, options, text, capacity, length); });
}

tsr_status* tsr_pixel_values(const tsr_model* model, const uint8_t* pixels, int64_t height,
                             int64_t width, int64_t channels, float* values, size_t capacity,
                             size_t* count) {
  return AtBorder([&] {
    return tessera::runtime::PixelValues(model, pixels, height, width, channels, values, capacity,
                                         count);
  });
}
