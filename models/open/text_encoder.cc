// SPDX-License-Identifier: Apache-2.0
#include "models/open/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "core/batch_keys.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/sequence_pair.h"
#include "models/classification.h"
#include "models/generation/special_tokens.h"
#include "models/input_check.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using Step = SentenceStep;

// Tokens of a pass, padding included: more make no pass faster, and take memory.
constexpr int64_t kPassTokens = 2048;

// What a model gives for a batch of rows, padded at their ends.
struct Hidden {
  Tensor tokens_BTC;      // float32, on the CPU
  Tensor pooler_BC = {};  // of a model with a pooler
};

Status CheckSize(const Model& model, int adapter, const std::vector<int64_t>& ids) {
  const int64_t positions = model.positions_left(adapter);
  if (ids.empty()) return InvalidArgument("must not be empty");
  if (positions == 0 || std::ssize(ids) <= positions) return OkStatus();
  return InvalidArgument("has ", ids.size(), " tokens; the model has ", positions, " positions");
}

// The positions of a row that count in a pooling.
struct Span {
  int64_t first = 0;
  int64_t end = 0;
};

// Appends what one pooling makes of rows [T, C] of floats.
void Pool(Pooling pooling, const float* rows, const Span& span, int64_t width, const float* pooler,
          float* out) {
  const auto row = [&](int64_t t) { return rows + t * width; };
  switch (pooling) {
    case Pooling::kPooler:
      std::copy(pooler, pooler + width, out);
      return;
    case Pooling::kFirst:
      std::copy(row(span.first), row(span.first) + width, out);
      return;
    case Pooling::kLast:
      std::copy(row(span.end - 1), row(span.end - 1) + width, out);
      return;
    case Pooling::kMax:
      std::copy(row(span.first), row(span.first) + width, out);
      for (int64_t t = span.first + 1; t < span.end; ++t) {
        for (int64_t c = 0; c < width; ++c) out[c] = std::max(out[c], row(t)[c]);
      }
      return;
    case Pooling::kMean:
    case Pooling::kMeanSqrtLength:
    case Pooling::kWeightedMean:
      break;
  }
  const bool weighted = pooling == Pooling::kWeightedMean;
  std::vector<double> sum(static_cast<size_t>(width), 0.0);
  double count = 0;
  for (int64_t t = span.first; t < span.end; ++t) {
    const double weight = weighted ? static_cast<double>(t + 1) : 1;
    for (int64_t c = 0; c < width; ++c) sum[static_cast<size_t>(c)] += weight * row(t)[c];
    count += weight;
  }
  if (pooling == Pooling::kMeanSqrtLength) count = std::sqrt(count);
  for (int64_t c = 0; c < width; ++c) {
    out[c] = static_cast<float>(sum[static_cast<size_t>(c)] / count);
  }
}

// Rows of `width` numbers, each divided by its Euclidean length.
void Normalise(float* numbers, int64_t count, int64_t width) {
  constexpr double kLeast = 1e-12;  // PyTorch's: zeros stay zeros
  for (int64_t i = 0; i < count; ++i, numbers += width) {
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += double{numbers[c]} * numbers[c];
    const double scale = 1 / std::max(std::sqrt(squares), kLeast);
    for (int64_t c = 0; c < width; ++c) numbers[c] = static_cast<float>(numbers[c] * scale);
  }
}

Tensor Normalised(const Tensor& x) {
  Tensor y = x.ContiguousCopy();
  Normalise(y.data<float>(), y.numel() / y.size(-1), y.size(-1));
  return y;
}

Tensor DenseOf(const Step& step, const Tensor& x) {
  const Tensor y = step.activation(Linear(x, step.weight, step.bias, LinearLayout::kOutIn));
  if (!step.residual) return y;
  const bool same = !step.residual_weight.defined();
  return Add(y, same ? x : Linear(x, step.residual_weight, Tensor(), LinearLayout::kOutIn));
}

