// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/json_grammar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "base/json_ordered.h"
#include "models/generation/grammar/json_characters.h"
#include "models/generation/grammar/json_syntax.h"
#include "models/generation/grammar/schema_facts.h"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;
using Facts = SchemaFacts;

constexpr int64_t kMostItems = 4096;
constexpr int64_t kMostAdditional = 1024;
constexpr int64_t kLongestText = 100'000;
constexpr size_t kMostTexts = 1000;  // rules of strings with bounds of their own
constexpr int kMostRefs = 100;
constexpr size_t kMostRules = 20'000;
constexpr size_t kMostProperties = 2000;

// The rules of one schema. A rule is begun where it is first called and written later, so that
// schemas may contain themselves, and nesting needs no stack.
class Rules {
 public:
  Rules(const ordered_json& schema, const std::string& where, JsonObjects objects)
      : reader_(schema, where), objects_(objects) {}

  StatusOr<ByteGrammar> Write(const std::vector<JsonBehindText>& alternatives) {
    const int root = grammar_.AddRule();
    indent_ = grammar_.AddRule();
    TESSERA_RETURN_IF_ERROR(Define(indent_, JsonIndent()));
    Nfa nfa;
    const int end = nfa.Add();
    nfa.Accept(end);
    for (const auto& [text, schema] : alternatives) {
      const int begin = nfa.Text(nfa.start(), text);
      const int value = nfa.Add();
      nfa.Empty(begin, value);
      nfa.Edge(begin, ' ', value);
      nfa.Edge(value, CallOf(RuleOf({schema})), end);
    }
    TESSERA_RETURN_IF_ERROR(Define(root, nfa));
    while (!open_.empty()) {
      const auto [schemas, rule] = open_.front();
      open_.pop_front();
      if (open_.size() > kMostRules) return TooLarge(schemas);
      TESSERA_RETURN_IF_ERROR(WriteSchemas(schemas, rule));
    }
    if (const Status status = grammar_.Finish(root); !status.ok()) {
      return InvalidArgument(reader_.At(alternatives[0].schema), Message(status) == "no text fits"
                                                                     ? "no value fits the schema"
                                                                     : Message(status));
    }
    return std::move(grammar_);
  }

 private:
  Status TooLarge(const Schemas& schemas) {
    return InvalidArgument(reader_.At(schemas.empty() ? nullptr : schemas[0]),
                           "the schema needs too many states");
  }

  int RuleOf(Schemas schemas) {
    // What says nothing more than another schema is that one.
    for (int i = 0; i < kMostRefs && schemas.size() == 1 && schemas[0]->is_object() &&
                    schemas[0]->size() == 1 && schemas[0]->contains("$ref");
         ++i) {
      const StatusOr<const ordered_json*> target = reader_.Resolve(schemas[0]);
      if (target.ok()) schemas[0] = *target;  // else an error when it is read
    }
    std::erase_if(schemas, [](const ordered_json* s) { return *s == ordered_json(true); });
    const auto [found, added] = rules_.try_emplace(schemas, 0);
    if (added) {
      found->second = grammar_.AddRule();
      open_.emplace_back(std::move(schemas), found->second);
    }
    return found->second;
  }

  // Of an automaton that several schemas have in common.
  StatusOr<int> SharedRule(const std::string& key, const auto& make) {
    const auto found = shared_.find(key);
    if (found != shared_.end()) return found->second;
    const int rule = grammar_.AddRule();
    shared_[key] = rule;
    TESSERA_RETURN_IF_ERROR(make(rule));
    return rule;
  }

  Status Define(int rule, const Nfa& nfa) {
    const std::optional<Dfa> dfa = Determinise(nfa);
    if (!dfa) return TooLarge({});
    return Define(rule, *dfa);
  }
  Status Define(int rule, const Dfa& dfa) {
    states_ += dfa.states.size();
    if (states_ > 5 * kMostStates) return TooLarge({});
    grammar_.Define(rule, dfa);
    return OkStatus();
  }

