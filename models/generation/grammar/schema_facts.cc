// SPDX-License-Identifier: Apache-2.0
#include "models/generation/grammar/schema_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "base/json_ordered.h"
#include "models/generation/grammar/json_syntax.h"
#include "models/generation/grammar/pattern.h"

namespace tessera::models {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostAlternatives = 512;
constexpr size_t kLongestChain = 1000;  // schemas that hold together
constexpr int64_t kLargestCount = 1'000'000'000;

constexpr std::array kUnsupported = {"patternProperties",
                                     "not",
                                     "if",
                                     "then",
                                     "else",
                                     "contains",
                                     "minContains",
                                     "maxContains",
                                     "propertyNames",
                                     "dependencies",
                                     "dependentRequired",
                                     "dependentSchemas",
                                     "unevaluatedItems",
                                     "unevaluatedProperties",
                                     "$dynamicRef",
                                     "$recursiveRef"};

const std::map<std::string, unsigned>& Types() {
  using F = SchemaFacts;
  static const auto* types = new std::map<std::string, unsigned>{
      {"null", F::kNull},     {"boolean", F::kBoolean}, {"integer", F::kInteger},
      {"string", F::kString}, {"array", F::kArray},     {"number", F::kInteger | F::kFraction},
      {"object", F::kObject}};
  return *types;
}

// Formats as patterns. Days are checked against their month, and February's against the year.
const std::map<std::string, std::string>& Formats() {
  static const auto* formats = [] {
    const std::string date =
        "([1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)"
        "|02-(0[1-9]|1\\d|2[0-8]))|([1-9]\\d(0[48]|[2468][048]|[13579][26])"
        "|([2468][048]|[13579][26])00)-02-29)";
    const std::string time =
        "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
    const std::string octet = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
    return new std::map<std::string, std::string>{
        {"date", "^" + date + "$"},
        {"time", "^" + time + "$"},
        {"date-time", "^" + date + "T" + time + "$"},
        {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
        {"ipv4", "^" + octet + "(\\." + octet + "){3}$"},
        {"email",
         "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
         "(\\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+$"}};
  }();
  return *formats;
}

unsigned KindOf(const ordered_json& value) {
  using F = SchemaFacts;
  if (value.is_null()) return F::kNull;
  if (value.is_boolean()) return F::kBoolean;
  if (value.is_string()) return F::kString;
  if (value.is_array()) return F::kArray;
  if (value.is_object()) return F::kObject;
  const auto decimal = NumberOf(value);
  return decimal && decimal->fraction.empty() ? F::kInteger : F::kFraction;
}

// As JSON Schema has it: numbers by what they are, however they are written.
bool AreEqual(const ordered_json& a, const ordered_json& b) {
  const auto number = NumberOf(a);
  const auto other = NumberOf(b);
  return number && other ? number->Compare(*other) == 0 : a == b;
}

bool IsFalse(const Schemas& schemas) {
  return std::any_of(schemas.begin(), schemas.end(),
                     [](const ordered_json* s) { return *s == ordered_json(false); });
}

void AddTo(Schemas* schemas, const ordered_json* schema) {
  const auto at = std::lower_bound(schemas->begin(), schemas->end(), schema);
  if (at == schemas->end() || *at != schema) schemas->insert(at, schema);
}
void AddTo(Schemas* schemas, const Schemas& others) {
  for (const ordered_json* schema : others) AddTo(schemas, schema);
}

// Both objects' facts at once. A property that one side alone declares is an additional one of the
// other.
void MergeObjects(const SchemaFacts& other, SchemaFacts* facts) {
  const auto find = [](std::vector<SchemaFacts::Property>& properties, const std::string& name) {
    return std::find_if(properties.begin(), properties.end(),
                        [&](const auto& p) { return p.name == name; });
  };
  auto added = other.properties;
  for (SchemaFacts::Property& property : facts->properties) {
    const auto same = find(added, property.name);
    if (same == added.end()) {
      AddTo(&property.schemas, other.additional);
    } else {
      AddTo(&property.schemas, same->schemas);
      property.required |= same->required;
    }
  }
  for (SchemaFacts::Property& property : added) {
    if (find(facts->properties, property.name) != facts->properties.end()) continue;
    AddTo(&property.schemas, facts->additional);
    facts->properties.push_back(std::move(property));
  }
  AddTo(&facts->additional, other.additional);
}

void MergeArrays(const SchemaFacts& other, SchemaFacts* facts) {
  const size_t size = std::max(facts->prefix_items.size(), other.prefix_items.size());
  facts->prefix_items.resize(size, facts->items);
  for (size_t i = 0; i < size; ++i) {
    AddTo(&facts->prefix_items[i],
          i < other.prefix_items.size() ? other.prefix_items[i] : other.items);
  }
  AddTo(&facts->items, other.items);
}

// A reference is the fragment of a URI, in which "a b" may be written as "a%20b" (RFC 6901, 6).
std::string FragmentText(std::string_view fragment) {
  std::string text;
  for (size_t i = 0; i < fragment.size(); ++i) {
    uint8_t byte = 0;
    const std::string_view digits = fragment.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool escaped = fragment[i] == '%' && error == std::errc() && end == digits.data() + 2;
    text += escaped ? static_cast<char>(byte) : fragment[i];
    if (escaped) i += 2;
  }
  return text;
}

template <typename T>
void Lower(const std::optional<T>& bound, std::optional<T>* most) {
  if (bound && (!*most || **most > *bound)) *most = bound;
}

}  // namespace

std::optional<Decimal> NumberOf(const ordered_json& value) {
  if (!value.is_number() && BigInteger(value).empty()) return std::nullopt;
  return Decimal::Parse(JsonScalar(value));
}

// One set of schemas on its way to facts: what is still to be read, and what was.
class SchemaReader::Merge {
 public:
  explicit Merge(const SchemaReader& reader) : reader_(reader) {}