Tensor Pooled(const Step& step, const Hidden& hidden, const std::vector<const EncodedText*>& rows) {
  const int64_t tokens = hidden.tokens_BTC.size(1);
  const int64_t width = hidden.tokens_BTC.size(2);
  const int64_t parts = std::ssize(step.pooling);
  Tensor pooled = Empty({std::ssize(rows), parts * width}, DType::kFloat32);
  const float* const in = hidden.tokens_BTC.data<float>();
  for (int64_t b = 0; b < std::ssize(rows); ++b) {
    const EncodedText& row = *rows[static_cast<size_t>(b)];
    Span span = {.first = step.include_prompt ? 0 : row.prompt_tokens, .end = std::ssize(row.ids)};
    // A prompt alone: as if it were a text.
    if (span.first >= span.end) span.first = 0;
    for (int64_t p = 0; p < parts; ++p) {
      const Pooling mode = step.pooling[static_cast<size_t>(p)];
      const float* const pooler =
          mode == Pooling::kPooler ? hidden.pooler_BC.data<float>() + b * width : nullptr;
      Pool(mode, in + b * tokens * width, span, width, pooler,
           pooled.data<float>() + (b * parts + p) * width);
    }
  }
  return pooled;
}

// [B, D] as the modules make it.
Tensor VectorsOf(Hidden hidden, const std::vector<Step>& steps,
                 const std::vector<const EncodedText*>& rows) {
  Tensor text;
  for (const Step& step : steps) {
    Tensor& x = step.of_tokens ? hidden.tokens_BTC : text;
    switch (step.kind) {
      case Step::Kind::kPool:
        text = Pooled(step, hidden, rows);
        break;
      case Step::Kind::kDense:
        x = Contiguous(DenseOf(step, x));
        break;
      case Step::Kind::kNormalise:
        x = Normalised(x);
        break;
    }
  }
  return text;
}

Tensor OnCpu(const Tensor& x) {
  return CastCopy(CopyTo(x, Device::Cpu()), DType::kFloat32).ContiguousCopy();
}

// The batch of rows as the model takes it. Rows are padded at their ends, and where a model could
// see the padding, all are of one length.
StatusOr<Bundle> BatchOf(const Model& model, const std::vector<const EncodedText*>& rows,
                         int adapter) {
  const auto count = std::ssize(rows);
  int64_t longest = 0;
  bool typed = false;
  bool padded = false;
  for (const EncodedText* row : rows) {
    longest = std::max(longest, std::ssize(row->ids));
    typed = typed || !row->types.empty();
    padded = padded || row->ids.size() != rows[0]->ids.size();
  }
  const json pad = model.config().value("pad_token_id", json());
  const bool has_pad =
      pad.is_number_integer() && pad.get<int64_t>() >= 0 && pad.get<int64_t>() < model.vocab_size();
  const Shape shape = {count, longest};
  Tensor ids = Full(shape, static_cast<double>(has_pad ? pad.get<int64_t>() : 0), DType::kInt64);
  Tensor types = Zeros(shape, DType::kInt64);
  Tensor mask = Zeros(shape, DType::kInt64);
  for (int64_t b = 0; b < count; ++b) {
    const EncodedText& row = *rows[static_cast<size_t>(b)];
    std::copy(row.ids.begin(), row.ids.end(), ids.data<int64_t>() + b * longest);
    std::copy(row.types.begin(), row.types.end(), types.data<int64_t>() + b * longest);
    std::fill_n(mask.data<int64_t>() + b * longest, row.ids.size(), 1);
  }
  std::vector<Bundle::Entry> named = {{"input_ids", ids}};
  if (typed && model.Takes(keys::kTokenTypeIds)) named.emplace_back("token_type_ids", types);
  if (padded) named.emplace_back("attention_mask", mask);
  if (const EncoderDecoder* both = model.encoder_decoder()) {
    named.emplace_back("decoder_input_ids",
                       Full({count, 1}, static_cast<double>(both->decoder_start()), DType::kInt64));
  }
  return InputsFromNamed("text", model, named, adapter);
}

using RowsOf = std::vector<const EncodedText*>;

