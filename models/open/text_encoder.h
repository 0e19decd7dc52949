// SPDX-License-Identifier: Apache-2.0
// Texts as vectors, and documents scored for a query, as sentence-transformers' SentenceTransformer
// and CrossEncoder make them. For the commands, the server and the C library alike.
//
//   TESSERA_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel("all-MiniLM-L6-v2", {}));
//   TESSERA_ASSIGN_OR_RETURN(const TextEncoder encoder, opened.encoder);
//   TESSERA_ASSIGN_OR_RETURN(const EncodedText row, encoder.TextOf(*opened.model,
//   *opened.tokenizer,
//                                                                  "A man is eating food."));
//   TESSERA_ASSIGN_OR_RETURN(const auto vectors, encoder.Embed(*opened.model, {&row, 1}));
//
// A folder with modules.json is followed (models/open/sentence_modules.h). The vector of another
// model is the mean of what its last layer gives for the tokens, of length 1.
#ifndef TESSERA_MODELS_OPEN_TEXT_ENCODER_H_
#define TESSERA_MODELS_OPEN_TEXT_ENCODER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "models/open/sentence_modules.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// A text, or two, as the row that a model reads.
struct EncodedText {
  std::vector<int64_t> ids;
  std::vector<int64_t> types = {};  // token types; none: all 0
  int64_t prompt_tokens = 0;        // of them, those of the prompt, which poolings may leave out
};

// How a text becomes a row.
struct TextOptions {
  // Put before the text. Unset: the folder's default prompt.
  std::optional<std::string> prompt = std::nullopt;
  // What is longer is cut. 0: as the folder says; where it says nothing, what is too long for the
  // model is an error.
  int64_t max_tokens = 0;
  int adapter = 0;
};

// How rows become vectors.
struct EmbedOptions {
  // Of length 1 or not. Unset: as the folder's modules say; without any, of length 1.
  std::optional<bool> normalise = std::nullopt;
  // So many numbers of the vector, the first (of a model that was trained for it); of length 1
  // again where the whole one is. 0: all.
  int64_t dimensions = 0;
  // Instead of the folder's modules.
  std::optional<Pooling> pooling = std::nullopt;
  int adapter = 0;
};

// What makes rows of texts and vectors of rows. Safe from several threads.
class TextEncoder {
 public:
  // Means and length 1.
  TextEncoder() = default;
  // Of the folder that was opened and that of the tokenizer, of which files say how long texts are.
  // What is wrong there is said where texts are asked for.
  static StatusOr<TextEncoder> OfFolder(const std::string& folder,
                                        const std::string& tokenizer_folder,
                                        const nlohmann::json& config, bool hides_paths = false);

  // Whether the folder lists modules, which then decide about everything.
  bool listed() const { return listed_; }
  // InvalidArgument for a model that cannot give vectors of texts, or scores.
  Status CheckEmbeds(const Model& model) const;
  Status CheckScores(const Model& model) const;

  // Numbers in an embedding; 0: it gives none.
  int64_t size(const Model& model) const;

  // The prompt of this name. InvalidArgument, with the names that there are, for another one.
  StatusOr<std::string> PromptOf(const std::string& name) const;

  // A text's row, and the row of a query with a document. InvalidArgument for what is too long, or
  // empty.
  StatusOr<EncodedText> TextOf(const Model& model, const data::Tokenizer& tokenizer,
                               std::string_view text, const TextOptions& options = {}) const;
  StatusOr<EncodedText> PairOf(const Model& model, const data::Tokenizer& tokenizer,
                               std::string_view query, std::string_view document,
                               const TextOptions& options = {}) const;
  // The row of ids, cut where a text's would be. The prompt of the options is not theirs.
  StatusOr<EncodedText> IdsOf(const Model& model, std::vector<int64_t> ids,
                              const TextOptions& options = {}) const;

  // The vector of each row, with the bits that it has alone. InvalidArgument for ids that the model
  // does not take.
  StatusOr<std::vector<std::vector<float>>> Embed(const Model& model,
                                                  std::span<const EncodedText> rows,
                                                  const EmbedOptions& options = {}) const;

  // How relevant the document of each row is, as the folder's activation makes it of the logit:
  // between 0 and 1 unless that is the identity.
  StatusOr<std::vector<double>> Score(const Model& model, std::span<const EncodedText> rows,
                                      int adapter = 0) const;

 private:
  std::string Prepared(const data::Tokenizer& tokenizer, std::string_view text) const;
  StatusOr<EncodedText> RowOf(const Model& model, const data::Tokenizer& tokenizer,
                              std::string_view first, std::optional<std::string_view> second,
                              const TextOptions& options) const;
  // So many tokens at most, what is longer is cut; 0: nothing is.
  int64_t MostTokens(const Model& model, bool pair, const TextOptions& options) const;
  void Cut(int64_t most, std::vector<int64_t>* ids) const;

  SentenceModules modules_ = {
      .steps = {{.kind = SentenceStep::Kind::kPool}, {.kind = SentenceStep::Kind::kNormalise}}};
  bool listed_ = false;       // modules.json is there: what is too long is cut
  int64_t usual_tokens_ = 0;  // that the tokenizer and the model's configuration allow; 0: any
  bool cuts_begin_ = false;   // `truncation_side` is left
  bool sigmoid_ = true;       // of a score
  bool classifies_ = false;   // with one label
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_TEXT_ENCODER_H_