  Status WriteSchemas(const Schemas& schemas, int rule) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Facts> all, reader_.Read(schemas));
    Nfa nfa;
    const int end = nfa.Add();
    nfa.Accept(end);
    for (const Facts& facts : all) {
      TESSERA_RETURN_IF_ERROR(AddFacts(facts, schemas, &nfa, end));
    }
    return Define(rule, nfa);
  }

  // What one alternative of a schema accepts, from the automaton's start to `end`.
  Status AddFacts(const Facts& facts, const Schemas& schemas, Nfa* nfa, int end) {
    const int from = nfa->start();
    const auto literal = [&](std::string_view text) { nfa->Empty(nfa->Text(from, text), end); };
    if (facts.values) return AddValues(facts, schemas, nfa, end);
    if ((facts.kinds & Facts::kNull) != 0) literal("null");
    if ((facts.kinds & Facts::kBoolean) != 0) {
      literal("true");
      literal("false");
    }
    if ((facts.kinds & (Facts::kInteger | Facts::kFraction)) != 0) {
      TESSERA_ASSIGN_OR_RETURN(const int rule, NumberRule(facts));
      nfa->Edge(from, CallOf(rule), end);
    }
    if ((facts.kinds & Facts::kString) != 0) {
      TESSERA_ASSIGN_OR_RETURN(const int rule, TextRule(facts, schemas));
      nfa->Edge(from, CallOf(rule), end);
    }
    if ((facts.kinds & Facts::kArray) != 0) AddArray(facts, nfa, from, end);
    if ((facts.kinds & Facts::kObject) != 0) return AddObject(facts, schemas, nfa, end);
    return OkStatus();
  }

  StatusOr<Dfa> NumberAutomaton(const Facts& facts) const {
    const bool integers = (facts.kinds & Facts::kFraction) == 0;
    std::optional<Dfa> dfa = facts.range.Automaton(integers, facts.multiple_of);
    if (!dfa) return InvalidArgument(reader_.At(nullptr), "the bounds need too many states");
    return *std::move(dfa);
  }

  StatusOr<int> NumberRule(const Facts& facts) {
    const bool integers = (facts.kinds & Facts::kFraction) == 0;
    return SharedRule(
        Concat("number ", integers, ' ', facts.multiple_of ? facts.multiple_of->Key() : "", ' ',
               facts.range.Key()),
        [&](int rule) -> Status {
          TESSERA_ASSIGN_OR_RETURN(const Dfa dfa, NumberAutomaton(facts));
          return Define(rule, dfa);
        });
  }

  // The characters of a text by its patterns and lengths.
  StatusOr<Dfa> TextAutomaton(const Facts& facts, const Schemas& schemas) {
    std::optional<Dfa> all = *facts.patterns[0].automaton;
    for (size_t i = 1; i < facts.patterns.size() && all; ++i) {
      all = Pair(*all, *facts.patterns[i].automaton, Pairing::kBoth, kMostStates);
    }
    const int64_t longest = facts.max_length.value_or(facts.min_length);
    if (longest > kLongestText) return TooLarge(schemas);
    if (all && longest > 0) {
      Dfa lengths;
      for (int64_t i = 0; i <= longest; ++i) {
        Dfa::State& state = lengths.states.emplace_back();
        state.accepts = i >= facts.min_length;
        const bool more = i < longest || !facts.max_length;
        const auto to = static_cast<int>(std::min(i + 1, longest));
        if (more) state.edges.push_back({0, kLastCodePoint, to});
      }
      all = Pair(*all, lengths, Pairing::kBoth, kMostStates);
    } else if (all && facts.max_length) {  // the empty text
      Dfa empty;
      empty.states.emplace_back().accepts = true;
      all = Pair(*all, empty, Pairing::kBoth);
    }
    if (!all) return TooLarge(schemas);
    return *std::move(all);
  }

  StatusOr<int> TextRule(const Facts& facts, const Schemas& schemas) {
    std::string key = Concat("text ", facts.min_length, ' ', facts.max_length.value_or(-1));
    for (const auto& pattern : facts.patterns) key += ' ' + pattern.text;
    return SharedRule(key, [&](int rule) -> Status {
      if (!facts.patterns.empty()) {
        TESSERA_ASSIGN_OR_RETURN(const Dfa characters, TextAutomaton(facts, schemas));
        const std::optional<Dfa> quoted = QuotedJson(characters);
        if (!quoted) return TooLarge(schemas);
        return Define(rule, *quoted);
      }
      if (facts.min_length > kLongestText || shared_.size() > kMostTexts) return TooLarge(schemas);
      std::optional<int64_t> most = facts.max_length;
      if (most) most = std::min(*most, kLongestText);
      if (most && *most < facts.min_length) return Define(rule, Nfa());
      grammar_.DefineText(rule, facts.min_length, most);
      return OkStatus();
    });
  }

  // The values of enum and const that fit what the schema says beside them.
  Status AddValues(const Facts& facts, const Schemas& schemas, Nfa* nfa, int end) {
    for (const ordered_json& value : *facts.values) {
      if (const auto number = NumberOf(value)) {
        TESSERA_ASSIGN_OR_RETURN(const Dfa numbers, NumberAutomaton(facts));
        if (!numbers.Accepts(CodePoints(number->ToText()))) continue;
      } else if (value.is_string() && facts.restricts_text()) {
        const auto characters = CodePoints(value.get<std::string>());
        const auto length = std::ssize(characters);
        if (length < facts.min_length || (facts.max_length && length > *facts.max_length)) continue;
        const auto fits = [&](const auto& p) { return p.automaton->Accepts(characters); };
        if (!std::all_of(facts.patterns.begin(), facts.patterns.end(), fits)) continue;
      } else if (value.is_structured() && RestrictsParts(facts)) {
        return InvalidArgument(reader_.At(schemas[0]),
                               "arrays and objects in 'enum' or 'const' are not supported beside "
                               "keywords for their items and properties");
      }
      const int to = AddJsonConstant(value, indent_, nfa, nfa->start());
      if (to < 0) return TooLarge(schemas);
      nfa->Empty(to, end);
    }
    return OkStatus();
  }

  static bool RestrictsParts(const Facts& facts) {
    return facts.min_items > 0 || facts.max_items || !facts.prefix_items.empty() ||
           !facts.items.empty() || !facts.properties.empty() || !facts.additional.empty() ||
           facts.min_properties > 0 || facts.max_properties;
  }

  void AddArray(const Facts& facts, Nfa* nfa, int from, int end) {
    const int64_t listed = std::ssize(facts.prefix_items);
    const int64_t most = facts.max_items ? std::min(*facts.max_items, kMostItems) : -1;
    const int64_t blocks =
        most >= 0 ? most : std::min(std::max(listed, facts.min_items), kMostItems);
    if (facts.min_items > kMostItems || (most >= 0 && facts.min_items > most)) return;
    const int begin = nfa->Text(from, "[");
    const int close = nfa->Add();
    const int bracket = nfa->Add();
    AddJsonSpace(indent_, nfa, close, bracket);
    nfa->Edge(bracket, ']', end);
    if (facts.min_items == 0) nfa->Empty(begin, close);
    int next = nfa->Add();  // an item may follow
    AddJsonSpace(indent_, nfa, begin, next);
    for (int64_t i = 0;; ++i) {
      if (most >= 0 && i == blocks) return;
      const Schemas& schemas =
          i < listed ? facts.prefix_items[static_cast<size_t>(i)] : facts.items;
      const int behind = nfa->Add();
      nfa->Edge(next, CallOf(RuleOf(schemas)), behind);
      if (i + 1 >= facts.min_items) nfa->Empty(behind, close);
      const int comma = nfa->Text(behind, ",");
      // Without an upper bound the last block is its own successor.
      if (most < 0 && i >= blocks) return AddJsonSpace(indent_, nfa, comma, next);
      next = nfa->Add();
      AddJsonSpace(indent_, nfa, comma, next);
    }
  }

  struct Members;
  Status AddObject(const Facts& facts, const Schemas& schemas, Nfa* nfa, int end);
  StatusOr<int> NameRule(const Facts& facts);

  const SchemaReader reader_;
  const JsonObjects objects_;
  const ordered_json never_ = false;
  ByteGrammar grammar_;
  int indent_ = 0;
  size_t states_ = 0;
  std::map<Schemas, int> rules_;
  std::map<std::string, int> shared_;
  std::deque<std::pair<Schemas, int>> open_;
};

