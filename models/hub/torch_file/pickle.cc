// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/pickle.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/printable_text.h"
#include "models/hub/torch_file/pickle_bytes.h"
#include "models/hub/torch_file/pickle_globals.h"
#include "models/hub/torch_file/pickle_opcodes.h"
#include "models/hub/torch_file/storage_type.h"

namespace tessera::models {

using Kind = PickleNode::Kind;
using Index = PickleNode::Index;
using namespace pickle_op;  // NOLINT(google-build-using-namespace): a list of names

namespace {

constexpr size_t kMostNodes = size_t{1} << 21;
constexpr size_t kMostItems = size_t{1} << 24;  // that are moved or looked at, one by one
constexpr size_t kLongestNumber = 64;           // of digits, where a number is written out
constexpr size_t kLongestGlobal = 200;          // in messages

}  // namespace

class PickleMachine : private PickleBytes {
 public:
  PickleMachine(std::string_view bytes, const std::string& where, Pickle* result)
      : PickleBytes(bytes, where), result_(*result) {}

  Status Run() {
    while (ok() && !stopped_) {
      const auto op = static_cast<uint8_t>(Number(1));
      if (!ok()) break;
      if (!Control(op) && !Constant(op) && !Container(op) && !Memory(op) && !Object(op)) {
        Fail("operation ", static_cast<int>(op), " is no part of a checkpoint");
      }
    }
    result_.size_ = static_cast<int64_t>(position());
    return status();
  }

 private:
  // --- The stack ---------------------------------------------------------------------------------

