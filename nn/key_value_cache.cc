// SPDX-License-Identifier: Apache-2.0
#include "nn/key_value_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "ops/attention/pages.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr char kName[] = "key_value_cache";

Tensor AsInt32(const std::vector<int64_t>& values, const Device& device) {
  const Tensor t = Empty({std::ssize(values)}, DType::kInt32);
  std::copy(values.begin(), values.end(), t.data<int32_t>());
  return CopyTo(t, device);
}

}  // namespace

KeyValueCache::KeyValueCache(int num_layers, const KeyValueCacheOptions& options)
    : options_(options), layers_(static_cast<size_t>(num_layers)) {
  TESSERA_CHECK(options.page_size > 0 && options.max_pages >= 0, kName, "pages of ",
                options.page_size, " tokens, at most ", options.max_pages);
}

std::vector<int64_t> KeyValueCache::lengths() const {
  std::vector<int64_t> lengths;
  for (const Row& row : rows_) lengths.push_back(row.length);
  return lengths;
}

int64_t KeyValueCache::PagesFor(int64_t tokens) const {
  return (tokens + options_.page_size - 1) / options_.page_size;
}

bool KeyValueCache::SharesLastPage(const Row& row) const {
  return row.length % options_.page_size != 0 && uses_[static_cast<size_t>(row.pages.back())] > 1;
}

int64_t KeyValueCache::PagesNeeded(const std::vector<int64_t>& rows,
                                   const std::vector<int64_t>& new_tokens) const {
  int64_t needed = 0;
  std::map<int32_t, int32_t> writers;  // of a page that rows share
  for (size_t b = 0; b < rows.size(); ++b) {
    if (rows[b] >= num_rows()) {
      needed += PagesFor(new_tokens[b]);
      continue;
    }
    const Row& row = rows_[static_cast<size_t>(rows[b])];
    needed += PagesFor(row.length + new_tokens[b]) - std::ssize(row.pages);
    if (new_tokens[b] == 0 || !SharesLastPage(row)) continue;
    // Where all that share it write, the last one keeps it.
    const int32_t page = row.pages.back();
    if (++writers[page] < uses_[static_cast<size_t>(page)]) ++needed;
  }
  return needed;
}

int64_t KeyValueCache::free_pages() const {
  return options_.max_pages == 0 ? INT64_MAX : options_.max_pages - pages_in_use();
}

bool KeyValueCache::HasRoom(const std::vector<int64_t>& rows,
                            const std::vector<int64_t>& new_tokens) const {
  return options_.max_pages == 0 || PagesNeeded(rows, new_tokens) <= free_pages();
}

int64_t KeyValueCache::pages_in_use() const { return std::ssize(uses_) - std::ssize(free_); }

int64_t KeyValueCache::page_bytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const Tensor& t : {layer.k, layer.v}) {
      if (!t.defined() || t.size(0) == 0) continue;
      bytes += t.numel() / t.size(0) * static_cast<int64_t>(DTypeSize(t.dtype()));
    }
  }
  return bytes;
}

int64_t KeyValueCache::PagesOf(const std::vector<int64_t>& rows) const {
  std::vector<bool> held(uses_.size());
  for (const int64_t index : rows) {
    const Row& row = rows_.at(static_cast<size_t>(index));
    for (const Pages* pages : {&row.pages, &row.memory}) {
      for (const int32_t page : *pages) held[static_cast<size_t>(page)] = true;
    }
  }
  return std::count(held.begin(), held.end(), true);
}

