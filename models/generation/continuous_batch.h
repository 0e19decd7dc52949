// SPDX-License-Identifier: Apache-2.0
// Texts that come and go while others are written, with one model.
//
//   ContinuousBatch batch(*model, {.slots = 8, .tokens_in_pass = 512, .tokenizer = tokenizer.get(),
//                                  .cache = {.max_pages = 4096}, .resting = 64});
//   TextRequest request{.prompt = ids, .config = config};
//   request.on_token = [&](int64_t, std::string_view text, const TokenScores*) { ... };
//   request.on_end = [&](StatusOr<GenerationResult> result) { ... };
//   TESSERA_ASSIGN_OR_RETURN(const int64_t id, batch.Add(std::move(request)));
//   while (batch.Step()) { ... more are added, some cancelled ... }
//
// A step is one forward pass: the next token of texts on their way, or a piece of the prompts of
// those that have come. Whoever ends leaves the next step to another. What a text becomes depends
// on its request alone, bit by bit: not on who else is there, on when it came, on how its prompt
// was divided, on whose keys it took over, nor on whether it had to give way.
//
// - Prompts are read in pieces of `tokens_in_pass` tokens, in turns with the others' next tokens.
//   Where tokens of a prompt see those behind them (TextLayout::prefix_length), where all of it has
//   frequencies of its length (Model::length_kind), and without a cache it is read in one piece.
// - Texts that have ended rest in the cache while there is room. A prompt takes the longest
//   beginning that it has in common with a text there, of the same adapter and resting or not, and
//   is read from behind it; one whose scores are wanted reads all. A prompt that begins like one
//   that is being read waits for it.
//   A text that its callback ends with kCancelled rests as well; any other failure forgets it.
// - A text of Model::rereads_at_length_kind whose next token changes its length_kind leaves its row
//   and is read again from its beginning, before others that wait.
// - Where the cache's pages run out, resting texts go, the one first that was of no use for the
//   longest time; then whoever began last gives way, and is read again when there is room.
//
// A pass has texts of one adapter. One thread at a time; callbacks must not call the batch.
#ifndef TESSERA_MODELS_GENERATION_CONTINUOUS_BATCH_H_
#define TESSERA_MODELS_GENERATION_CONTINUOUS_BATCH_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/incremental_decoder.h"
#include "models/generation/lockstep.h"
#include "models/generation/text_request.h"
#include "models/generation/written_text.h"
#include "models/model.h"
#include "nn/key_value_cache.h"

namespace tessera::models {

struct ContinuousBatchOptions {
  // At most so many texts are on their way at once; 0: all.
  int64_t slots = 0;
  // Of prompts in one pass, those that fill up shorter ones included; 0: any number.
  int64_t tokens_in_pass = 0;
  // Gives the text; needed for stop strings.
  const data::Tokenizer* tokenizer = nullptr;
  nn::KeyValueCacheOptions cache = {};
  // At most so many texts rest; 0: prompts share nothing.
  int64_t resting = 0;
  // Where ranks hold the model's parameters together, all texts are of its adapter; may be null.
  Lockstep* lockstep = nullptr;
  // Before each pass: the numbers of its texts.
  std::function<void(const std::vector<int64_t>& texts)> on_pass = nullptr;
};

// Of texts and pages now, of the rest since the beginning.
struct ContinuousBatchCounts {
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t resting = 0;
  int64_t pages_in_use = 0;  // those of resting texts included
  int64_t page_bytes = 0;    // of a page; 0 before the first pass
  int64_t passes = 0;
  int64_t tokens_read = 0;   // by the model, of prompts and of texts that are read again
  int64_t tokens_taken = 0;  // from other texts instead
  int64_t tokens_made = 0;
  int64_t gave_way = 0;  // texts
};

// A text that rests, apart from any batch. Texts with equal `ids` may differ in `begin_size` where
// passes depend on it (Model::length_kind).
struct RestingText {
  std::vector<int64_t> ids;
  int64_t begin_size = 0;
  int adapter = 0;
  std::vector<Tensor> keys = {};  // IncrementalDecoder::KeysOf
};

class ContinuousBatch {
 public:
  // The model outlives the batch.
  ContinuousBatch(const Model& model, const ContinuousBatchOptions& options);

  // A number for Cancel. The text waits for its turn; nothing is called before the next step.
  // InvalidArgument for what WrittenText refuses, beams, and a text that would not fit the cache by
  // itself.
  StatusOr<int64_t> Add(TextRequest request);

  // The text goes, whatever it is doing, and nothing of it is called any more. False: there is none
  // of that number (any more).
  bool Cancel(int64_t id);

  // One pass. False: there is nothing to do. Logits that are not finite end their text alone. What
  // passes throw (memory that ends, cancelling) comes out of here and leaves the texts where they
  // were: the next step does the same again.
  bool Step();