// The members of an object, one after the other. A place knows which declared property is next and,
// where they are counted, how many members there are. Of additional ones, whose names may be the
// same, the lower bound counts a single one.
struct Rules::Members {
  struct Place {
    size_t next;
    int64_t counted;  // for min_properties
    int64_t all;      // for max_properties
    bool additional;
    auto operator<=>(const Place&) const = default;
  };

  const Facts& facts;
  Nfa* nfa;
  const int close;  // the space before the brace
  std::map<std::pair<Place, bool>, int> states = {};
  std::vector<std::pair<Place, bool>> open = {};

  // Where a member may come (`begin`), or behind one.
  int StateOf(const Place& place, bool begin) {
    const auto [found, added] = states.try_emplace({place, begin}, 0);
    if (added) {
      found->second = nfa->Add();
      open.emplace_back(place, begin);
    }
    return found->second;
  }

  bool MayClose(const Place& place) const {
    for (size_t i = place.next; i < facts.properties.size(); ++i) {
      if (facts.properties[i].required) return false;
    }
    return place.counted >= facts.min_properties;
  }

  bool MayGrow(const Place& place) const {
    return !facts.max_properties || place.all < *facts.max_properties;
  }

  Place Behind(Place place, size_t next, bool additional) const {
    place.next = next;
    if (facts.min_properties > 0 && !(additional && place.additional)) {
      place.counted = std::min(place.counted + 1, facts.min_properties);
      place.additional = additional;
    }
    if (facts.max_properties) ++place.all;
    return place;
  }
};

