// SPDX-License-Identifier: Apache-2.0
#include "models/generation/continuous_batch.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "nlohmann/json.hpp"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// The kind of the passes in which token t of a text is read that begins with so many.
int64_t LengthKind(const Model& model, int64_t before, int64_t begin_size, int64_t t) {
  return model.length_kind(before + std::max(begin_size, t + 1));
}

// Whether keys are the same but for rounding, on whichever processor they were computed.
bool AreClose(const Tensor& a, const Tensor& b) {
  constexpr double kMost = 0.05;  // of the norm; bfloat16 has 8 bits
  const std::vector<double> x = a.ContiguousCopy().ToVector<double>();
  const std::vector<double> y = b.ContiguousCopy().ToVector<double>();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += x[i] * x[i];
  }
  return difference <= kMost * kMost * norm;
}

}  // namespace

ContinuousBatch::ContinuousBatch(const Model& model, const ContinuousBatchOptions& options)
    : model_(model),
      options_(options),
      caches_(model.num_cache_layers() > 0),
      encodes_(model.encoder_decoder() != nullptr),
      format_(model.text_format()),
      decoder_(model, {.lockstep = options.lockstep, .cache = options.cache}) {}

// ---- From outside -------------------------------------------------------------------------------

StatusOr<int64_t> ContinuousBatch::Add(TextRequest request) {
  if (request.config->num_beams > 1) {
    return InvalidArgument("num_beams above 1 is searched text by text, not in a batch of them");
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WrittenText> text,
                           WrittenText::Of(model_, std::move(request), options_.tokenizer));
  // The last token is not read.
  const int64_t new_tokens = std::max<int64_t>(text->limit() - 1, 0);
  const int64_t pages = PagesFor(*text, text->begin_size() + new_tokens);
  if (options_.cache.max_pages > 0 && pages > options_.cache.max_pages) {
    return InvalidArgument("the prompt of row ", text->request().row, " has ",
                           text->prompt().size(), " tokens; with ", text->limit(),
                           " new ones it takes ", pages, " pages of the cache, which has ",
                           options_.cache.max_pages);
  }
  waiting_.push_back({next_id_, std::move(text)});
  return next_id_++;
}

bool ContinuousBatch::Cancel(int64_t id) {
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Waiting& other) { return other.id == id; });
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    return true;
  }
  for (const int64_t row : Running()) {
    if (RowAt(row).id != id) continue;
    rows_[static_cast<size_t>(row)].text = nullptr;
    Rest(row);
    DropLeaving();
    return true;
  }
  return false;
}

bool ContinuousBatch::Step() {
  EndTexts();  // what was thrown before has left
  while (AdmitNext()) {
  }
  Pass pass = ChoosePass();
  if (pass.rows.empty()) return false;
  while (!HasRoom(pass)) {
    GiveWay();
    pass = ChoosePass();
  }
  if (options_.on_pass != nullptr) {
    std::vector<int64_t> texts;
    for (const int64_t row : pass.rows) texts.push_back(RowAt(row).id);
    options_.on_pass(texts);
  }
  Feed(pass);
  EndTexts();
  return true;
}

int64_t ContinuousBatch::tokens_read(int64_t id) const {
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    if (RowAt(row).text != nullptr && RowAt(row).id == id) return Read(row);
  }
  return 0;
}

ContinuousBatchCounts ContinuousBatch::counts() const {
  ContinuousBatchCounts counts = counts_;
  counts.waiting = std::ssize(waiting_);
  counts.running = std::ssize(Running());
  counts.resting = NumResting();
  counts.pages_in_use = decoder_.cache().pages_in_use();
  counts.page_bytes = decoder_.cache().page_bytes();
  return counts;
}

// ---- Texts that rest, and other batches --------------------------------------------------------