  Status Read(const Schemas& schemas) {
    std::vector<const ordered_json*> open(schemas.rbegin(), schemas.rend());
    return ReadOpen({}, std::move(open), {}, 0);
  }
  std::vector<SchemaFacts> TakeAll() { return std::move(all_); }

 private:
  using Open = std::vector<const ordered_json*>;

  Status Malformed(const ordered_json* schema, std::string_view keyword, const auto&... what) {
    return InvalidArgument(reader_.At(schema, keyword), what...);
  }

  Status ReadOpen(SchemaFacts facts, Open open, Open forks, size_t chain) {
    while (!open.empty()) {
      if (++chain > kLongestChain) {
        return Malformed(open.back(), "",
                         "too many schemas hold together; '$ref' may lead back "
                         "to itself");
      }
      const ordered_json* schema = open.back();
      open.pop_back();
      TESSERA_RETURN_IF_ERROR(Add(schema, &facts, &open, &forks));
    }
    if (forks.empty()) {
      if (all_.size() == kMostAlternatives) {
        return InvalidArgument(reader_.At(nullptr), "more than ", kMostAlternatives,
                               " combinations of anyOf and oneOf hold together");
      }
      all_.push_back(std::move(facts));
      return OkStatus();
    }
    const ordered_json* alternatives = forks.back();
    forks.pop_back();
    for (const ordered_json& alternative : *alternatives) {
      TESSERA_RETURN_IF_ERROR(ReadOpen(facts, {&alternative}, forks, chain));
    }
    return OkStatus();
  }

