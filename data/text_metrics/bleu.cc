// SPDX-License-Identifier: Apache-2.0
#include "data/text_metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/python_text.h"
#include "base/utf8.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::data {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsStop(char c) { return c == '.' || c == ','; }

// Symbols of ASCII that stand apart always, the blank among them: all but ' , - .
bool StandsApart(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Rewrites each pair of neighbours for which `is` holds, left to right, taking none twice.
template <typename Is, typename Write>
std::string RewritePairs(const std::string& text, Is is, Write write) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && is(text[i], text[i + 1])) {
      write(text[i], text[i + 1], &out);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// mteval-v13a's rules for Western languages. All of them look at ASCII alone, so that bytes will
// do.
std::string ApplyRules(std::string_view line) {
  std::string text;
  for (const char c : line) {
    if (StandsApart(c)) {
      text += {' ', c, ' '};
    } else {
      text += c;
    }
  }
  const auto apart = [](char a, char b, std::string* out) { *out += {a, ' ', b, ' '}; };
  const auto before = [](char a, char b, std::string* out) { *out += {' ', a, ' ', b}; };
  text = RewritePairs(
      text, [](char a, char b) { return !IsDigit(a) && IsStop(b); }, apart);
  text = RewritePairs(
      text, [](char a, char b) { return IsStop(a) && !IsDigit(b); }, before);
  text = RewritePairs(
      text, [](char a, char b) { return IsDigit(a) && b == '-'; }, apart);
  return CollapsedSpaces(text);
}

std::string Tokenize13a(std::string_view text) {
  std::string line = ReplacedAll(text, "<skipped>", "");
  line = ReplacedAll(ReplacedAll(line, "-\n", ""), "\n", " ");
  line = ReplacedAll(ReplacedAll(line, "&quot;", "\""), "&amp;", "&");
  line = ReplacedAll(ReplacedAll(line, "&lt;", "<"), "&gt;", ">");
  return ApplyRules(" " + line + " ");
}

// sacreBLEU's ranges. The second is what comparing with the Python texts '\u20000' and '\u2a6d6',
// of two characters each, amounts to.
bool IsChinese(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x3400, 0x4DB5}, {0x2001, 0x2A6D}, {0x4E00, 0x9FBB}, {0xF900, 0xFA2D},
      {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9}, {0xFF00, 0xFFEF}, {0x2E80, 0x2FDF},
      {0x3000, 0x303F}, {0x31C0, 0x31EF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F},
      {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0x3200, 0x33FF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

std::string TokenizeZh(std::string_view text) {
  text = Strip(text);
  std::string line;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const std::string_view character = text.substr(i, static_cast<size_t>(c.length));
    i += static_cast<size_t>(c.length);
    if (c.valid && IsChinese(c.code_point)) {
      line += ' ';
      line += character;
      line += ' ';
    } else {
      line += character;
    }
  }
  return ApplyRules(line);
}

bool HoldsIdeograph(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (c.valid && IsBertIdeograph(c.code_point)) return true;
    i += static_cast<size_t>(c.length);
  }
  return false;
}

// Options that name one of sacreBLEU's tokenizers. Its ranges for Chinese do not tell languages
// apart: they hold dashes and quotation marks that others use.
BleuOptions OptionsFor(std::string_view reference, BleuOptions options) {
  if (options.tokenizer == BleuTokenizer::kByReference) {
    options.tokenizer = HoldsIdeograph(reference) ? BleuTokenizer::kZh : BleuTokenizer::k13a;
  }
  return options;
}

// The n-grams of one order in a text and how often they occur. The words of a n-gram are joined by
// blanks, which words do not hold.
using Counts = std::unordered_map<std::string, int64_t>;

struct Grams {
  std::array<Counts, kBleuOrder> counts;
  int64_t length = 0;
};

Grams CountGrams(const std::string& tokens) {
  std::vector<std::string_view> words;
  std::string_view rest = tokens;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    words.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  Grams grams;
  grams.length = std::ssize(words);
  for (size_t begin = 0; begin < words.size(); ++begin) {
    std::string gram;
    for (size_t n = 0; n < kBleuOrder && begin + n < words.size(); ++n) {
      if (n > 0) gram += ' ';
      gram += words[begin + n];
      ++grams.counts[n][gram];
    }
  }
  return grams;
}

void AddSegment(const Grams& output, const std::vector<Grams>& references, BleuScore* bleu) {
  int64_t nearest = references[0].length;
  for (const Grams& reference : references) {
    const int64_t distance = std::abs(output.length - reference.length);
    const int64_t best = std::abs(output.length - nearest);
    if (distance < best || (distance == best && reference.length < nearest)) {
      nearest = reference.length;
    }
  }
  bleu->output_length += output.length;
  bleu->reference_length += nearest;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    for (const auto& [gram, count] : output.counts[n]) {
      bleu->totals[n] += count;
      int64_t most = 0;
      for (const Grams& reference : references) {
        const auto at = reference.counts[n].find(gram);
        if (at != reference.counts[n].end()) most = std::max(most, at->second);
      }
      bleu->matches[n] += std::min(count, most);
    }
  }
}

}  // namespace

void ScoreCounts(BleuScore* bleu) {
  if (bleu->output_length < bleu->reference_length) {
    bleu->brevity_penalty = bleu->output_length == 0
                                ? 0
                                : std::exp(1 - static_cast<double>(bleu->reference_length) /
                                                   static_cast<double>(bleu->output_length));
  }
  if (std::all_of(bleu->matches.begin(), bleu->matches.end(), [](int64_t m) { return m == 0; })) {
    return;
  }
  double smoothing = 1;
  double sum = 0;
  bool defined = true;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    const auto total = static_cast<double>(bleu->totals[n]);
    if (total == 0) {
      defined = false;
      break;
    }
    if (bleu->matches[n] == 0) {
      smoothing *= 2;
      bleu->precisions[n] = 100 / (smoothing * total);
    } else {
      bleu->precisions[n] = 100 * static_cast<double>(bleu->matches[n]) / total;
    }
    sum += std::log(bleu->precisions[n]);
  }
  if (defined) bleu->score = bleu->brevity_penalty * std::exp(sum / kBleuOrder);
}

std::string TokenizeForBleu(std::string_view text, const BleuOptions& options) {
  const std::string_view stripped = StripRight(text);
  const std::string line = options.lower_case ? LowerCased(stripped) : std::string(stripped);
  return OptionsFor(text, options).tokenizer == BleuTokenizer::k13a ? Tokenize13a(line)
                                                                    : TokenizeZh(line);
}

StatusOr<BleuScore> CorpusBleu(const std::vector<std::string>& outputs,
                               const std::vector<std::vector<std::string>>& references,
                               const BleuOptions& options) {
  if (outputs.empty()) return InvalidArgument("BLEU of no outputs");
  if (references.empty()) return InvalidArgument("BLEU without references");
  for (const std::vector<std::string>& set : references) {
    if (set.size() != outputs.size()) {
      return InvalidArgument("BLEU of ", outputs.size(), " outputs with ", set.size(),
                             " references");
    }
  }
  BleuScore bleu;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const BleuOptions chosen = OptionsFor(references[0][i], options);
    std::vector<Grams> grams;
    for (const std::vector<std::string>& set : references) {
      grams.push_back(CountGrams(TokenizeForBleu(set[i], chosen)));
    }
    AddSegment(CountGrams(TokenizeForBleu(outputs[i], chosen)), grams, &bleu);
  }
  ScoreCounts(&bleu);
  return bleu;
}

}  // namespace tessera::data