int32_t KeyValueCache::Take() {
  if (free_.empty()) {
    TESSERA_CHECK(options_.max_pages == 0 || std::ssize(uses_) < options_.max_pages, kName, "all ",
                  options_.max_pages, " pages of ", options_.page_size, " tokens are taken");
    uses_.push_back(1);
    return static_cast<int32_t>(uses_.size() - 1);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  uses_[static_cast<size_t>(page)] = 1;
  return page;
}

void KeyValueCache::Share(const Pages& pages) {
  for (const int32_t page : pages) ++uses_[static_cast<size_t>(page)];
}

void KeyValueCache::Release(const Pages& pages) {
  for (const int32_t page : pages) {
    if (--uses_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }
}

void KeyValueCache::Prepare(Row& row, int64_t length) {
  if (length > row.length && SharesLastPage(row)) {
    row.pages.push_back(Take());  // where DropStep finds it
    const auto shared = row.pages.end() - 2;
    for (Layer& layer : layers_) {
      if (!layer.k.defined()) continue;
      Grow(layer, layer.k);
      for (const Tensor& t : {layer.k, layer.v}) {
        CopyInto(Select(t, 0, row.pages.back()), Select(t, 0, *shared));
      }
    }
    Release({*shared});
    row.pages.erase(shared);
  }
  while (std::ssize(row.pages) < PagesFor(length)) row.pages.push_back(Take());
}

void KeyValueCache::DropStep() {
  for (const int64_t index : step_.rows) {
    Row& row = rows_[static_cast<size_t>(index)];
    while (std::ssize(row.pages) > PagesFor(row.length)) {
      Release({row.pages.back()});
      row.pages.pop_back();
    }
    if (row.remembers) continue;
    Release(row.memory);
    row.memory.clear();
  }
  if (!step_.rows.empty()) rows_.resize(step_.rows_before);
  step_ = Step();
}

void KeyValueCache::BeginStep(const std::vector<int64_t>& new_tokens) {
  std::vector<int64_t> rows(new_tokens.size());
  for (size_t b = 0; b < rows.size(); ++b) rows[b] = static_cast<int64_t>(b);
  TESSERA_CHECK(rows_.empty() || rows_.size() == rows.size(), kName, rows.size(),
                " rows in a step of a cache with ", rows_.size());
  BeginStep(rows, new_tokens);
}

void KeyValueCache::BeginStep(const std::vector<int64_t>& rows,
                              const std::vector<int64_t>& new_tokens) {
  const NoGrad no_grad;
  TESSERA_CHECK(rows.size() == new_tokens.size(), kName, rows.size(), " rows with ",
                new_tokens.size(), " counts of tokens");
  DropStep();
  int64_t known = num_rows();
  for (size_t b = 0; b < rows.size(); ++b) {
    if (rows[b] == known) ++known;
    TESSERA_CHECK(rows[b] >= 0 && rows[b] < known && new_tokens[b] >= 0 &&
                      std::count(rows.begin(), rows.end(), rows[b]) == 1,
                  kName, "row ", rows[b], " with ", new_tokens[b], " new tokens, in a cache of ",
                  num_rows(), " rows");
  }
  TESSERA_CHECK(HasRoom(rows, new_tokens), kName, "a step needs more than the ",
                options_.max_pages - pages_in_use(), " free ones of ", options_.max_pages,
                " pages of ", options_.page_size, " tokens");
  step_.rows_before = rows_.size();
  rows_.resize(static_cast<size_t>(known));
  step_.rows = rows;
  step_.counts = new_tokens;
  for (size_t b = 0; b < rows.size(); ++b) {
    Row& row = rows_[static_cast<size_t>(rows[b])];
    step_.begins.push_back(row.length);
    Prepare(row, row.length + new_tokens[b]);
  }
  for (Layer& layer : layers_) layer.appended = false;
}

int KeyValueCache::MissingLayer() const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [](const Layer& layer) { return !layer.appended; });
  return found == layers_.end() ? -1 : static_cast<int>(found - layers_.begin());
}

void KeyValueCache::Grow(Layer& layer, const Tensor& like) const {
  const int64_t pages = layer.k.defined() ? layer.k.size(0) : 0;
  if (std::ssize(uses_) <= pages) return;
  const auto [page_size, most, first] = options_;
  int64_t more = std::max(std::ssize(uses_), pages + pages / 2);
  if (most > 0) more = std::min(most, first == 0 ? most : std::max(more, first));
  const auto grown = [&](const Tensor& t) {
    Tensor room =
        Empty({more, like.size(1), options_.page_size, like.size(3)}, like.dtype(), like.device());
    if (t.defined()) CopyInto(Slice(room, 0, 0, pages), t);
    return room;
  };
  const Tensor k = grown(layer.k);
  layer.v = grown(layer.v);
  layer.k = k;
}

