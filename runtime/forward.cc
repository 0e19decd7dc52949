// SPDX-License-Identifier: Apache-2.0
// Named tensors through a model, the vector of a text, and scores of documents.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "models/input_check.h"
#include "models/open/text_encoder.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/family.h"
#include "runtime/tensors.h"
#include "runtime/tessera.h"

namespace tessera::runtime {
namespace {

using models::Model;

// By TSR_POOLING_*.
constexpr models::Pooling kPoolings[] = {models::Pooling::kMean, models::Pooling::kFirst,
                                         models::Pooling::kLast, models::Pooling::kPooler};

Status Forward(tsr_context* context, const tsr_named_tensor* in, size_t n,
               const tsr_forward_options* given, tsr_named_tensor** out, size_t* m) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(m, "m"));
  TESSERA_ASSIGN_OR_RETURN(const tsr_forward_options options,
                           OptionsOf(given, "tsr_forward_options"));
  TESSERA_RETURN_IF_ERROR(
      CheckFlag(options.all_hidden_states, "tsr_forward_options: all_hidden_states"));
  constexpr char kSource[] = "tsr_forward";
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Bundle::Entry> tensors, TensorsOf(kSource, in, n));
  const Model& model = *call.model().model;
  TESSERA_ASSIGN_OR_RETURN(const Bundle inputs,
                           models::InputsFromNamed(kSource, model, tensors, call.adapter()));
  const Bundle outputs = model.Run(inputs, {.context = {.adapter = call.adapter()},
                                            .all_hidden_states = options.all_hidden_states != 0});
  std::vector<Bundle::Entry> given_out;
  for (const Bundle::Entry& entry : outputs.entries()) {
    if (entry.second.defined()) given_out.push_back(entry);
  }
  *out = ToNamedTensors(given_out);
  *m = given_out.size();
  return OkStatus();
}

// What a caller's options say, and whether `capacity` is the size of the vector.
StatusOr<models::EmbedOptions> HowToEmbed(const Call& call, const models::TextEncoder& encoder,
                                          const tsr_embed_options& options, size_t capacity) {
  TESSERA_RETURN_IF_ERROR(CheckFlag(options.normalise, "tsr_embed_options: normalise"));
  if (options.pooling < TSR_POOLING_MEAN || options.pooling > TSR_POOLING_OF_MODEL) {
    return InvalidArgument("tsr_embed_options: pooling ", options.pooling, " is unknown");
  }
  const Model& model = *call.model().model;
  const bool of_model = options.pooling == TSR_POOLING_OF_MODEL;
  models::EmbedOptions how = {.adapter = call.adapter()};
  if (!of_model) how.pooling = kPoolings[options.pooling];
  // 0 leaves a listed folder's modules as they are.
  if (options.normalise != 0 || !encoder.listed()) how.normalise = options.normalise != 0;
  const int64_t size = of_model ? encoder.size(model) : model.hidden_size();
  if (size > 0 && capacity != static_cast<size_t>(size)) {
    return InvalidArgument("out: ", capacity, " numbers; an embedding has ", size);
  }
  return how;
}

// The folder's; one that is not supported matters where it is asked for.
StatusOr<models::TextEncoder> EncoderOf(const Call& call, int pooling) {
  TESSERA_RETURN_IF_ERROR(
      RefuseRegistered(call.model().config, "tsr_embed", "give no vectors of texts"));
  if (pooling == TSR_POOLING_OF_MODEL) return call.model().encoder;
  return call.model().encoder.ok() ? *call.model().encoder : models::TextEncoder();
}

Status EmbedRow(const Call& call, const models::TextEncoder& encoder,
                const models::EncodedText& row, const models::EmbedOptions& how, float* out) {
  TESSERA_ASSIGN_OR_RETURN(const auto vectors, encoder.Embed(*call.model().model, {&row, 1}, how));
  std::copy(vectors[0].begin(), vectors[0].end(), out);
  return OkStatus();
}

Status Embed(tsr_context* context, const int64_t* ids, size_t n, const tsr_embed_options* given,
             float* out, size_t capacity) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_embed_options options, OptionsOf(given, "tsr_embed_options"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  TESSERA_ASSIGN_OR_RETURN(const models::TextEncoder encoder, EncoderOf(call, options.pooling));
  TESSERA_ASSIGN_OR_RETURN(const models::EmbedOptions how,
                           HowToEmbed(call, encoder, options, capacity));
  return EmbedRow(call, encoder, {.ids = std::vector<int64_t>(ids, ids + n)}, how, out);
}