// Ends of batches of rows that are sorted by their lengths, the longest first: those of all
// partitions in which the fewest tokens are computed, padding included. A pass by itself costs as
// much as some.
std::vector<size_t> BatchEnds(const Model& model, const RowsOf& rows) {
  constexpr size_t kPassCost = 24;
  const bool pads = model.Takes(keys::kAttentionMask);
  struct Best {
    size_t cost = 0;
    size_t end = 0;
  };
  std::vector<Best> best(rows.size() + 1);
  for (size_t begin = rows.size(); begin-- > 0;) {
    const size_t longest = rows[begin]->ids.size();
    const int64_t kind = model.length_kind(static_cast<int64_t>(longest));
    for (size_t end = begin + 1; end <= rows.size(); ++end) {
      const size_t length = rows[end - 1]->ids.size();
      const size_t tokens = (end - begin) * longest;
      const bool fits = tokens <= static_cast<size_t>(kPassTokens) && (pads || length == longest) &&
                        model.length_kind(static_cast<int64_t>(length)) == kind;
      if (end > begin + 1 && !fits) break;
      const size_t cost = kPassCost + tokens + best[end].cost;
      if (end == begin + 1 || cost < best[begin].cost) best[begin] = {cost, end};
    }
  }
  std::vector<size_t> ends;
  for (size_t i = 0; i < rows.size(); i = best[i].end) ends.push_back(best[i].end);
  return ends;
}

// Calls `f` with batches of rows of like lengths, and the rows' numbers.
Status ForBatches(const Model& model, std::span<const EncodedText> rows,
                  const std::function<Status(const RowsOf&, const std::vector<size_t>&)>& f) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].ids.size() > rows[b].ids.size(); });
  RowsOf sorted;
  for (const size_t i : order) sorted.push_back(&rows[i]);
  size_t begin = 0;
  for (const size_t end : BatchEnds(model, sorted)) {
    TESSERA_RETURN_IF_ERROR(f({sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                               sorted.begin() + static_cast<std::ptrdiff_t>(end)},
                              {order.begin() + static_cast<std::ptrdiff_t>(begin),
                               order.begin() + static_cast<std::ptrdiff_t>(end)}));
    begin = end;
  }
  return OkStatus();
}

// The size of vectors that steps make.
int64_t SizeOf(const std::vector<Step>& steps, int64_t hidden_size) {
  int64_t size = hidden_size;
  for (const Step& step : steps) size = step.SizeOf(size);
  return size;
}

Status CheckHidden(const Model& model) {
  if (!model.Takes(keys::kInputIds)) return InvalidArgument("the model takes no tokens");
  if (model.hidden_size() > 0) return OkStatus();
  return InvalidArgument("the model gives no embeddings of texts");
}

// Whether widths fit.
Status CheckSteps(const std::vector<Step>& steps, const Model& model) {
  int64_t size = model.hidden_size();
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kDense && step.weight.size(1) != size) {
      return InvalidArgument("Dense takes vectors of ", step.weight.size(1),
                             " numbers; the model's have ", size);
    }
    size = step.SizeOf(size);
  }
  return OkStatus();
}

}  // namespace