std::vector<int64_t> ContinuousBatch::RestingRows() const {
  std::vector<int64_t> resting;
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    if (RowAt(row).text == nullptr && !RowAt(row).leaves) resting.push_back(row);
  }
  std::stable_sort(resting.begin(), resting.end(),
                   [&](auto a, auto b) { return RowAt(a).used < RowAt(b).used; });
  return resting;
}

std::vector<std::vector<int64_t>> ContinuousBatch::RestingTokens() const {
  std::vector<std::vector<int64_t>> tokens;
  for (const int64_t row : RestingRows()) tokens.push_back(decoder_.text(row));
  return tokens;
}

RestingText ContinuousBatch::CopyResting(size_t place) {
  const int64_t row = RestingRows().at(place);
  return {.ids = decoder_.text(row),
          .begin_size = RowAt(row).begin_size,
          .adapter = RowAt(row).adapter,
          .keys = decoder_.KeysOf(row)};
}

Status ContinuousBatch::CheckResting(const RestingText& text) const {
  if (options_.resting == 0 || !caches_ || encodes_) {
    return Failure(
        StatusCode::kFailedPrecondition, "no text rests here, as ",
        options_.resting == 0 ? "none is asked to" : "this model keeps no keys of its prompts");
  }
  const int64_t size = std::ssize(text.ids);
  const bool counts = size > 0 && text.begin_size > 0 && text.adapter >= -1 &&
                      std::ssize(text.keys) == 2 * model_.num_cache_layers();
  if (!counts) return InvalidArgument("a text that rests: it is not whole");
  for (const int64_t id : text.ids) {
    if (id >= 0 && id < model_.vocab_size()) continue;
    return InvalidArgument("a text that rests: token id ", id,
                           " is beyond the model's vocabulary of ", model_.vocab_size());
  }
  // What the model gives for a short prompt tells how its keys look.
  std::vector<int64_t> prompt = {text.ids[0]};
  if (format_ != nullptr) {
    TESSERA_RETURN_IF_ERROR(format_->LayoutOf(text.ids).status());
    TESSERA_ASSIGN_OR_RETURN(prompt, format_->PreparePrompt(std::move(prompt)));
  }
  IncrementalDecoder decoder(model_);
  decoder.Feed(std::vector<std::vector<int64_t>>{prompt}, {.adapter = text.adapter});
  const std::vector<Tensor> like = decoder.KeysOf(0);
  const int64_t before = Before(text.adapter);
  const bool alike = format_ == nullptr && LengthKind(model_, before, text.begin_size, 0) ==
                                               LengthKind(model_, before, 1, 0);
  for (size_t i = 0; i < like.size(); ++i) {
    const Shape shape = {1, like[i].size(1), before + size, like[i].size(3)};
    const Tensor& t = text.keys[i];
    if (!t.defined() || t.shape() != shape || t.dtype() != like[i].dtype()) {
      return InvalidArgument("a text that rests: keys of layer ", i / 2, " are not ", shape, " ",
                             like[i].dtype());
    }
    if (alike && !AreClose(Slice(like[i], 2, before, 1), Slice(t, 2, before, 1))) {
      return InvalidArgument("a text that rests: keys of layer ", i / 2,
                             " are not those of this model: its weights or its adapter differ");
    }
  }
  return OkStatus();
}

Status ContinuousBatch::AddResting(RestingText text) {
  const NoGrad no_grad;
  TESSERA_RETURN_IF_ERROR(CheckResting(text));
  for (Tensor& t : text.keys) t = CopyTo(t, model_.build().device);
  if (rows_.size() == rows_.capacity()) rows_.reserve(2 * rows_.size() + 1);
  decoder_.AddRow(std::move(text.ids), text.keys);
  Row& row = rows_.emplace_back();
  row.adapter = text.adapter;
  row.begin_size = text.begin_size;
  row.used = counts_.passes;
  DropLeaving();
  return OkStatus();
}

// ---- What there is ------------------------------------------------------------------------------

