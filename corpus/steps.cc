// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "corpus/clean/clean.h"
#include "corpus/dedup/dedup.h"
#include "corpus/extract/extract.h"
#include "corpus/fetch/fetch.h"
#include "corpus/shuffle/shuffle.h"
#include "corpus/stats/stats.h"
#include "corpus/step.h"
#include "corpus/tokenize/tokenize.h"
#include "corpus/urls/urls.h"

namespace tessera::corpus {
namespace {

constexpr StepOutput kDocuments = StepOutput::kDocuments;

std::vector<Step> MakeSteps() {
  constexpr bool kNoDrops = false;
  std::vector<Step> steps;
  steps.push_back(MakeStep(
      "urls", "Drop addresses by domains, ends of names, form, and when they come again",
      R"(  tessera corpus urls --input urls.txt --output wanted.txt --blocked-domains domains.txt
  tessera corpus urls --input crawl.jsonl.gz --output wanted.jsonl.gz)",
      RunUrls));
  steps.push_back(MakeStep(
      "fetch", "Fetch the pages of a list of addresses, politely",
      "  tessera corpus fetch --input wanted.txt --output pages.jsonl --dropped dropped.tsv",
      RunFetch));
  steps.push_back(
      MakeStep("extract", "Take the text out of pages of HTML",
               R"(  tessera corpus extract --input crawl.warc.gz --output texts.jsonl.zst
  tessera corpus extract --input pages.jsonl --html-key body --output texts.jsonl)",
               RunExtract));
  steps.push_back(
      MakeStep("clean", "Mend texts, and keep those of a language, a quality and a length",
               R"(  tessera corpus clean --input texts.jsonl --output clean.jsonl --language en \
      --filters gopher_quality,c4 --dropped dropped.tsv
  tessera corpus clean --input texts.jsonl --output mended.jsonl --min-tokens 0 \
      --min-characters 0
  tessera corpus clean --input pile.jsonl --output rest.jsonl --key meta.set --drop GitHub,ArXiv)",
               RunClean));
  steps.push_back(
      MakeStep("dedup", "Drop documents, paragraphs or lines that stand there twice, or nearly",
               R"(  tessera corpus dedup --input crawl/ --output unique.jsonl.zst --threshold 0.8 \
      --pairs pairs.tsv
  tessera corpus dedup --input crawl.jsonl --output unique.jsonl --by paragraph
  tessera corpus dedup --input train.jsonl --output clean.jsonl --reference test/)",
               RunDedup));
  steps.push_back(
      MakeStep("shuffle", "Put documents in a random order, more of them than memory holds",
               "  tessera corpus shuffle --input unique.jsonl --output shuffled.jsonl --seed 1",
               RunShuffle, kDocuments, kNoDrops));
  steps.push_back(MakeStep("split", "Give each document to one of several parts, by its id",
                           R"(  tessera corpus split --input all.jsonl --output 'part-{}.jsonl' \
      --parts train=0.98 val=0.01 test=0.01)",
                           RunSplit, StepOutput::kParts, kNoDrops));
  steps.push_back(MakeStep("mix", "Make one corpus of several, by weights",
                           R"(  tessera corpus mix --input web.jsonl books.jsonl --weights 0.7,0.3 \
      --output mixed.jsonl)",
                           RunMix, kDocuments, kNoDrops));
  steps.push_back(
      MakeStep("tokenize", "Turn documents into the tokens that training reads",
               R"(  tessera corpus tokenize --input clean.jsonl.zst --tokenizer gpt2-folder \
      --output data/train --seq-len 1024)",
               RunTokenize, StepOutput::kTokens, kNoDrops));
  steps.push_back(
      MakeStep("stats", "Show lengths, languages, domains and what was dropped, as a page",
               "  tessera corpus stats --input clean.jsonl --drops dropped.tsv --output stats.html",
               RunStats, StepOutput::kPage, kNoDrops));
  return steps;
}

}  // namespace

const std::vector<Step>& Steps() {
  static const auto* const steps = new std::vector<Step>(MakeSteps());
  return *steps;
}

const Step* FindStep(std::string_view name) {
  const auto& steps = Steps();
  const auto found = std::ranges::find(steps, name, &Step::name);
  return found == steps.end() ? nullptr : &*found;
}

}  // namespace tessera::corpus