  // The tokens of the texts that rest, the least used first; and one of them, by its place there.
  std::vector<std::vector<int64_t>> RestingTokens() const;
  RestingText CopyResting(size_t place);
  // One more that rests, of another batch of the same model, and the last to go. The model reads a
  // token to tell whether the text is of it: InvalidArgument for one that is not,
  // FailedPrecondition where no text may rest.
  Status AddResting(RestingText text);

  // How many tokens of a text were read; 0: none, or there is no such text.
  int64_t tokens_read(int64_t id) const;
  void set_tokens_in_pass(int64_t tokens) { options_.tokens_in_pass = tokens; }
  ContinuousBatchCounts counts() const;

 private:
  struct Waiting {
    int64_t id = 0;
    std::unique_ptr<WrittenText> text = nullptr;
  };
  // A text in the cache: that of the decoder's row at the same place.
  struct Row {
    int64_t id = 0;
    std::unique_ptr<WrittenText> text;  // nullptr: it rests
    int adapter = 0;
    int64_t begin_size = 0;  // BeginSize of the text when the row began
    int64_t used = 0;        // the pass in which it was read or of use, last
    Status status = {};      // of a text that fails
    bool choosing = false;   // its next token, now
    bool leaves = false;     // with the next DropLeaving
  };
  // What rows of one pass have in common.
  struct PassKind {
    int adapter;
    int64_t length;  // Model::length_kind
    bool scores;
    bool operator==(const PassKind&) const = default;
  };
  struct Pass {
    std::vector<int64_t> rows;
    std::vector<std::vector<int64_t>> tokens;
    FeedOptions options;
  };
  // A row whose first tokens a text may take.
  struct Beginning {
    int64_t row = -1;
    int64_t tokens = 0;
  };

  // What was read of a row's text.
  int64_t Read(int64_t row) const { return std::ssize(decoder_.text(row)); }
  const Row& RowAt(int64_t row) const { return rows_[static_cast<size_t>(row)]; }
  // Rows whose texts are on their way.
  std::vector<int64_t> Running() const;
  // Whether more than a text's next token is to be read.
  bool IsReading(int64_t row) const;

  // Whether the source of a row's text was read, by the encoder and the decoder.
  bool HasSource(int64_t row) const;

  // How many of a text's tokens have keys of one length kind, if it is read now: what the text
  // begins with, or all that there is of it (Model::rereads_at_length_kind).
  int64_t BeginSize(const WrittenText& text) const;
  // Whether the next token of a row's text changes the kind of all keys before it.
  bool Rereads(int64_t row) const;

  // How many keys there are before an adapter's texts.
  int64_t Before(int adapter) const { return model_.prefix(adapter).tokens; }
  // How far the next pass reads a row's text.
  int64_t PieceEnd(int64_t row) const;
  PassKind KindOf(int64_t row) const;
  // How many tokens two texts have in common, the keys of which are the same.
  int64_t Common(const std::vector<int64_t>& a, int64_t a_begin, const std::vector<int64_t>& b,
                 int64_t b_begin, int adapter) const;
  // The most that a text can take; nullopt: more if it waits.
  std::optional<Beginning> BeginningOf(const WrittenText& text) const;
  // Pages that a text takes with so many tokens.
  int64_t PagesFor(const WrittenText& text, int64_t tokens) const;
  // Whether there are pages for all of it beside those on their way, without the resting ones.
  bool Fits(const WrittenText& text, const Beginning& beginning) const;

  // The first that waits gets a row, if there is place.
  bool AdmitNext();
  Pass ChoosePass() const;
  bool HasRoom(const Pass& pass) const;
  // Someone's pages become free.
  void GiveWay();
  void Feed(const Pass& pass);
  // What a pass gave for a text: scores of its prompt, its next token.
  void Take(const Pass& pass, size_t place, const Scores& scores);
  // Texts that are done or fail end. Those whose scores or token were not taken, since something
  // was thrown, are read again, and so are those of Rereads.
  void EndTexts();
  void End(int64_t row);
  // Its text has left: it rests or leaves.
  void Rest(int64_t row);
  // The text waits again, first of all.
  void WaitAgain(int64_t row);
  int64_t NumResting() const;
  // The least used first.
  std::vector<int64_t> RestingRows() const;
  Status CheckResting(const RestingText& text) const;
  // -1: none rests.
  int64_t LeastUsedResting() const;
  // After resting texts that are too many.
  void DropLeaving();

  const Model& model_;
  ContinuousBatchOptions options_;
  const bool caches_;
  const bool encodes_;
  const std::shared_ptr<const TextFormat> format_;
  IncrementalDecoder decoder_;
  std::deque<Waiting> waiting_;
  std::vector<Row> rows_;  // in the order in which they began
  int64_t next_id_ = 0;
  bool has_read_ = false;  // the last pass did
  ContinuousBatchCounts counts_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_CONTINUOUS_BATCH_H_