  Status Add(const ordered_json* schema, SchemaFacts* facts, Open* open, Open* forks) {
    if (schema->is_boolean()) {
      if (!schema->get<bool>()) facts->kinds = 0;
      return OkStatus();
    }
    if (!schema->is_object()) {
      return Malformed(schema, "", "a schema is an object, true or false");
    }
    for (const char* keyword : kUnsupported) {
      if (schema->contains(keyword)) {
        return Malformed(schema, "", "'", keyword, "' is not supported");
      }
    }
    TESSERA_RETURN_IF_ERROR(AddLists(schema, open, forks));
    TESSERA_RETURN_IF_ERROR(AddKinds(schema, facts));
    TESSERA_RETURN_IF_ERROR(AddNumbers(schema, facts));
    TESSERA_RETURN_IF_ERROR(AddTexts(schema, facts));
    TESSERA_RETURN_IF_ERROR(AddItems(schema, facts));
    return AddProperties(schema, facts);
  }

  // $ref, allOf, anyOf, oneOf.
  Status AddLists(const ordered_json* schema, Open* open, Open* forks) {
    if (schema->contains("$ref")) {
      TESSERA_ASSIGN_OR_RETURN(const ordered_json* target, reader_.Resolve(schema));
      open->push_back(target);
    }
    for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
      const auto list = schema->find(keyword);
      if (list == schema->end()) continue;
      if (!list->is_array() || list->empty()) {
        return Malformed(schema, keyword, "must be a list of schemas");
      }
      if (std::string_view(keyword) != "allOf") {
        forks->push_back(&*list);
        continue;
      }
      for (auto part = list->rbegin(); part != list->rend(); ++part) open->push_back(&*part);
    }
    return OkStatus();
  }

  Status AddKinds(const ordered_json* schema, SchemaFacts* facts) {
    if (const auto type = schema->find("type"); type != schema->end()) {
      unsigned kinds = 0;
      const ordered_json list = type->is_array() ? *type : ordered_json::array({*type});
      for (const ordered_json& name : list) {
        const auto found = name.is_string() ? Types().find(name.get<std::string>()) : Types().end();
        if (found == Types().end()) {
          return Malformed(schema, "type", "there is no type ", JsonScalar(name));
        }
        kinds |= found->second;
      }
      facts->kinds &= kinds;
    }
    std::optional<std::vector<ordered_json>> values;
    if (const auto one = schema->find("const"); one != schema->end()) {
      values = std::vector<ordered_json>(1, *one);
    }
    if (const auto list = schema->find("enum"); list != schema->end()) {
      if (!list->is_array()) return Malformed(schema, "enum", "must be a list of values");
      std::vector<ordered_json> all(list->begin(), list->end());
      values = values ? Common(*values, all) : std::move(all);
    }
    if (values) facts->values = facts->values ? Common(*facts->values, *values) : *values;
    return OkStatus();
  }

  static std::vector<ordered_json> Common(const std::vector<ordered_json>& a,
                                          const std::vector<ordered_json>& b) {
    std::vector<ordered_json> both;
    for (const ordered_json& value : a) {
      const auto same = [&](const ordered_json& other) { return AreEqual(value, other); };
      if (std::any_of(b.begin(), b.end(), same)) both.push_back(value);
    }
    return both;
  }