// A name that no declared property has.
StatusOr<int> Rules::NameRule(const Facts& facts) {
  if (facts.properties.empty()) return TextRule({}, {});
  std::string key = "name";
  for (const Facts::Property& property : facts.properties) {
    key += ordered_json(property.name).dump();
  }
  return SharedRule(key, [&](int rule) -> Status {
    Nfa any;
    any.Edge(any.start(), 0, kLastCodePoint, any.start());
    any.Accept(any.start());
    Nfa declared;
    const int end = declared.Add();
    declared.Accept(end);
    for (const Facts::Property& property : facts.properties) {
      int at = declared.start();
      for (const Symbol point : CodePoints(property.name)) {
        const int to = declared.Add();
        declared.Edge(at, point, to);
        at = to;
      }
      declared.Empty(at, end);
    }
    const std::optional<Dfa> all = Determinise(any);
    const std::optional<Dfa> names = Determinise(declared);
    if (!all || !names) return TooLarge({});
    const std::optional<Dfa> others = Pair(*all, *names, Pairing::kFirstOnly);
    const std::optional<Dfa> quoted = others ? QuotedJson(*others) : std::nullopt;
    return quoted ? Define(rule, *quoted) : TooLarge({});
  });
}

Status Rules::AddObject(const Facts& given, const Schemas& schemas, Nfa* nfa, int end) {
  Facts facts = given;
  const size_t size = facts.properties.size();
  if (size > kMostProperties) return TooLarge(schemas);
  if (facts.min_properties > static_cast<int64_t>(size) + 1) {
    return InvalidArgument(reader_.At(schemas.empty() ? nullptr : schemas[0]),
                           "'minProperties' is supported up to one more than there are declared "
                           "properties");
  }
  if (facts.max_properties) {
    facts.max_properties =
        std::min(*facts.max_properties, static_cast<int64_t>(size) + kMostAdditional);
  }
  const bool silent = facts.additional.empty() && size > 0;
  if (objects_ == JsonObjects::kClosed && silent) facts.additional = {&never_};
  const int begin = nfa->Text(nfa->start(), "{");
  const int close = nfa->Add();
  const int brace = nfa->Add();
  AddJsonSpace(indent_, nfa, close, brace);
  nfa->Edge(brace, '}', end);
  TESSERA_ASSIGN_OR_RETURN(const int name, NameRule(facts));
  const int additional = RuleOf(facts.additional);
  Members members{facts, nfa, close};
  const Members::Place first = {0, 0, 0, false};
  AddJsonSpace(indent_, nfa, begin, members.StateOf(first, true));
  if (members.MayClose(first)) nfa->Empty(begin, close);
  while (!members.open.empty()) {
    const auto [place, begins] = members.open.back();
    members.open.pop_back();
    const int at = members.StateOf(place, begins);
    if (!begins) {
      if (members.MayClose(place)) nfa->Empty(at, close);
      if (members.MayGrow(place))
        AddJsonSpace(indent_, nfa, nfa->Text(at, ","), members.StateOf(place, true));
      continue;
    }
    if (!members.MayGrow(place)) continue;
    if (place.next == size) {
      const int named = nfa->Add();
      nfa->Edge(at, CallOf(name), named);
      nfa->Edge(AddJsonColon(nfa, named), CallOf(additional),
                members.StateOf(members.Behind(place, size, true), false));
      continue;
    }
    const Facts::Property& property = facts.properties[place.next];
    if (!property.required) {
      Members::Place skipped = place;
      ++skipped.next;
      nfa->Empty(at, members.StateOf(skipped, true));
    }
    nfa->Edge(AddJsonColon(nfa, AddJsonQuoted(property.name, nfa, at)),
              CallOf(RuleOf(property.schemas)),
              members.StateOf(members.Behind(place, place.next + 1, false), false));
    if (nfa->states().size() > 20 * kMostStates) return TooLarge(schemas);
  }
  return OkStatus();
}

