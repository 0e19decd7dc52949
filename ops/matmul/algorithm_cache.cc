// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/algorithm_cache.h"

#include <sstream>

#include "base/error.h"

namespace tessera {
namespace {

// Calls f(field) for every field, in the order of the file.
template <typename Shape, typename F>
void EachField(Shape& s, F f) {
  f(s.m), f(s.n), f(s.k), f(s.batch), f(s.a_stride), f(s.b_stride), f(s.c_stride),
      f(s.a_batch_stride), f(s.b_batch_stride), f(s.dtype), f(s.c_dtype), f(s.transposed),
      f(s.epilogue), f(s.alignment), f(s.device);
}

}  // namespace

int AlgorithmCache::Choose(const ProductShape& shape, int candidates,
                           const std::function<double(int)>& measure) {
  TESSERA_CHECK(candidates >= 1, "matmul", "no algorithm to choose from");
  if (const std::optional<int> known = Find(shape)) return *known < candidates ? *known : 0;
  int best = 0;
  if (candidates > 1) {
    double to_beat = measure(0) * (1.0 - kMargin);
    for (int i = 1; i < candidates; ++i) {
      const double time = measure(i);
      if (time < to_beat) {
        to_beat = time;
        best = i;
      }
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return chosen_.emplace(shape, best).first->second;
}

std::optional<int> AlgorithmCache::Find(const ProductShape& shape) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = chosen_.find(shape);
  if (found == chosen_.end()) return std::nullopt;
  return found->second;
}

size_t AlgorithmCache::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return chosen_.size();
}

std::string AlgorithmCache::Format(std::string_view header) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::ostringstream out;
  out << header << '\n';
  for (const auto& [shape, choice] : chosen_) {
    EachField(shape, [&](auto field) { out << field << ' '; });
    out << choice << '\n';
  }
  return std::move(out).str();
}

Status AlgorithmCache::Parse(std::string_view text, std::string_view header) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line) || line != header) {
    return InvalidArgument("choices of algorithms are for '", line, "', this is '", header, "'");
  }
  std::map<ProductShape, int> read;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream fields(line);
    ProductShape shape;
    int choice = -1;
    EachField(shape, [&](auto& field) { fields >> field; });
    std::string rest;
    if (!(fields >> choice) || choice < 0 || fields >> rest) {
      return InvalidArgument("choices of algorithms: line ", number, " is '", line, "'");
    }
    read[shape] = choice;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [shape, choice] : read) chosen_[shape] = choice;
  return OkStatus();
}

}  // namespace tessera