std::vector<int64_t> ContinuousBatch::Running() const {
  std::vector<int64_t> running;
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    if (RowAt(row).text != nullptr) running.push_back(row);
  }
  return running;
}

bool ContinuousBatch::IsReading(int64_t row) const {
  return Read(row) == 0 || Read(row) + 1 < std::ssize(RowAt(row).text->ids());
}

int64_t ContinuousBatch::PieceEnd(int64_t row) const {
  const Row& of = RowAt(row);
  const int64_t begin = Read(row);
  const int64_t end = std::ssize(of.text->ids());
  if (!caches_ || encodes_) return end;
  const int64_t most = options_.tokens_in_pass > 0 ? options_.tokens_in_pass : end;
  const int64_t before = Before(of.adapter);
  const auto kind_of = [&](int64_t t) { return LengthKind(model_, before, of.begin_size, t); };
  const int64_t kind = kind_of(begin);
  int64_t at = begin + 1;
  while (at < end && at - begin < most && kind_of(at) == kind) ++at;
  // A piece has the kind of its own end.
  const bool whole = format_ != nullptr || model_.length_kind(before + at) != kind;
  return at < of.begin_size && whole ? of.begin_size : at;
}

int64_t ContinuousBatch::BeginSize(const WrittenText& text) const {
  return model_.rereads_at_length_kind() ? std::ssize(text.ids()) : text.begin_size();
}

bool ContinuousBatch::Rereads(int64_t row) const {
  const Row& of = RowAt(row);
  const int64_t before = Before(of.adapter);
  return model_.rereads_at_length_kind() &&
         model_.length_kind(before + std::ssize(of.text->ids())) !=
             model_.length_kind(before + of.begin_size);
}

bool ContinuousBatch::HasSource(int64_t row) const {
  return row < decoder_.num_encoded() && (!caches_ || decoder_.cache().HasMemoryOf(row));
}

ContinuousBatch::PassKind ContinuousBatch::KindOf(int64_t row) const {
  const Row& of = RowAt(row);
  return {of.adapter, model_.length_kind(Before(of.adapter) + PieceEnd(row)),
          of.text->scores_prompt()};
}

int64_t ContinuousBatch::Common(const std::vector<int64_t>& a, int64_t a_begin,
                                const std::vector<int64_t>& b, int64_t b_begin, int adapter) const {
  const int64_t most = std::min(std::ssize(a), std::ssize(b));
  int64_t n = std::mismatch(a.begin(), a.begin() + most, b.begin()).first - a.begin();
  const int64_t before = Before(adapter);
  for (int64_t t = 0; t < n; ++t) {
    if (LengthKind(model_, before, a_begin, t) != LengthKind(model_, before, b_begin, t)) n = t;
  }
  if (format_ == nullptr || n == 0) return n;
  const StatusOr<TextLayout> of_a = format_->LayoutOf(a);
  const StatusOr<TextLayout> of_b = format_->LayoutOf(b);
  if (!of_a.ok() || !of_b.ok() || of_a->prefix_length != of_b->prefix_length) return 0;
  for (size_t i = 0; i < of_a->positions.size(); ++i) {
    const auto begin = of_a->positions[i].begin();
    n = std::mismatch(begin, begin + n, of_b->positions.at(i).begin()).first - begin;
  }
  return n < of_a->prefix_length ? 0 : n;
}

std::optional<ContinuousBatch::Beginning> ContinuousBatch::BeginningOf(
    const WrittenText& text) const {
  Beginning best;
  if (options_.resting == 0 || !caches_ || encodes_ || text.scores_prompt()) return best;
  const int adapter = text.request().adapter;
  int64_t coming = 0;  // the most that there will be
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    const Row& of = RowAt(row);
    if (of.adapter != adapter || of.leaves) continue;
    const auto common = [&](const std::vector<int64_t>& with) {
      // The last token is read, for what follows it.
      return std::min(Common(with, of.begin_size, text.ids(), BeginSize(text), adapter),
                      std::ssize(text.ids()) - 1);
    };
    const int64_t here = common(decoder_.text(row));
    if (here > best.tokens) best = {row, here};
    if (of.text != nullptr && IsReading(row)) coming = std::max(coming, common(of.text->ids()));
  }
  if (coming >= best.tokens + options_.cache.page_size) return std::nullopt;
  return best;
}