StatusOr<TextEncoder> TextEncoder::OfFolder(const std::string& folder,
                                            const std::string& tokenizer_folder, const json& config,
                                            bool hides_paths) {
  TextEncoder encoder;
  TESSERA_ASSIGN_OR_RETURN(std::optional<SentenceModules> modules,
                           SentenceModules::OfFolder(folder, hides_paths));
  encoder.listed_ = modules && PathExists(JoinPath(folder, "modules.json"));
  if (modules) encoder.modules_ = *std::move(modules);
  json settings = json::object();
  const std::string name = "tokenizer_config.json";
  if (const std::string path = JoinPath(tokenizer_folder, name); PathExists(path)) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TESSERA_ASSIGN_OR_RETURN(settings, ParseJson(text, hides_paths ? name : path));
  }
  // Hugging Face writes 10^30 where there is no limit.
  const auto limit = [](const json& object, const char* key) {
    constexpr double kNone = 1e9;
    const json value = object.is_object() ? object.value(key, json()) : json();
    const bool given = value.is_number() && value.get<double>() >= 1 && value.get<double>() < kNone;
    return given ? value.get<int64_t>() : std::numeric_limits<int64_t>::max();
  };
  const int64_t usual =
      std::min(limit(settings, "model_max_length"), limit(config, "max_position_embeddings"));
  encoder.usual_tokens_ = usual == std::numeric_limits<int64_t>::max() ? 0 : usual;
  encoder.cuts_begin_ = settings.is_object() && settings.value("truncation_side", json()) == "left";
  const json names = config.value("architectures", json());
  const bool classifier = names.is_array() && !names.empty() && names[0].is_string() &&
                          names[0].get<std::string>().ends_with("ForSequenceClassification");
  encoder.classifies_ = classifier && LabelNames(config).size() == 1;
  // Versions 2, 4 and 6 name it so.
  json activation = config.value("sbert_ce_default_activation_function", json());
  if (const auto own = config.find("sentence_transformers");
      own != config.end() && own->is_object() && own->contains("activation_fn")) {
    activation = (*own)["activation_fn"];
  }
  if (!encoder.modules_.activation.empty()) activation = encoder.modules_.activation;
  if (activation.is_string()) {
    const std::string text = activation.get<std::string>();
    encoder.sigmoid_ = !text.ends_with(".Identity");
    if (encoder.sigmoid_ && !text.ends_with(".Sigmoid") && encoder.classifies_) {
      return InvalidArgument("config.json: 'activation_fn' '", text,
                             "' is not supported; Sigmoid and Identity are");
    }
  }
  return encoder;
}

Status TextEncoder::CheckEmbeds(const Model& model) const {
  TESSERA_RETURN_IF_ERROR(CheckHidden(model));
  if (modules_.steps.empty()) {
    return InvalidArgument(
        "the model scores documents (`tessera rerank`, /v1/rerank) and gives no "
        "embeddings of texts");
  }
  return CheckSteps(modules_.steps, model);
}

Status TextEncoder::CheckScores(const Model& model) const {
  if (classifies_ && model.Takes(keys::kInputIds)) return OkStatus();
  return InvalidArgument(
      "the model is no reranker: that is a classifier of sequences with one label");
}

int64_t TextEncoder::size(const Model& model) const {
  if (model.hidden_size() == 0 || modules_.steps.empty()) return 0;
  const int64_t size = SizeOf(modules_.steps, model.hidden_size());
  return modules_.dimensions > 0 ? std::min(size, modules_.dimensions) : size;
}

StatusOr<std::string> TextEncoder::PromptOf(const std::string& name) const {
  const auto found = modules_.prompts.find(name);
  if (found != modules_.prompts.end()) return found->second;
  std::string names;
  for (const auto& [known, text] : modules_.prompts) names += (names.empty() ? "" : ", ") + known;
  return InvalidArgument("the model has no prompt '", name, "'",
                         names.empty() ? ", nor another" : "; it has ", names);
}

// In lower case where the folder says so, but for special tokens that are written out.
std::string TextEncoder::Prepared(const data::Tokenizer& tokenizer, std::string_view text) const {
  if (!modules_.lower_case) return std::string(text);
  std::string prepared;
  while (!text.empty()) {
    size_t at = text.size();
    size_t length = 0;
    for (const data::SpecialToken& token : tokenizer.special_tokens()) {
      const size_t found = text.find(token.content);
      if (token.content.empty() || found >= at) continue;
      at = found;
      length = token.content.size();
    }
    prepared += data::LowerCased(text.substr(0, at));
    prepared += text.substr(at, length);
    text.remove_prefix(at + length);
  }
  return prepared;
}