Status EmbedText(tsr_context* context, const char* text, size_t length,
                 const tsr_embed_options* given, float* out, size_t capacity) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(tsr_embed_options options, OptionsOf(given, "tsr_embed_options"));
  if (given == nullptr) options.pooling = TSR_POOLING_OF_MODEL;
  TESSERA_RETURN_IF_ERROR(CheckArray(text, length, "text"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(out, "out"));
  if (options.max_tokens < 0) {
    return InvalidArgument("tsr_embed_options: max_tokens must be at least 0, not ",
                           options.max_tokens);
  }
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(call.model()));
  TESSERA_ASSIGN_OR_RETURN(const models::TextEncoder encoder, EncoderOf(call, options.pooling));
  TESSERA_ASSIGN_OR_RETURN(models::EmbedOptions how, HowToEmbed(call, encoder, options, capacity));
  if (given == nullptr) how.normalise = std::nullopt;
  models::TextOptions reads = {.max_tokens = options.max_tokens, .adapter = call.adapter()};
  if (options.prompt != nullptr) reads.prompt = options.prompt;
  const StatusOr<models::EncodedText> row = encoder.TextOf(
      *call.model().model, *tokenizer, std::string_view(length == 0 ? "" : text, length), reads);
  if (!row.ok()) return InvalidArgument("text ", Message(row.status()));
  return EmbedRow(call, encoder, *row, how, out);
}

Status Rerank(tsr_context* context, const char* query, size_t query_length,
              const char* const* documents, const size_t* lengths, size_t n, double* scores) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckArray(query, query_length, "query"));
  TESSERA_RETURN_IF_ERROR(CheckArray(documents, n, "documents"));
  TESSERA_RETURN_IF_ERROR(CheckArray(lengths, n, "lengths"));
  TESSERA_RETURN_IF_ERROR(CheckArray(scores, n, "scores"));
  TESSERA_RETURN_IF_ERROR(
      RefuseRegistered(call.model().config, "tsr_rerank", "give no scores of texts"));
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(call.model()));
  TESSERA_ASSIGN_OR_RETURN(const models::TextEncoder encoder, call.model().encoder);
  const Model& model = *call.model().model;
  TESSERA_RETURN_IF_ERROR(encoder.CheckScores(model));
  std::vector<models::EncodedText> rows;
  for (size_t i = 0; i < n; ++i) {
    TESSERA_RETURN_IF_ERROR(CheckArray(documents[i], lengths[i], "documents"));
    StatusOr<models::EncodedText> row = encoder.PairOf(
        model, *tokenizer, std::string_view(query_length == 0 ? "" : query, query_length),
        std::string_view(lengths[i] == 0 ? "" : documents[i], lengths[i]),
        {.adapter = call.adapter()});
    if (!row.ok()) return InvalidArgument("documents: ", i, ": ", Message(row.status()));
    rows.push_back(*std::move(row));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> found,
                           encoder.Score(model, rows, call.adapter()));
  std::copy(found.begin(), found.end(), scores);
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_forward(tsr_context* context, const tsr_named_tensor* in, size_t n,
                        tsr_named_tensor** out, size_t* m) {
  return AtBorder([&] { return tessera::runtime::Forward(context, in, n, nullptr, out, m); });
}

tsr_status* tsr_forward_with(tsr_context* context, const tsr_named_tensor* in, size_t n,
                             const tsr_forward_options* options, tsr_named_tensor** out,
                             size_t* m) {
  return AtBorder([&] { return tessera::runtime::Forward(context, in, n, options, out, m); });
}

tsr_status* tsr_embed(tsr_context* context, const int64_t* ids, size_t n,
                      const tsr_embed_options* options, float* out, size_t capacity) {
  return AtBorder([&] { return tessera::runtime::Embed(context, ids, n, options, out, capacity); });
}

tsr_status* tsr_embed_text(tsr_context* context, const char* text, size_t length,
                           const tsr_embed_options* options, float* out, size_t capacity) {
  return AtBorder(
      [&] { return tessera::runtime::EmbedText(context, text, length, options, out, capacity); });
}

tsr_status* tsr_rerank(tsr_context* context, const char* query, size_t query_length,
                       const char* const* documents, const size_t* lengths, size_t n,
                       double* scores) {
  return AtBorder([&] {
    return tessera::runtime::Rerank(context, query, query_length, documents, lengths, n, scores);
  });
}