// ---- Room ---------------------------------------------------------------------------------------

int64_t ContinuousBatch::PagesFor(const WrittenText& text, int64_t tokens) const {
  if (!caches_) return 0;
  const nn::KeyValueCache& cache = decoder_.cache();
  const int64_t of_source = encodes_ ? cache.PagesFor(std::ssize(text.prompt())) : 0;
  return of_source + cache.PagesFor(Before(text.request().adapter) + tokens);
}

bool ContinuousBatch::Fits(const WrittenText& text, const Beginning& beginning) const {
  if (options_.cache.max_pages == 0 || !caches_) return true;
  std::vector<int64_t> rows = Running();
  // Each that is on its way may need another page soon.
  int64_t pages = std::ssize(rows) + PagesFor(text, std::ssize(text.ids()));
  for (const int64_t row : rows) {
    const Row& of = RowAt(row);
    pages += decoder_.PagesNeeded({row}, {std::ssize(of.text->ids()) - Read(row)}, of.adapter);
  }
  if (beginning.tokens > 0) {
    rows.push_back(beginning.row);
    pages -= (Before(text.request().adapter) + beginning.tokens) / options_.cache.page_size;
  }
  return pages + decoder_.cache().PagesOf(rows) <= options_.cache.max_pages;
}

bool ContinuousBatch::HasRoom(const Pass& pass) const {
  if (!caches_ || options_.cache.max_pages == 0) return true;
  std::vector<int64_t> counts;
  int64_t sources = 0;
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    counts.push_back(std::ssize(pass.tokens[i]));
    if (!encodes_ || HasSource(pass.rows[i])) continue;
    sources += decoder_.cache().PagesFor(std::ssize(RowAt(pass.rows[i]).text->prompt()));
  }
  return decoder_.PagesNeeded(pass.rows, counts, pass.options.adapter) + sources <=
         decoder_.cache().free_pages();
}

void ContinuousBatch::GiveWay() {
  int64_t row = LeastUsedResting();
  if (row < 0) {
    const std::vector<int64_t> running = Running();
    TESSERA_CHECK(running.size() > 1, "continuous_batch", "a text does not fit the cache's ",
                  options_.cache.max_pages, " pages by itself");
    row = running.back();
    WaitAgain(row);
    ++counts_.gave_way;
  }
  rows_[static_cast<size_t>(row)].leaves = true;
  DropLeaving();
}

int64_t ContinuousBatch::LeastUsedResting() const {
  int64_t least = -1;
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    const Row& of = RowAt(row);
    if (of.text != nullptr || of.leaves) continue;
    if (least < 0 || of.used < RowAt(least).used) least = row;
  }
  return least;
}

int64_t ContinuousBatch::NumResting() const {
  return std::count_if(rows_.begin(), rows_.end(),
                       [](const Row& row) { return row.text == nullptr && !row.leaves; });
}

void ContinuousBatch::DropLeaving() {
  for (int64_t resting = NumResting(); resting > options_.resting; --resting) {
    rows_[static_cast<size_t>(LeastUsedResting())].leaves = true;
  }
  std::vector<int64_t> kept;
  for (int64_t row = 0; row < std::ssize(rows_); ++row) {
    if (!RowAt(row).leaves) kept.push_back(row);
  }
  if (kept.size() == rows_.size()) return;
  decoder_.Keep(kept);
  std::erase_if(rows_, [](const Row& row) { return row.leaves; });
}

// ---- A pass -------------------------------------------------------------------------------------

