// SPDX-License-Identifier: Apache-2.0
// Keys and values of the tokens seen so far, for decoding one token at a time.
//
//   KeyValueCache cache(num_layers);
//   cache.BeginStep({3, 1});                    // two rows, of three new tokens and one
//   // in each attention layer: keys = cache.Append(layer, k_BGTD, v_BGTD), which attention reads
//   cache.EndStep();
//   cache.Reorder({1});                         // only the second continues
//   cache.BeginStep({0, 1}, {1, 7});            // and a new one comes, of seven tokens
//   ...
//   cache.AddRow(1, 5);                         // row 2 begins with the first five tokens of row 1
//
// Holds this rank's key/value heads, in pages of some tokens each that all rows share out among
// themselves (Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with
// PagedAttention"). A row takes what its length needs; rows come and go between steps without a
// copy, and rows with the same beginning (beams, repeated prompts) share its pages until one of
// them writes. The bits that attention gives are those of keys in one piece.
// Letters: B rows of a step, G key/value heads, T new tokens, D head size, P pages, S tokens of a
// page, N pages of the longest row.
#ifndef TESSERA_NN_KEY_VALUE_CACHE_H_
#define TESSERA_NN_KEY_VALUE_CACHE_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera::nn {

struct KeyValueCacheOptions {
  int64_t page_size = 32;
  // The memory that may be taken: pages of every layer. 0: as many as are needed, more and more.
  int64_t max_pages = 0;
  // Of max_pages, how many are allocated at the first step; more, half as many again each time, as
  // they are needed. 0: all.
  int64_t first_pages = 0;
};

// What attention reads of a layer: AttentionOptions::pages, paged_keys and key_length.
struct CachedKeys {
  Tensor k, v;         // [P, G, S, D]
  Tensor table;        // [B, N] int32
  Tensor lengths;      // [B] int32
  int64_t length = 0;  // the greatest of them
};

class KeyValueCache {
 public:
  explicit KeyValueCache(int num_layers, const KeyValueCacheOptions& options = {});

  // Tokens of each row that has been; those of the current step do not count yet.
  std::vector<int64_t> lengths() const;
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

  // Announces a step of `rows`, all different, whose inputs have `new_tokens[b]` (<= T) real tokens
  // in row b, at the front. A row behind the last one begins anew. Throws Error where pages run
  // out (HasRoom), and changes nothing then. What a step took that has not ended is given back.
  void BeginStep(const std::vector<int64_t>& rows, const std::vector<int64_t>& new_tokens);
  // Of all rows, in order.
  void BeginStep(const std::vector<int64_t>& new_tokens);
  // Whether there are pages for that.
  bool HasRoom(const std::vector<int64_t>& rows, const std::vector<int64_t>& new_tokens) const;
  // Gives back what the step under way has taken, if there is one, its new rows among it.
  void DropStep();

  // Writes a layer's new keys and values, [B, G, T, D], behind the rows' old ones, and gives all.
  CachedKeys Append(int layer, const Tensor& k, const Tensor& v);
  // Keys and values of a source sequence (an encoder's), [B, G, S, D]: set once for each row, the
  // same for all its steps. HasMemory throws Error for a step where some rows have it, SetMemory
  // where pages run out.
  bool HasMemory(int layer) const;
  // Whether a row has it, for all layers, and its pages.
  bool HasMemoryOf(int64_t row) const { return rows_.at(static_cast<size_t>(row)).remembers; }
  CachedKeys SetMemory(int layer, const Tensor& k, const Tensor& v);
  CachedKeys Memory(int layer);

  // The step is over: its tokens now count.
  void EndStep();
  // The first layer that has not appended anything in this step; -1: each has.
  int MissingLayer() const;

  // Of the rows of the step: where their new queries begin; once a layer has appended, also as
  // attention takes it, [B] int32.
  const std::vector<int64_t>& StepBegins() const { return step_.begins; }
  Tensor QueryOffsets() const { return step_.begins_B; }
  // The longest row's keys, now.
  int64_t LongestAfterStep() const;

  // Row b becomes what row rows[b] was; the number of rows may change.
  void Reorder(const std::vector<int64_t>& rows);

  // A row behind the last one: empty, or with the first `length` tokens (at most all) of row
  // `source`, whose pages both have until one of them writes. Of a source sequence it has none.
  void AddRow();
  void AddRow(int64_t source, int64_t length);

  // Of all layers together: pages that rows hold, each counted once.
  int64_t pages_in_use() const;
  // Of all layers together: what a page takes; 0 before the first step.
  int64_t page_bytes() const;
  // Those that some rows hold.
  int64_t PagesOf(const std::vector<int64_t>& rows) const;
  // Those that so many tokens take.
  int64_t PagesFor(int64_t tokens) const;
  // Those that BeginStep would take, and those that it may take (INT64_MAX: any number).
  int64_t PagesNeeded(const std::vector<int64_t>& rows,
                      const std::vector<int64_t>& new_tokens) const;
  int64_t free_pages() const;

 private:
  using Pages = std::vector<int32_t>;
  struct Row {
    int64_t length = 0;
    Pages pages;
    int64_t memory_length = 0;
    Pages memory;
    bool remembers = false;  // a step that set the memory is over
  };
  struct Layer {
    Tensor k, v;            // [P, G, S, D]
    bool appended = false;  // in this step
  };
  // What is the same for all layers of a step; tensors are made where the first layer asks.
  struct Step {
    std::vector<int64_t> rows;
    size_t rows_before = 0;  // in the cache
    std::vector<int64_t> begins;
    std::vector<int64_t> counts;
    Tensor begins_B, counts_B;
    CachedKeys keys, memory;  // without k and v
  };

  // Whether writing behind the row's tokens would change another row's.
  bool SharesLastPage(const Row& row) const;
  int32_t Take();
  void Share(const Pages& pages);
  void Release(const Pages& pages);
  // Gives a row pages up to `length` tokens, and a last page of its own.
  void Prepare(Row& row, int64_t length);
  // Makes the storages of a layer as large as pages are numbered.
  void Grow(Layer& layer, const Tensor& like) const;
  void Describe(Pages Row::*pages, const std::vector<int64_t>& lengths, const Device& device,
                CachedKeys* keys) const;
  CachedKeys Write(int layer, const Tensor& k, const Tensor& v, const CachedKeys& keys,
                   const Tensor& begins, const Tensor& counts);
  Layer& LayerAt(int layer);

  const KeyValueCacheOptions options_;
  std::vector<Layer> layers_;
  std::vector<Row> rows_;
  std::vector<int32_t> uses_;  // of each page: by how many rows
  Pages free_;
  Step step_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_KEY_VALUE_CACHE_H_