ByteGrammar GrammarOf(const ordered_json& schema) {
  return *Rules(schema, "", JsonObjects::kOpen).Write({{"", &schema}});
}

}  // namespace

StatusOr<ByteGrammar> JsonSchemaGrammar(const ordered_json& schema, const std::string& where,
                                        JsonObjects objects) {
  return JsonBehindTextGrammar(schema, {{"", &schema}}, where, objects);
}

StatusOr<ByteGrammar> JsonBehindTextGrammar(const ordered_json& document,
                                            const std::vector<JsonBehindText>& alternatives,
                                            const std::string& where, JsonObjects objects) {
  return Rules(document, where, objects).Write(alternatives);
}

StatusOr<std::shared_ptr<const TokenGrammar>> TokenGrammarOfSchema(
    std::string_view schema, const std::string& where, const data::Tokenizer& tokenizer) {
  TESSERA_ASSIGN_OR_RETURN(const ordered_json json, ParseOrderedJson(schema, where));
  TESSERA_ASSIGN_OR_RETURN(ByteGrammar bytes, JsonSchemaGrammar(json, where));
  auto grammar = TokenGrammar::Of(std::move(bytes), Vocabulary::Of(tokenizer));
  if (!grammar.ok()) return InvalidArgument(where, ": ", grammar.status().message());
  return grammar;
}

ByteGrammar JsonValueGrammar() { return GrammarOf(true); }
ByteGrammar JsonObjectGrammar() { return GrammarOf({{"type", "object"}}); }

}  // namespace tessera::models