bool ContinuousBatch::AdmitNext() {
  if (waiting_.empty()) return false;
  Waiting& next = waiting_.front();
  const int adapter = next.text->request().adapter;
  if (options_.slots > 0 && std::ssize(Running()) >= options_.slots) return false;
  // Sources that are read together are filled up to the longest, which costs pages.
  bool encodes_others = false;
  for (const int64_t row : Running()) encodes_others |= encodes_ && !HasSource(row);
  if (encodes_others && (options_.cache.max_pages > 0 || rows_.back().adapter != adapter)) {
    return false;
  }
  const std::optional<Beginning> found = BeginningOf(*next.text);
  if (!found) return false;
  Beginning beginning = *found;
  if (!Fits(*next.text, beginning)) beginning = {};
  if (!Fits(*next.text, beginning)) return false;
  if (rows_.size() == rows_.capacity()) rows_.reserve(2 * rows_.size() + 1);
  if (beginning.tokens > 0) {
    decoder_.AddRow(beginning.row, beginning.tokens, adapter);
    rows_[static_cast<size_t>(beginning.row)].used = counts_.passes;
    counts_.tokens_taken += beginning.tokens;
  } else {
    decoder_.AddRow();
  }
  Row& row = rows_.emplace_back();
  row.id = next.id;
  row.adapter = adapter;
  row.begin_size = BeginSize(*next.text);
  row.used = counts_.passes;
  row.text = std::move(next.text);
  waiting_.pop_front();
  return true;
}

ContinuousBatch::Pass ContinuousBatch::ChoosePass() const {
  std::vector<int64_t> read;
  std::vector<int64_t> write;
  for (const int64_t row : Running()) (IsReading(row) ? read : write).push_back(row);
  const bool reads = !read.empty() && (write.empty() || options_.tokens_in_pass == 0 || !has_read_);
  const std::vector<int64_t>& rows = reads ? read : write;
  Pass pass;
  if (rows.empty()) return pass;
  // Prompts are read one after the other; of texts of several kinds all have their turn.
  const int64_t first =
      reads ? rows[0] : *std::min_element(rows.begin(), rows.end(), [&](auto a, auto b) {
        return RowAt(a).used < RowAt(b).used;
      });
  const PassKind kind = KindOf(first);
  pass.options = {.adapter = kind.adapter, .every_token = kind.scores};
  int64_t longest = 0;
  for (const int64_t row : rows) {
    if (KindOf(row) != kind) continue;
    const std::vector<int64_t>& ids = RowAt(row).text->ids();
    const int64_t end = PieceEnd(row);
    longest = std::max(longest, end - Read(row));
    if (encodes_) longest = std::max(longest, std::ssize(RowAt(row).text->prompt()));
    const int64_t all = longest * (std::ssize(pass.rows) + 1);
    const bool bounded = reads && options_.tokens_in_pass > 0;
    if (bounded && !pass.rows.empty() && all > options_.tokens_in_pass) break;
    pass.rows.push_back(row);
    pass.tokens.emplace_back(ids.begin() + Read(row), ids.begin() + end);
  }
  return pass;
}

void ContinuousBatch::Feed(const Pass& pass) {
  const bool reads = IsReading(pass.rows[0]);
  int64_t read = 0;
  if (encodes_) {
    std::vector<std::vector<int64_t>> sources;
    for (const int64_t row : pass.rows) {
      if (row >= decoder_.num_encoded()) sources.push_back(RowAt(row).text->prompt());
    }
    for (const std::vector<int64_t>& source : sources) read += std::ssize(source);
    if (!sources.empty()) decoder_.Encode(sources, pass.options.adapter);
  }
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    const bool of_prompt = Read(pass.rows[i]) < RowAt(pass.rows[i]).begin_size;
    if (reads || of_prompt) read += std::ssize(pass.tokens[i]);
  }
  const Scores scores = decoder_.Feed(pass.rows, pass.tokens, pass.options);
  has_read_ = reads;
  ++counts_.passes;
  counts_.tokens_read += read;
  for (size_t place = 0; place < pass.rows.size(); ++place) Take(pass, place, scores);
}