void KeyValueCache::Describe(Pages Row::*pages, const std::vector<int64_t>& lengths,
                             const Device& device, CachedKeys* keys) const {
  size_t most = 0;
  for (const int64_t row : step_.rows) {
    most = std::max(most, (rows_[static_cast<size_t>(row)].*pages).size());
  }
  const Tensor table = Zeros({std::ssize(step_.rows), static_cast<int64_t>(most)}, DType::kInt32);
  for (size_t b = 0; b < step_.rows.size(); ++b) {
    const Pages& of_row = rows_[static_cast<size_t>(step_.rows[b])].*pages;
    std::copy(of_row.begin(), of_row.end(), table.data<int32_t>() + b * most);
  }
  keys->table = CopyTo(table, device);
  keys->lengths = AsInt32(lengths, device);
  keys->length = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

KeyValueCache::Layer& KeyValueCache::LayerAt(int layer) {
  TESSERA_CHECK(layer >= 0 && layer < static_cast<int>(layers_.size()), kName, "layer ", layer,
                " of ", layers_.size());
  return layers_[static_cast<size_t>(layer)];
}

CachedKeys KeyValueCache::Write(int layer_index, const Tensor& k, const Tensor& v,
                                const CachedKeys& keys, const Tensor& begins,
                                const Tensor& counts) {
  Layer& layer = LayerAt(layer_index);
  Grow(layer, k);
  const PagePlaces places = {.table = keys.table, .begins = begins, .counts = counts};
  WritePages(layer.k, k, places);
  WritePages(layer.v, v, places);
  CachedKeys all = keys;
  all.k = layer.k;
  all.v = layer.v;
  return all;
}

CachedKeys KeyValueCache::Append(int layer_index, const Tensor& k, const Tensor& v) {
  const NoGrad no_grad;
  Layer& layer = LayerAt(layer_index);
  TESSERA_CHECK(k.ndim() == 4 && k.size(0) == std::ssize(step_.rows), kName, k, " in a step of ",
                step_.rows.size(), " rows");
  for (size_t b = 0; b < step_.rows.size(); ++b) {
    TESSERA_CHECK(step_.counts[b] <= k.size(2), kName, step_.counts[b], " new tokens in row ", b,
                  " of ", k);
  }
  if (!step_.keys.table.defined()) {
    std::vector<int64_t> lengths = step_.begins;
    for (size_t b = 0; b < lengths.size(); ++b) lengths[b] += step_.counts[b];
    Describe(&Row::pages, lengths, k.device(), &step_.keys);
    step_.begins_B = AsInt32(step_.begins, k.device());
    step_.counts_B = AsInt32(step_.counts, k.device());
  }
  layer.appended = true;
  return Write(layer_index, k, v, step_.keys, step_.begins_B, step_.counts_B);
}

bool KeyValueCache::HasMemory(int layer) const {
  TESSERA_CHECK(layer >= 0 && layer < static_cast<int>(layers_.size()), kName, "layer ", layer,
                " of ", layers_.size());
  const auto with = std::count_if(step_.rows.begin(), step_.rows.end(), [&](int64_t row) {
    return rows_[static_cast<size_t>(row)].remembers;
  });
  TESSERA_CHECK(with == 0 || with == std::ssize(step_.rows), kName, "a source is known of ", with,
                " of the ", step_.rows.size(), " rows of a step: new rows take one of their own");
  return with > 0;
}

CachedKeys KeyValueCache::SetMemory(int layer, const Tensor& k, const Tensor& v) {
  const NoGrad no_grad;
  TESSERA_CHECK(k.ndim() == 4 && k.size(0) == std::ssize(step_.rows), kName, k, " in a step of ",
                step_.rows.size(), " rows");
  const std::vector<int64_t> lengths(step_.rows.size(), k.size(2));
  if (!step_.memory.table.defined()) {
    for (const int64_t index : step_.rows) {
      Row& row = rows_[static_cast<size_t>(index)];
      row.memory_length = k.size(2);
      while (std::ssize(row.memory) < PagesFor(k.size(2))) row.memory.push_back(Take());
    }
    Describe(&Row::memory, lengths, k.device(), &step_.memory);
  }
  TESSERA_CHECK(k.size(2) == step_.memory.length, kName, "a source of ", k.size(2),
                " tokens in layer ", layer, ", of ", step_.memory.length, " in the first");
  const std::vector<int64_t> begins(step_.rows.size(), 0);
  return Write(layer, k, v, step_.memory, AsInt32(begins, k.device()), step_.memory.lengths);
}

CachedKeys KeyValueCache::Memory(int layer_index) {
  const Layer& layer = LayerAt(layer_index);
  if (!step_.memory.table.defined()) {
    std::vector<int64_t> lengths;
    for (const int64_t row : step_.rows) {
      lengths.push_back(rows_[static_cast<size_t>(row)].memory_length);
    }
    Describe(&Row::memory, lengths, layer.k.device(), &step_.memory);
  }
  CachedKeys all = step_.memory;
  all.k = layer.k;
  all.v = layer.v;
  return all;
}

void KeyValueCache::EndStep() {
  for (size_t b = 0; b < step_.rows.size(); ++b) {
    Row& row = rows_[static_cast<size_t>(step_.rows[b])];
    row.length += step_.counts[b];
    row.remembers = !row.memory.empty();
  }
  step_ = Step();
}

int64_t KeyValueCache::LongestAfterStep() const {
  int64_t longest = 0;
  for (size_t b = 0; b < step_.begins.size(); ++b) {
    longest = std::max(longest, step_.begins[b] + step_.counts[b]);
  }
  return longest;
}

void KeyValueCache::Reorder(const std::vector<int64_t>& rows) {
  DropStep();
  std::vector<Row> kept;
  for (const int64_t index : rows) {
    const Row& row = rows_.at(static_cast<size_t>(index));
    Share(row.pages);
    Share(row.memory);
    kept.push_back(row);
  }
  for (const Row& row : rows_) {
    Release(row.pages);
    Release(row.memory);
  }
  rows_ = std::move(kept);
}

void KeyValueCache::AddRow() {
  DropStep();
  rows_.emplace_back();
}

void KeyValueCache::AddRow(int64_t source, int64_t length) {
  DropStep();
  TESSERA_CHECK(source >= 0 && source < num_rows() && length >= 0 &&
                    length <= rows_[static_cast<size_t>(source)].length,
                kName, "a row of the first ", length, " tokens of row ", source, ", of ",
                num_rows());
  const Pages& pages = rows_[static_cast<size_t>(source)].pages;
  Row row;
  row.length = length;
  row.pages.assign(pages.begin(), pages.begin() + PagesFor(length));
  rows_.push_back(std::move(row));
  Share(rows_.back().pages);
}

}  // namespace tessera::nn
