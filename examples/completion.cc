// SPDX-License-Identifier: Apache-2.0
// A task of one's own: `tessera` that teaches models of next tokens to complete lines.
//
//   completion train gpt-tiny --data sums.txt --out run --task completion
//   completion eval --model run/model --data more.txt --task completion
//
// A line is "question=answer". The question is given, the answer is learned, and an evaluation
// counts the answers that are right to the last token.
#include <algorithm>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/options.h>
#include <tessera/core/batch_keys.h>
#include <tessera/data/dataset/map_dataset.h>
#include <tessera/data/dataset/subset.h>
#include <tessera/models/family.h>
#include <tessera/models/model_keys.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/tools/program.h>
#include <tessera/train/task.h>

#include "nlohmann/json.hpp"

namespace {

using namespace tessera;

struct CompletionOptions {
  std::string separator = "=";

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<CompletionOptions>("completion")
                            .Add("separator", &CompletionOptions::separator,
                                 "what stands between question and answer", {.evaluation = true}));
    return *table;
  }
};

// A line: the first `given` tokens are the question, with the separator.
struct Line {
  std::vector<int32_t> tokens;
  size_t given = 0;
};

// Of a text file; what is wrong with it is told with its path and line.
StatusOr<std::vector<Line>> ReadLines(const std::string& path, const std::string& separator,
                                      const train::TaskInput& input) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const int64_t end, input.NeedToken(tokenizer->eos_id(), "end of text"));
  std::istringstream stream(text);
  std::vector<Line> lines;
  int64_t number = 0;
  for (std::string written; std::getline(stream, written);) {
    ++number;
    const size_t at = written.find(separator);
    if (at == std::string::npos) {
      return InvalidArgument(path, ":", number, ": no '", separator, "'");
    }
    Line line;
    line.tokens = tokenizer->Encode(written.substr(0, at + separator.size()));
    line.given = line.tokens.size();
    tokenizer->EncodeTo(written.substr(at + separator.size()), {}, &line.tokens);
    line.tokens.push_back(static_cast<int32_t>(end));
    const int64_t tokens = std::ssize(line.tokens) - 1;
    if (tokens > input.SeqLen(tokens)) {
      return InvalidArgument(path, ":", number, ": ", tokens, " tokens, more than ",
                             input.SeqLen(tokens));
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return InvalidArgument(path, ": has no lines");
  return lines;
}

// Rows as long as the longest line. The target of a token is the one that follows it; none is where
// that one is given, nor behind the end, where rows are filled up.
StatusOr<data::Batch> Collate(std::span<const Line> lines) {
  size_t longest = 0;
  for (const Line& line : lines) longest = std::max(longest, line.tokens.size() - 1);
  const Shape shape = {std::ssize(lines), static_cast<int64_t>(longest)};
  std::vector<int64_t> ids(lines.size() * longest, 0);
  std::vector<int64_t> targets(lines.size() * longest, data::kIgnoreLabel);
  for (size_t row = 0; row < lines.size(); ++row) {
    const Line& line = lines[row];
    for (size_t i = 0; i + 1 < line.tokens.size(); ++i) {
      ids[row * longest + i] = line.tokens[i];
      if (i + 1 >= line.given) targets[row * longest + i] = line.tokens[i + 1];
    }
  }
  return data::BatchOf({{keys::kInputIds, Tensor::FromVector(ids, shape)},
                        {keys::kTargets, Tensor::FromVector(targets, shape)}});
}

// The share of answers whose every token is the model's first choice.
class ExactMatch : public train::EvaluationMetrics {
 public:
  size_t num_counts() const override { return 2; }  // rows, right ones

  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const train::BatchResult& result) const override {
    const Tensor chosen_BT = ArgMax(result.outputs.at(keys::kLogits), -1);
    const auto chosen = CopyTo(chosen_BT, Device::Cpu()).ToVector<int64_t>();
    const auto targets = batch.at(keys::kTargets).ToVector<int64_t>();
    const size_t row_size = targets.size() / static_cast<size_t>(batch.rows);
    std::vector<double> counts = {0, 0};
    for (size_t begin = 0; begin < targets.size(); begin += row_size) {
      bool right = true;
      for (size_t i = begin; i < begin + row_size; ++i) {
        right = right && (targets[i] == data::kIgnoreLabel || targets[i] == chosen[i]);
      }
      counts[0] += 1;
      counts[1] += right ? 1 : 0;
    }
    return counts;
  }

  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    return {{"exact_match", sums[0] > 0 ? sums[1] / sums[0] : 0.0}};
  }
};

StatusOr<std::shared_ptr<const data::Dataset>> OpenLines(const std::string& path,
                                                         const train::TaskInput& input) {
  TESSERA_ASSIGN_OR_RETURN(const auto options, input.config.Part<CompletionOptions>());
  TESSERA_ASSIGN_OR_RETURN(const auto read, ReadLines(path, options.separator, input));
  const auto lines = std::make_shared<const std::vector<Line>>(read);
  return std::make_shared<data::MapDataset<Line>>(
      std::ssize(*lines),
      [lines](int64_t index) -> StatusOr<Line> { return (*lines)[static_cast<size_t>(index)]; },
      Collate);
}

StatusOr<train::TaskData> Open(const train::TaskInput& input) {
  const train::RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(source, input));
  train::TaskData data;
  data.objective.metrics = std::make_shared<ExactMatch>();
  data.seq_len = input.SeqLen(0);
  if (input.evaluation) {
    data.validation = lines;
  } else if (!config.val_data.empty()) {
    data.train = lines;
    TESSERA_ASSIGN_OR_RETURN(data.validation, OpenLines(config.val_data, input));
  } else {
    std::tie(data.train, data.validation) =
        data::SplitDataset(lines, {.fraction = config.val_fraction});
  }
  return data;
}

// A run that names no task has one of the built-in ones: this one is no better for any data.
int Fit(const train::RunConfig&, const models::Architecture*) { return 1; }

const train::TaskKind kTask = {.name = "completion",
                               .help = "lines whose ends are learned",
                               .capability = models::Capability::kNextToken,
                               .fit = Fit,
                               .options = &CompletionOptions::Table(),
                               .open = Open};
const train::TaskRegistration registration(&kTask);

}  // namespace

int main(int argc, char** argv) { return tessera::Main(argc, argv, {.name = "completion"}); }