  Index New(Kind kind) {
    if (result_.nodes_.size() >= kMostNodes) {
      Fail("the pickle has more than ", kMostNodes, " objects");
      return 0;
    }
    result_.nodes_.push_back({.kind = kind});
    return static_cast<Index>(result_.nodes_.size() - 1);
  }
  // Work that a short operation asks for: an object that is used again and again costs again.
  void Spend(size_t items) {
    spent_ += items;
    if (spent_ > kMostItems) Fail("the pickle has more than ", kMostItems, " items");
  }
  PickleNode& Node(Index index) { return result_.nodes_[index]; }
  void Push(Index index) {
    Spend(1);
    if (ok()) stack_.push_back(index);
  }
  void PushNew(Kind kind) { Push(New(kind)); }
  void PushInt(int64_t value, Kind kind = Kind::kInt) {
    const Index index = New(kind);
    if (ok()) Node(index).integer = value;
    Push(index);
  }
  void PushText(std::string_view text) {
    const Index index = New(Kind::kText);
    if (ok()) Node(index).text = text;
    Push(index);
  }
  void PushItems(Kind kind, std::vector<Index> items) {
    Spend(items.size());
    const Index index = New(kind);
    if (ok()) Node(index).items = std::move(items);
    Push(index);
  }
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // A node that is there even when nothing was: `status` then says so.
  Index Top() {
    if (stack_.size() > Floor()) return stack_.back();
    Fail("an operation before byte ", position(), " finds nothing to work on");
    return result_.nodes_.empty() ? New(Kind::kNone) : 0;
  }
  Index Pop() {
    const Index top = Top();
    if (ok()) stack_.pop_back();
    return top;
  }
  std::vector<Index> PopMany(size_t count) {
    std::vector<Index> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = Pop();
    return items;
  }
  // What is above the last mark.
  std::vector<Index> PopToMark() {
    if (marks_.empty()) {
      Fail("an operation before byte ", position(), " finds no mark");
      return {};
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  // The operations, by kind; false: it is none of them.

  bool Control(uint8_t op) {
    switch (op) {
      case kProto:
        if (Number(1) > 5) Fail("pickle protocols above 5 are not known");
        return true;
      case kFrame:
        Number(8);
        return true;
      case kStop:
        result_.root_ = Pop();
        stopped_ = true;
        return true;
      case kMark:
        Spend(1);
        marks_.push_back(stack_.size());
        return true;
      case kPop:
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          Pop();
        }
        return true;
      case kPopMark:
        PopToMark();
        return true;
      case kDup:
        Push(Top());
        return true;
      default:
        return false;
    }
  }

  bool Constant(uint8_t op) {
    switch (op) {
      case kNone:
        PushNew(Kind::kNone);
        return true;
      case kNewTrue:
        PushInt(1, Kind::kBool);
        return true;
      case kNewFalse:
        PushInt(0, Kind::kBool);
        return true;
      case kBinInt:
        PushInt(static_cast<int32_t>(Number(4)));
        return true;
      case kBinInt1:
        PushInt(static_cast<int64_t>(Number(1)));
        return true;
      case kBinInt2:
        PushInt(static_cast<int64_t>(Number(2)));
        return true;
      case kLong1:
        PushLong(Bytes(Number(1)));
        return true;
      case kLong4:
        PushLong(Bytes(Number(4)));
        return true;
      case kIntText:
      case kLongText:
        PushIntText(Line());
        return true;
      case kFloatText:
        PushFloatText(Line());
        return true;
      case kBinFloat:
        PushBigEndianDouble(Bytes(8));
        return true;
      case kString:
        PushQuoted(Line());
        return true;
      case kUnicode:
        PushUnescaped(Line());
        return true;
      case kShortBinString:
      case kShortBinBytes:
      case kShortBinUnicode:
        PushText(Bytes(Number(1)));
        return true;
      case kBinString:
      case kBinBytes:
      case kBinUnicode:
        PushText(Bytes(Number(4)));
        return true;
      case kBinUnicode8:
      case kBinBytes8:
      case kByteArray8:
        PushText(Bytes(Number(8)));
        return true;
      default:
        return false;
    }
  }

  bool Container(uint8_t op) {
    switch (op) {
      case kEmptyList:
      case kEmptyTuple:
      case kEmptySet:
        PushNew(Kind::kList);
        return true;
      case kEmptyDict:
        PushNew(Kind::kDict);
        return true;
      case kListOp:
      case kTuple:
      case kFrozenSet:
        PushItems(Kind::kList, PopToMark());
        return true;
      case kTuple1:
        PushItems(Kind::kList, PopMany(1));
        return true;
      case kTuple2:
        PushItems(Kind::kList, PopMany(2));
        return true;
      case kTuple3:
        PushItems(Kind::kList, PopMany(3));
        return true;
      case kDictOp: {
        const std::vector<Index> items = PopToMark();
        PushNew(Kind::kDict);
        Extend(Kind::kDict, items);
        return true;
      }
      case kAppend:
        Extend(Kind::kList, PopMany(1));
        return true;
      case kAppends:
      case kAddItems:
        Extend(Kind::kList, PopToMark());
        return true;
      case kSetItem:
        Extend(Kind::kDict, PopMany(2));
        return true;
      case kSetItems:
        Extend(Kind::kDict, PopToMark());
        return true;
      default:
        return false;
    }
  }

  bool Memory(uint8_t op) {
    switch (op) {
      case kPut:
        Remember(LineNumber());
        return true;
      case kBinPut:
        Remember(Number(1));
        return true;
      case kLongBinPut:
        Remember(Number(4));
        return true;
      case kMemoize:
        Remember(memo_.size());
        return true;
      case kGet:
        Recall(LineNumber());
        return true;
      case kBinGet:
        Recall(Number(1));
        return true;
      case kLongBinGet:
        Recall(Number(4));
        return true;
      default:
        return false;
    }
  }

  bool Object(uint8_t op) {
    switch (op) {
      case kGlobal: {
        const std::string_view module = Line();
        PushGlobal(module, Line());
        return true;
      }
      case kStackGlobal: {
        const std::vector<Index> names = PopMany(2);
        if (!ok()) return true;
        PushGlobal(Node(names[0]).text, Node(names[1]).text);
        return true;
      }
      case kReduce:
      case kNewObj: {
        const std::vector<Index> call = PopMany(2);
        Call(call[0], call[1]);
        return true;
      }
      case kNewObjEx: {
        const std::vector<Index> call = PopMany(3);
        Call(call[0], call[1]);
        return true;
      }
      case kBuild: {
        const Index state = Pop();
        // The attributes of a dictionary or a tensor say nothing of weights.
        if (Node(Top()).kind == Kind::kObject) Node(Top()).items.push_back(state);
        return true;
      }
      case kBinPersId:
        PushStorage(Pop());
        return true;
      default:
        return false;
    }
  }

  // --- What they do
  // --------------------------------------------------------------------------------

  void PushLong(std::string_view bytes) {
    if (bytes.size() > 8) return PushText(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    const bool negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
    if (negative && bytes.size() < 8) value |= ~uint64_t{0} << (8 * bytes.size());
    PushInt(static_cast<int64_t>(value));
  }
  // Decimal digits; protocol 0 writes booleans as 00 and 01.
  void PushIntText(std::string_view line) {
    if (line == "00" || line == "01") return PushInt(line == "01", Kind::kBool);
    if (!line.empty() && line.back() == 'L') line.remove_suffix(1);
    char* end = nullptr;
    const std::string digits(line.substr(0, kLongestNumber));
    errno = 0;
    const int64_t value = std::strtoll(digits.c_str(), &end, 10);
    if (digits.empty() || *end != '\0' || line.size() > kLongestNumber) {
      return Fail("a number before byte ", position(), " is none");
    }
    errno == ERANGE ? PushText(line) : PushInt(value);
  }
  void PushFloatText(std::string_view line) {
    double value = 0;
    const char* const end = line.data() + line.size();
    const auto read = std::from_chars(line.data(), end, value);  // whatever the locale
    if (read.ec != std::errc() || read.ptr != end) {
      return Fail("a number before byte ", position(), " is none");
    }
    PushReal(value);
  }
  void PushBigEndianDouble(std::string_view bytes) {
    uint64_t bits = 0;
    for (const char byte : bytes) bits = bits << 8 | static_cast<uint8_t>(byte);
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    PushReal(value);
  }
  void PushReal(double value) {
    const Index index = New(Kind::kFloat);
    if (ok()) Node(index).real = value;
    Push(index);
  }
  void PushQuoted(std::string_view line) {
    const bool quoted =
        line.size() >= 2 && (line[0] == '\'' || line[0] == '"') && line.back() == line[0];
    if (!quoted) return Fail("a text before byte ", position(), " has no quotes");
    PushUnescaped(line.substr(1, line.size() - 2));
  }
  void PushUnescaped(std::string_view text) {
    if (text.find('\\') != std::string_view::npos) {
      return Fail("a text before byte ", position(), " has an escape, which is not supported");
    }
    PushText(text);
  }

  void Extend(Kind kind, const std::vector<Index>& items) {
    PickleNode& target = Node(Top());
    Spend(items.size());
    if (!ok()) return;
    if (target.kind == Kind::kObject) return;  // items of an inert object
    if (target.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) {
      return Fail("items before byte ", position(), " do not fit what they are added to");
    }
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  uint64_t LineNumber() {
    const std::string_view line = Line();
    if (line.empty() || line.size() > 9 ||
        line.find_first_not_of("0123456789") != std::string_view::npos) {
      Fail("a place before byte ", position(), " is no number");
      return 0;
    }
    return std::strtoull(std::string(line).c_str(), nullptr, 10);
  }
  void Remember(uint64_t place) {
    const Index top = Top();
    if (memo_.size() >= kMostNodes) Fail("the pickle remembers more than ", kMostNodes, " objects");
    if (ok()) memo_[place] = top;
  }
  void Recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end())
      return Fail("an operation before byte ", position(), " finds no object ", place);
    Push(found->second);
  }

  void PushGlobal(std::string_view module, std::string_view name) {
    if (!ok()) return;
    const std::string& full = result_.names_.emplace_back(Concat(module, ".", name));
    if (!FindPickleGlobal(full)) {
      return Fail("'", PrintableLine(full, kLongestGlobal),
                  "' is no part of a checkpoint; nothing was executed; ",
                  AdviceOnPickleGlobal(full));
    }
    const Index index = New(Kind::kGlobal);
    if (ok()) Node(index).text = full;
    Push(index);
  }

  // `arguments` of the function or class `callee`.
  void Call(Index callee, Index arguments) {
    if (!ok()) return;
    if (Node(callee).kind != Kind::kGlobal || Node(arguments).kind != Kind::kList) {
      return Fail("something before byte ", position(), " is called that is no function");
    }
    Spend(Node(arguments).items.size());
    if (!ok()) return;
    std::vector<Index> given = Node(arguments).items;
    switch (*FindPickleGlobal(Node(callee).text)) {
      case PickleCall::kTensor:
        return PushTensor(std::move(given));
      case PickleCall::kParameter:
        if (given.empty() || Node(given[0]).kind != Kind::kTensor) {
          return Fail("a parameter before byte ", position(), " is no tensor");
        }
        return Push(given[0]);
      case PickleCall::kFromType:
        return CallOfType(given);
      case PickleCall::kDict:
        return PushDict(given);
      case PickleCall::kList:
        if (!given.empty() && Node(given[0]).kind == Kind::kList) return Push(given[0]);
        return PushNew(Kind::kList);
      case PickleCall::kObject:
        given.insert(given.begin(), callee);
        return PushItems(Kind::kObject, std::move(given));
    }
  }

  // (function, class, arguments, attributes): a tensor to which somebody gave attributes. Other
  // classes of tensors are refused by their names.
  void CallOfType(const std::vector<Index>& given) {
    const auto call = given.size() < 3 || Node(given[0]).kind != Kind::kGlobal
                          ? std::nullopt
                          : FindPickleGlobal(Node(given[0]).text);
    if (call == PickleCall::kTensor || call == PickleCall::kParameter) {
      return Call(given[0], given[2]);
    }
    Fail("a tensor before byte ", position(), " is made of something else");
  }

  bool IsInts(Index list) {
    if (Node(list).kind != Kind::kList) return false;
    Spend(Node(list).items.size());
    if (!ok()) return false;
    for (const Index item : Node(list).items) {
      if (Node(item).kind != Kind::kInt) return false;
    }
    return true;
  }
  void PushTensor(std::vector<Index> given) {
    const bool fits = given.size() >= 4 && Node(given[0]).kind == Kind::kStorage &&
                      Node(given[1]).kind == Kind::kInt && IsInts(given[2]) && IsInts(given[3]);
    if (!fits) return Fail("a tensor before byte ", position(), " is made of something else");
    // Bits of views that are not carried out, by their names.
    constexpr size_t kMetadata = 6;
    if (given.size() > kMetadata && !Node(given[kMetadata]).items.empty()) {
      return Fail("a tensor before byte ", position(),
                  " is a negated view; save tensor.resolve_neg()");
    }
    given.resize(4);
    PushItems(Kind::kTensor, std::move(given));
  }
  void PushDict(const std::vector<Index>& given) {
    std::vector<Index> items;
    for (const Index argument : given) {
      Spend(Node(argument).items.size());
      if (!ok()) return;
      if (Node(argument).kind == Kind::kDict) items = Node(argument).items;
      if (Node(argument).kind != Kind::kList) continue;
      for (const Index pair : Node(argument).items) {
        if (Node(pair).kind != Kind::kList || Node(pair).items.size() != 2) {
          return Fail("a dictionary before byte ", position(), " is made of something else");
        }
        items.insert(items.end(), Node(pair).items.begin(), Node(pair).items.end());
      }
    }
    PushItems(Kind::kDict, std::move(items));
  }
  // ("storage", type, key, location, elements[, view])
  void PushStorage(Index id) {
    if (!ok()) return;
    Spend(Node(id).items.size());
    const std::vector<Index> items = Node(id).items;
    const auto is = [&](size_t i, Kind kind) { return Node(items[i]).kind == kind; };
    const bool fits = Node(id).kind == Kind::kList && items.size() >= 5 && is(0, Kind::kText) &&
                      Node(items[0]).text == "storage" && is(1, Kind::kGlobal) &&
                      FindStorageType(Node(items[1]).text) != nullptr && is(2, Kind::kText) &&
                      is(4, Kind::kInt) && Node(items[4]).integer >= 0;
    if (!fits)
      return Fail("a persistent id before byte ", position(), " names no storage of numbers");
    PushItems(Kind::kStorage, {items.begin() + 1, items.end()});
  }

  Pickle& result_;
  bool stopped_ = false;
  size_t spent_ = 0;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Index> memo_;
};

StatusOr<Pickle> Pickle::Read(std::string_view bytes, const std::string& where) {
  Pickle pickle;
  TESSERA_RETURN_IF_ERROR(PickleMachine(bytes, where, &pickle).Run());
  return pickle;
}

const PickleNode* Pickle::Find(const PickleNode& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  const PickleNode* found = nullptr;  // of a key that is there twice, the last counts
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleNode& name = at(dict.items[i]);
    if (name.kind == Kind::kText && name.text == key) found = &at(dict.items[i + 1]);
  }
  return found;
}

}  // namespace tessera::models