void ContinuousBatch::Take(const Pass& pass, size_t place, const Scores& scores) {
  const int64_t index = pass.rows[place];
  Row& row = rows_[static_cast<size_t>(index)];
  WrittenText& text = *row.text;
  row.used = counts_.passes;
  row.choosing = true;
  const int64_t end = Read(index);
  const int64_t begin = end - std::ssize(pass.tokens[place]);
  const int64_t scored = pass.options.every_token ? std::min(end, text.begin_size() - 1) : begin;
  for (int64_t t = begin; t < scored && row.status.ok(); ++t) {
    std::vector<double> logits = scores.After(place, t - begin);
    row.status = scores.CheckFinite(logits, text.request().row, t);
    if (row.status.ok()) text.ScorePrompt(std::move(logits));
  }
  if (end == std::ssize(text.ids()) && row.status.ok()) {
    row.status = scores.CheckFinite(scores[place], text.request().row, end - 1);
    if (row.status.ok() && text.scores_prompt()) row.status = text.TellPromptScores();
    if (row.status.ok() && !text.done()) {
      ++counts_.tokens_made;
      row.status = text.Choose(scores[place]);
    }
  }
  row.choosing = false;
}

// ---- Ends ---------------------------------------------------------------------------------------

void ContinuousBatch::EndTexts() {
  for (const int64_t row : Running()) {
    Row& of = rows_[static_cast<size_t>(row)];
    if (of.choosing) of.status = Internal("what was thrown while its token was chosen ended it");
    if (of.text->done() || !of.status.ok()) End(row);
  }
  std::vector<int64_t> running = Running();
  std::reverse(running.begin(), running.end());
  for (const int64_t row : running) {
    const WrittenText& text = *RowAt(row).text;
    const bool scored =
        !text.scores_prompt() || text.prompt_scored() == std::min(Read(row), text.begin_size() - 1);
    if (scored && Read(row) < std::ssize(text.ids()) && !Rereads(row)) continue;
    WaitAgain(row);
    rows_[static_cast<size_t>(row)].leaves = true;
  }
  DropLeaving();
}

void ContinuousBatch::End(int64_t index) {
  Row& row = rows_[static_cast<size_t>(index)];
  const std::unique_ptr<WrittenText> text = std::move(row.text);
  const Status status = row.status;
  row.leaves = !status.ok() && status.code() != StatusCode::kCancelled;
  Rest(index);
  if (text->request().on_end == nullptr) return;
  text->request().on_end(status.ok() ? StatusOr<GenerationResult>(text->TakeResult())
                                     : StatusOr<GenerationResult>(status));
}

void ContinuousBatch::Rest(int64_t index) {
  Row& row = rows_[static_cast<size_t>(index)];
  row.used = counts_.passes;
  if (options_.resting == 0 || !caches_ || encodes_ || Read(index) == 0) row.leaves = true;
  if (row.leaves) return;
  // Texts that it continues are of no more use.
  for (int64_t other = 0; other < std::ssize(rows_); ++other) {
    Row& of = rows_[static_cast<size_t>(other)];
    if (other == index || of.text != nullptr || of.adapter != row.adapter) continue;
    of.leaves |= Common(decoder_.text(other), of.begin_size, decoder_.text(index), row.begin_size,
                        row.adapter) == Read(other);
  }
}

void ContinuousBatch::WaitAgain(int64_t index) {
  Row& row = rows_[static_cast<size_t>(index)];
  row.text->ForgetPromptScores();
  Waiting& first = waiting_.emplace_front();
  first.id = row.id;
  first.text = std::move(row.text);
}

}  // namespace tessera::models