  Status AddNumbers(const ordered_json* schema, SchemaFacts* facts) {
    for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const auto bound = schema->find(keyword);
      if (bound == schema->end()) continue;
      const auto decimal = NumberOf(*bound);
      if (!decimal) return Malformed(schema, keyword, "must be a number");
      const std::string_view name = keyword;
      const bool open = name.starts_with("ex");
      name.ends_with("inimum") ? facts->range.AtLeast(*decimal, open)
                               : facts->range.AtMost(*decimal, open);
    }
    const auto multiple = schema->find("multipleOf");
    if (multiple == schema->end()) return OkStatus();
    const auto of = NumberOf(*multiple);
    const auto step = of ? DecimalStep::Of(*of) : std::nullopt;
    if (!step) {
      return Malformed(schema, "multipleOf", "is supported for whole numbers up to ",
                       DecimalStep::kMostUnits, " and decimals of up to 4 digits, not ",
                       JsonScalar(*multiple));
    }
    facts->multiple_of = facts->multiple_of ? facts->multiple_of->And(*step) : step;
    if (!facts->multiple_of) {
      return Malformed(schema, "multipleOf", "with another one it has too many digits");
    }
    if (facts->multiple_of->is_integer()) facts->kinds &= ~unsigned{SchemaFacts::kFraction};
    return OkStatus();
  }

  // A count of characters, items or properties; unset: absent.
  StatusOr<std::optional<int64_t>> Count(const ordered_json* schema, const char* keyword) {
    const auto found = schema->find(keyword);
    if (found == schema->end()) return std::optional<int64_t>();
    const auto value = NumberOf(*found);
    if (!value || !value->fraction.empty() || value->negative) {
      return Malformed(schema, keyword, "must be a whole number from 0 on");
    }
    if (value->whole.size() > 10) return std::optional(kLargestCount);
    return std::optional(std::min<int64_t>(std::stoll(value->whole), kLargestCount));
  }

  Status AddCounts(const ordered_json* schema, const char* least_keyword, const char* most_keyword,
                   int64_t* least, std::optional<int64_t>* most) {
    TESSERA_ASSIGN_OR_RETURN(const auto low, Count(schema, least_keyword));
    TESSERA_ASSIGN_OR_RETURN(const auto high, Count(schema, most_keyword));
    *least = std::max(*least, low.value_or(0));
    Lower(high, most);
    return OkStatus();
  }

  Status AddTexts(const ordered_json* schema, SchemaFacts* facts) {
    TESSERA_RETURN_IF_ERROR(
        AddCounts(schema, "minLength", "maxLength", &facts->min_length, &facts->max_length));
    for (const char* keyword : {"pattern", "format"}) {
      const auto text = schema->find(keyword);
      if (text == schema->end()) continue;
      if (!text->is_string()) return Malformed(schema, keyword, "must be a text");
      std::string pattern = text->get<std::string>();
      if (std::string_view(keyword) == "format") {
        const auto format = Formats().find(pattern);
        if (format == Formats().end()) continue;
        pattern = format->second;
      }
      StatusOr<Dfa> dfa = PatternAutomaton(pattern);
      if (!dfa.ok()) return Malformed(schema, keyword, Message(dfa.status()));
      facts->patterns.push_back({pattern, std::make_shared<const Dfa>(*std::move(dfa))});
    }
    return OkStatus();
  }

  Status AddItems(const ordered_json* schema, SchemaFacts* facts) {
    TESSERA_RETURN_IF_ERROR(
        AddCounts(schema, "minItems", "maxItems", &facts->min_items, &facts->max_items));
    if (schema->contains("uniqueItems") && (*schema)["uniqueItems"] != false) {
      return Malformed(schema, "", "'uniqueItems' is not supported");
    }
    SchemaFacts added;
    const auto items = schema->find("items");
    // Earlier drafts: a list of items, and additionalItems for the rest.
    const bool listed = items != schema->end() && items->is_array();
    const auto prefix = listed ? items : schema->find("prefixItems");
    const auto rest = listed ? schema->find("additionalItems") : items;
    if (prefix != schema->end()) {
      if (!prefix->is_array()) return Malformed(schema, "prefixItems", "must be a list of schemas");
      for (const ordered_json& item : *prefix) added.prefix_items.push_back({&item});
    }
    if (rest != schema->end()) added.items = {&*rest};
    MergeArrays(added, facts);
    return OkStatus();
  }

  Status AddProperties(const ordered_json* schema, SchemaFacts* facts) {
    TESSERA_RETURN_IF_ERROR(AddCounts(schema, "minProperties", "maxProperties",
                                      &facts->min_properties, &facts->max_properties));
    SchemaFacts added;
    if (const auto properties = schema->find("properties"); properties != schema->end()) {
      if (!properties->is_object()) {
        return Malformed(schema, "properties", "must be an object of schemas");
      }
      for (const auto& [name, property] : properties->items()) {
        added.properties.push_back({name, {&property}});
      }
    }
    if (const auto rest = schema->find("additionalProperties"); rest != schema->end()) {
      added.additional = {&*rest};
    }
    if (const auto required = schema->find("required"); required != schema->end()) {
      if (!required->is_array()) return Malformed(schema, "required", "must be a list of names");
      for (const ordered_json& name : *required) {
        if (!name.is_string()) return Malformed(schema, "required", "must be a list of names");
        Require(name.get<std::string>(), &added);
      }
    }
    MergeObjects(added, facts);
    return OkStatus();
  }

  // A required property that is not declared is an additional one.
  static void Require(const std::string& name, SchemaFacts* facts) {
    for (SchemaFacts::Property& property : facts->properties) {
      if (property.name == name) {
        property.required = true;
        return;
      }
    }
    facts->properties.push_back({name, facts->additional, true});
  }

  const SchemaReader& reader_;
  std::vector<SchemaFacts> all_;
};