StatusOr<EncodedText> TextEncoder::RowOf(const Model& model, const data::Tokenizer& tokenizer,
                                         std::string_view first,
                                         std::optional<std::string_view> second,
                                         const TextOptions& options) const {
  const int64_t most = MostTokens(model, second.has_value(), options);
  EncodedText text;
  const std::string prepared = Prepared(tokenizer, first);
  if (!second && tokenizer.row_template(false) == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(text.ids, EncodePrompt(tokenizer, model.config(), prepared));
    Cut(most, &text.ids);
  } else {
    std::optional<std::string> other;
    if (second) other = Prepared(tokenizer, *second);
    TESSERA_ASSIGN_OR_RETURN(const data::EncodedRow row,
                             data::EncodePair(tokenizer, prepared, other,
                                              {.max_length = most, .cut_begin = cuts_begin_}));
    text.ids.assign(row.ids.begin(), row.ids.end());
    const bool typed = std::any_of(row.token_type_ids.begin(), row.token_type_ids.end(),
                                   [](int32_t type) { return type != 0; });
    if (typed) text.types.assign(row.token_type_ids.begin(), row.token_type_ids.end());
  }
  TESSERA_RETURN_IF_ERROR(CheckSize(model, options.adapter, text.ids));
  return text;
}

int64_t TextEncoder::MostTokens(const Model& model, bool pair, const TextOptions& options) const {
  const int64_t positions = model.positions_left(options.adapter);
  // Where nothing says how long texts are, what the model cannot read is refused; pairs are cut, as
  // all rerankers do.
  int64_t most = options.max_tokens;
  if (most == 0 && listed_) most = modules_.max_tokens > 0 ? modules_.max_tokens : usual_tokens_;
  if (most == 0 && pair) most = usual_tokens_;
  const bool cuts = most > 0 || listed_ || pair;
  if (cuts && positions > 0) most = most > 0 ? std::min(most, positions) : positions;
  return most;
}

void TextEncoder::Cut(int64_t most, std::vector<int64_t>* ids) const {
  const int64_t surplus = std::ssize(*ids) - most;
  if (most == 0 || surplus <= 0) return;
  ids->erase(cuts_begin_ ? ids->begin() : ids->end() - surplus,
             cuts_begin_ ? ids->begin() + surplus : ids->end());
}

StatusOr<EncodedText> TextEncoder::IdsOf(const Model& model, std::vector<int64_t> ids,
                                         const TextOptions& options) const {
  EncodedText row = {.ids = std::move(ids)};
  Cut(MostTokens(model, /*pair=*/false, options), &row.ids);
  TESSERA_RETURN_IF_ERROR(CheckSize(model, options.adapter, row.ids));
  return row;
}

StatusOr<EncodedText> TextEncoder::TextOf(const Model& model, const data::Tokenizer& tokenizer,
                                          std::string_view text, const TextOptions& options) const {
  std::string prompt;
  if (options.prompt) {
    prompt = *options.prompt;
  } else if (!modules_.prompt_name.empty()) {
    prompt = modules_.prompts.at(modules_.prompt_name);
  }
  TESSERA_ASSIGN_OR_RETURN(
      EncodedText row, RowOf(model, tokenizer, prompt + std::string(text), std::nullopt, options));
  const bool leaves_out = std::any_of(modules_.steps.begin(), modules_.steps.end(),
                                      [](const Step& step) { return !step.include_prompt; });
  if (!prompt.empty() && leaves_out) {
    TESSERA_ASSIGN_OR_RETURN(const EncodedText alone,
                             RowOf(model, tokenizer, prompt, std::nullopt, options));
    const bool ends = tokenizer.IsSpecial(static_cast<int32_t>(alone.ids.back()));
    row.prompt_tokens = std::ssize(alone.ids) - (ends ? 1 : 0);
  }
  return row;
}

StatusOr<EncodedText> TextEncoder::PairOf(const Model& model, const data::Tokenizer& tokenizer,
                                          std::string_view query, std::string_view document,
                                          const TextOptions& options) const {
  std::string first;
  if (options.prompt) {
    first = *options.prompt;
  } else if (!modules_.prompt_name.empty()) {
    first = modules_.prompts.at(modules_.prompt_name);
  }
  return RowOf(model, tokenizer, first + std::string(query), document, options);
}

