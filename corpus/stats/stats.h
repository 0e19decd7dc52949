// SPDX-License-Identifier: Apache-2.0
// `tessera corpus stats`: what a corpus is like, as one page of HTML that needs nothing else.
#ifndef TESSERA_CORPUS_STATS_STATS_H_
#define TESSERA_CORPUS_STATS_STATS_H_

#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/block_run.h"

namespace tessera::corpus {

struct StatsOptions {
  std::vector<std::string> input;
  std::string output;
  std::vector<std::string> drops;
  std::string text_key = "text";
  std::string title = "Corpus";
  bool overwrite = false;

  static const OptionTable& Table();
};

StatusOr<Counts> RunStats(const StatsOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_STATS_STATS_H_