SchemaReader::SchemaReader(const ordered_json& document, std::string where)
    : document_(document), where_(std::move(where)) {
  std::vector<const ordered_json*> open = {&document};
  paths_[&document] = "";
  while (!open.empty()) {
    const ordered_json* value = open.back();
    open.pop_back();
    if (!value->is_structured()) continue;
    const std::string path = paths_[value];
    for (const auto& [key, part] : value->items()) {
      paths_[&part] = path.empty() ? key : path + "." + key;
      open.push_back(&part);
    }
  }
}

std::string SchemaReader::At(const ordered_json* schema, std::string_view keyword) const {
  const auto found = paths_.find(schema);
  std::string path = found == paths_.end() ? "" : found->second;
  if (!keyword.empty()) path += (path.empty() ? "" : ".") + std::string(keyword);
  return where_ + (path.empty() ? ": " : ": '" + path + "': ");
}

StatusOr<const ordered_json*> SchemaReader::Resolve(const ordered_json* schema) const {
  const ordered_json& ref = schema->at("$ref");
  const std::string text = ref.is_string() ? ref.get<std::string>() : JsonScalar(ref);
  const auto failed = [&](const char* what) {
    return InvalidArgument(At(schema, "$ref"), "'", text, "' ", what);
  };
  if (text != "#" && !text.starts_with("#/")) return failed("is not supported (only '#/...')");
  const std::string pointer = FragmentText(text);
  const ordered_json* at = &document_;
  for (size_t begin = 1; begin < pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    std::string key;
    for (size_t i = begin + 1; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end;
      key += !escaped ? pointer[i] : pointer[++i] == '1' ? '/' : '~';
    }
    begin = end;
    if (at->is_object() && at->contains(key)) {
      at = &at->at(key);
    } else if (at->is_array() && !key.empty() && key.size() < 9 &&
               key.find_first_not_of("0123456789") == std::string::npos &&
               std::stoull(key) < at->size()) {
      at = &at->at(std::stoull(key));
    } else {
      return failed("is not found");
    }
  }
  return at;
}

StatusOr<std::vector<SchemaFacts>> SchemaReader::Read(const Schemas& schemas) const {
  Merge merge(*this);
  TESSERA_RETURN_IF_ERROR(merge.Read(schemas));
  std::vector<SchemaFacts> all = merge.TakeAll();
  for (SchemaFacts& facts : all) {
    // Properties that may not be there; an object that needs one does not exist.
    for (const SchemaFacts::Property& property : facts.properties) {
      if (property.required && IsFalse(property.schemas)) {
        facts.kinds &= ~unsigned{SchemaFacts::kObject};
      }
    }
    if (!facts.values) continue;
    std::erase_if(*facts.values,
                  [&](const ordered_json& value) { return (KindOf(value) & facts.kinds) == 0; });
  }
  std::erase_if(all, [](const SchemaFacts& facts) { return facts.kinds == 0; });
  return all;
}

}  // namespace tessera::models