StatusOr<std::vector<std::vector<float>>> TextEncoder::Embed(const Model& model,
                                                             std::span<const EncodedText> rows,
                                                             const EmbedOptions& options) const {
  std::vector<Step> steps = modules_.steps;
  if (options.pooling) {
    TESSERA_RETURN_IF_ERROR(CheckHidden(model));
    steps = {{.kind = Step::Kind::kPool, .pooling = {*options.pooling}}};
  } else {
    TESSERA_RETURN_IF_ERROR(CheckEmbeds(model));
  }
  const bool unit = steps.back().kind == Step::Kind::kNormalise;
  if (options.normalise == true && !unit) steps.push_back({.kind = Step::Kind::kNormalise});
  if (options.normalise == false && unit) steps.pop_back();
  const int64_t size = SizeOf(steps, model.hidden_size());
  if (options.dimensions > size) {
    return InvalidArgument("the model's embeddings have ", size, " numbers, not ",
                           options.dimensions);
  }
  const bool shortened = options.dimensions == 0 && !options.pooling;  // by the folder, if at all
  const int64_t kept = options.dimensions > 0 ? options.dimensions
                       : shortened            ? std::min(size, this->size(model))
                                              : size;
  // sentence-transformers leaves what a folder shortens as it is, unless length 1 is asked for.
  const bool unit_again = kept < size && steps.back().kind == Step::Kind::kNormalise &&
                          (!shortened || options.normalise == true);
  std::vector<std::vector<float>> vectors(rows.size());
  const NoGrad no_grad;
  const auto embed = [&](const RowsOf& batch, const std::vector<size_t>& numbers) -> Status {
    TESSERA_ASSIGN_OR_RETURN(const Bundle inputs, BatchOf(model, batch, options.adapter));
    const Bundle outputs =
        model.Run(inputs, {.context = {.adapter = options.adapter}, .keep_logits = false});
    const Tensor* const encoded = outputs.FindNamed("encoder_last_hidden_state");
    const bool encodes = model.encoder_decoder() != nullptr && encoded != nullptr;
    Hidden hidden = {.tokens_BTC = OnCpu(encodes ? *encoded : outputs.at(keys::kLastHiddenState))};
    if (options.pooling == Pooling::kPooler) {
      if (!outputs.get(keys::kPoolerOutput).defined()) {
        return InvalidArgument("the model has no pooler");
      }
      hidden.pooler_BC = OnCpu(outputs.at(keys::kPoolerOutput));
    }
    Tensor made = VectorsOf(std::move(hidden), steps, batch);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float* const vector = made.data<float>() + static_cast<int64_t>(i) * size;
      std::vector<float>& out = vectors[numbers[i]];
      out.assign(vector, vector + kept);
      if (unit_again) Normalise(out.data(), 1, kept);
    }
    return OkStatus();
  };
  TESSERA_RETURN_IF_ERROR(ForBatches(model, rows, embed));
  return vectors;
}

StatusOr<std::vector<double>> TextEncoder::Score(const Model& model,
                                                 std::span<const EncodedText> rows,
                                                 int adapter) const {
  TESSERA_RETURN_IF_ERROR(CheckScores(model));
  std::vector<double> scores(rows.size());
  const NoGrad no_grad;
  const auto score = [&](const RowsOf& batch, const std::vector<size_t>& numbers) -> Status {
    TESSERA_ASSIGN_OR_RETURN(const Bundle inputs, BatchOf(model, batch, adapter));
    const Bundle outputs = model.Run(inputs, {.context = {.adapter = adapter}});
    const std::vector<float> logits = OnCpu(outputs.at(keys::kLogits)).ToVector<float>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double logit = logits[i];
      scores[numbers[i]] = sigmoid_ ? 1 / (1 + std::exp(-logit)) : logit;
    }
    return OkStatus();
  };
  TESSERA_RETURN_IF_ERROR(ForBatches(model, rows, score));
  return scores;
}

}  // namespace tessera::models
