// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "base/status.h"
#include "data/chat/stack_room.h"
#include "data/chat/template_syntax.h"

namespace tessera::data::chat {
namespace {

using Kind = Expr::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<Node> Run() {
    std::vector<Node> body = Body({});
    return body;
  }

 private:
  // --- Tokens ---
  const Token& now() const { return tokens_[at_]; }
  bool Is(Token::Kind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool IsName(std::string_view name) const { return Is(Token::Kind::kName, name); }
  bool IsOp(std::string_view op) const { return Is(Token::Kind::kOperator, op); }
  bool TakeOp(std::string_view op) { return IsOp(op) && (++at_, true); }
  bool TakeName(std::string_view name) { return IsName(name) && (++at_, true); }
  [[noreturn]] void Fail(std::string message) const {
    throw TemplateFailure{.message = std::move(message), .line = now().line};
  }
  std::string Shown() const {
    switch (now().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kOutputEnd:
        return "'}}'";
      default:
        return Concat("'", now().text, "'");
    }
  }
  void ExpectOp(std::string_view op) {
    if (!TakeOp(op)) Fail(Concat("expected '", op, "', got ", Shown()));
  }
  std::string ExpectName() {
    if (now().kind != Token::Kind::kName) Fail(Concat("expected a name, got ", Shown()));
    return tokens_[at_++].text;
  }
  void Expect(Token::Kind kind, const char* what) {
    if (now().kind != kind) Fail(Concat("expected '", what, "', got ", Shown()));
    ++at_;
  }

  // --- Expressions, from the weakest operator to the strongest ---
  Expr Make(Kind kind, int line, std::vector<Expr> parts = {}, std::string name = {}) const {
    Expr expr{.kind = kind, .line = line, .name = std::move(name), .parts = std::move(parts)};
    for (const Expr& part : expr.parts) expr.depth = std::max(expr.depth, part.depth + 1);
    CheckDepth(expr);
    return expr;
  }
  void CheckDepth(const Expr& expr) const {
    if (expr.depth > kMaxExpressionDepth) {
      throw TemplateFailure{"an expression is nested too deeply", expr.line};
    }
  }
  template <typename... E>
  static std::vector<Expr> Parts(E... parts) {
    std::vector<Expr> all;
    (all.push_back(std::move(parts)), ...);
    return all;
  }

  // a, b where there are commas.
  Expr Tuple(bool with_condition = true) {
    const int line = now().line;
    std::vector<Expr> parts;
    bool comma = false;
    while (!AtTupleEnd()) {
      parts.push_back(with_condition ? Condition() : Or());
      if (!IsOp(",")) break;
      comma = true;
      ++at_;
    }
    if (parts.size() == 1 && !comma) return std::move(parts[0]);
    if (parts.empty()) Fail(Concat("expected an expression, got ", Shown()));
    return Make(Kind::kTuple, line, std::move(parts));
  }
  bool AtTupleEnd() const {
    return now().kind == Token::Kind::kBlockEnd || now().kind == Token::Kind::kOutputEnd ||
           now().kind == Token::Kind::kEnd || IsOp(")");
  }

  Expr Condition() {
    // Whatever recurses comes through here.
    if (++nesting_ > kMaxExpressionDepth || !StackHasRoom())
      Fail("an expression is nested too deeply");
    const int line = now().line;
    Expr value = Or();
    while (TakeName("if")) {
      Expr test = Or();
      Expr otherwise = TakeName("else") ? Condition() : Expr{.line = line};
      value = Make(Kind::kCondition, line,
                   Parts(std::move(test), std::move(value), std::move(otherwise)));
    }
    --nesting_;
    return value;
  }
  Expr Or() {
    const int line = now().line;
    Expr left = And();
    while (TakeName("or")) left = Make(Kind::kOr, line, Parts(std::move(left), And()));
    return left;
  }
  Expr And() {
    const int line = now().line;
    Expr left = Not();
    while (TakeName("and")) left = Make(Kind::kAnd, line, Parts(std::move(left), Not()));
    return left;
  }
  Expr Not() {
    const int line = now().line;
    int count = 0;
    while (TakeName("not")) {
      if (++count > kMaxExpressionDepth) Fail("an expression is nested too deeply");
    }
    Expr expr = Comparison();
    for (; count > 0; --count) expr = Make(Kind::kNot, line, Parts(std::move(expr)));
    return expr;
  }
  Expr Comparison() {
    const int line = now().line;
    std::vector<Expr> parts = Parts(Sum());
    std::vector<std::string> ops;
    while (true) {
      static constexpr std::string_view kOps[] = {"==", "!=", "<=", ">=", "<", ">"};
      const auto* const op = std::find_if(std::begin(kOps), std::end(kOps),
                                          [&](std::string_view one) { return IsOp(one); });
      if (op != std::end(kOps)) {
        ++at_;
        ops.emplace_back(*op);
      } else if (TakeName("in")) {
        ops.emplace_back("in");
      } else if (IsName("not") && tokens_[at_ + 1].kind == Token::Kind::kName &&
                 tokens_[at_ + 1].text == "in") {
        at_ += 2;
        ops.emplace_back("not in");
      } else {
        break;
      }
      parts.push_back(Sum());
    }
    if (ops.empty()) return std::move(parts[0]);
    Expr expr = Make(Kind::kCompare, line, std::move(parts));
    expr.ops = std::move(ops);
    return expr;
  }
  Expr Sum() {
    const int line = now().line;
    Expr left = Concatenation();
    while (IsOp("+") || IsOp("-")) {
      std::string op = tokens_[at_++].text;
      left = Make(Kind::kBinary, line, Parts(std::move(left), Concatenation()), std::move(op));
    }
    return left;
  }
  Expr Concatenation() {
    const int line = now().line;
    std::vector<Expr> parts = Parts(Product());
    while (TakeOp("~")) parts.push_back(Product());
    if (parts.size() == 1) return std::move(parts[0]);
    return Make(Kind::kConcat, line, std::move(parts));
  }
  Expr Product() {
    const int line = now().line;
    Expr left = Power();
    while (IsOp("*") || IsOp("/") || IsOp("//") || IsOp("%")) {
      std::string op = tokens_[at_++].text;
      left = Make(Kind::kBinary, line, Parts(std::move(left), Power()), std::move(op));
    }
    return left;
  }
  Expr Power() {
    const int line = now().line;
    Expr left = Unary(/*with_filter=*/true);
    while (TakeOp("**")) {
      left = Make(Kind::kBinary, line, Parts(std::move(left), Unary(true)), "**");
    }
    return left;
  }
  Expr Unary(bool with_filter) {
    if (++nesting_ > kMaxExpressionDepth || !StackHasRoom())
      Fail("an expression is nested too deeply");
    const int line = now().line;
    Expr expr;
    if (TakeOp("-")) {
      expr = Make(Kind::kNegative, line, Parts(Unary(false)));
    } else if (TakeOp("+")) {
      expr = Make(Kind::kPositive, line, Parts(Unary(false)));
    } else {
      expr = Primary();
    }
    expr = Postfix(std::move(expr));
    if (with_filter) expr = Filters(std::move(expr));
    --nesting_;
    return expr;
  }

  Expr Constant(int line, Value value) const {
    Expr expr = Make(Kind::kConstant, line);
    expr.constant = std::move(value);
    return expr;
  }
  Expr Primary() {
    const Token& token = now();
    const int line = token.line;
    switch (token.kind) {
      case Token::Kind::kName:
        ++at_;
        if (token.text == "true" || token.text == "True") return Constant(line, Value::Of(true));
        if (token.text == "false" || token.text == "False") return Constant(line, Value::Of(false));
        if (token.text == "none" || token.text == "None") return Constant(line, Value());
        return Make(Kind::kName, line, {}, token.text);
      case Token::Kind::kString: {
        std::string text;
        while (now().kind == Token::Kind::kString) text += tokens_[at_++].text;
        return Constant(line, Value::Of(std::move(text)));
      }
      case Token::Kind::kInteger: {
        int64_t number = 0;
        const char* const end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
          Fail(Concat("the number ", token.text, " is too large"));
        }
        ++at_;
        return Constant(line, Value::Of(number));
      }
      case Token::Kind::kFloat: {
        double number = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        ++at_;
        return Constant(line, Value::Of(number));
      }
      default:
        break;
    }
    if (TakeOp("(")) {
      if (TakeOp(")")) return Make(Kind::kTuple, line);
      Expr inner = Tuple();
      ExpectOp(")");
      return inner;
    }
    if (TakeOp("[")) {
      Expr list = Make(Kind::kList, line, Elements("]"));
      return list;
    }
    if (TakeOp("{")) {
      std::vector<Expr> parts;
      while (!TakeOp("}")) {
        if (!parts.empty()) {
          ExpectOp(",");
          if (TakeOp("}")) break;
        }
        parts.push_back(Condition());
        ExpectOp(":");
        parts.push_back(Condition());
      }
      return Make(Kind::kMapping, line, std::move(parts));
    }
    Fail(Concat("unexpected ", Shown()));
  }
  std::vector<Expr> Elements(std::string_view closing) {
    std::vector<Expr> parts;
    while (!TakeOp(closing)) {
      if (!parts.empty()) {
        ExpectOp(",");
        if (TakeOp(closing)) break;
      }
      parts.push_back(Condition());
    }
    return parts;
  }

  Expr Postfix(Expr expr) {
    while (true) {
      const int line = now().line;
      if (TakeOp(".")) {
        if (now().kind == Token::Kind::kInteger) {
          Expr index = Primary();
          expr = Make(Kind::kItem, line, Parts(std::move(expr), std::move(index)));
        } else {
          expr = Make(Kind::kAttribute, line, Parts(std::move(expr)), ExpectName());
        }
      } else if (TakeOp("[")) {
        expr = Subscript(std::move(expr), line);
      } else if (IsOp("(")) {
        expr = Arguments(Make(Kind::kCall, line, Parts(std::move(expr))));
      } else {
        return expr;
      }
    }
  }
  Expr Subscript(Expr expr, int line) {
    std::vector<Expr> bounds;
    bool slice = false;
    bool before = false;  // a bound stands where the next ':' is to come
    while (!TakeOp("]")) {
      if (TakeOp(":")) {
        slice = true;
        if (!before) bounds.push_back(Expr{.line = line});
        before = false;
      } else if (before) {
        Fail(Concat("expected ']', got ", Shown()));
      } else {
        bounds.push_back(Condition());
        before = true;
      }
    }
    if (!slice) {
      if (bounds.size() != 1) Fail("expected an expression within []");
      return Make(Kind::kItem, line, Parts(std::move(expr), std::move(bounds[0])));
    }
    if (bounds.size() > 3) Fail("a slice has three parts at most");
    bounds.resize(3);
    bounds.insert(bounds.begin(), std::move(expr));
    return Make(Kind::kSlice, line, std::move(bounds));
  }
  // (a, b, c=d), into a call, filter or test.
  Expr Arguments(Expr call) {
    ExpectOp("(");
    bool first = true;
    while (!TakeOp(")")) {
      if (!first) {
        ExpectOp(",");
        if (TakeOp(")")) break;
      }
      first = false;
      if (IsOp("*") || IsOp("**")) Fail("arguments with * are not supported");
      if (now().kind == Token::Kind::kName && tokens_[at_ + 1].kind == Token::Kind::kOperator &&
          tokens_[at_ + 1].text == "=") {
        std::string name = ExpectName();
        ++at_;
        call.named.emplace_back(std::move(name), Condition());
        call.depth = std::max(call.depth, call.named.back().second.depth + 1);
      } else {
        if (!call.named.empty()) Fail("a positional argument behind a named one");
        call.parts.push_back(Condition());
        call.depth = std::max(call.depth, call.parts.back().depth + 1);
      }
    }
    CheckDepth(call);
    return call;
  }
  Expr Filters(Expr expr) {
    while (true) {
      if (IsOp("|")) {
        expr = OneFilter(std::move(expr));
      } else if (IsName("is")) {
        expr = Test(std::move(expr));
      } else if (IsOp("(")) {
        expr = Arguments(Make(Kind::kCall, now().line, Parts(std::move(expr))));
      } else {
        return expr;
      }
    }
  }
  Expr OneFilter(Expr expr) {
    const int line = now().line;
    ExpectOp("|");
    Expr filter = Make(Kind::kFilter, line, Parts(std::move(expr)), ExpectName());
    return IsOp("(") ? Arguments(std::move(filter)) : filter;
  }
  Expr Test(Expr expr) {
    const int line = now().line;
    ++at_;
    const bool negated = TakeName("not");
    Expr test = Make(Kind::kTest, line, Parts(std::move(expr)), ExpectName());
    const Token::Kind kind = now().kind;
    if (IsOp("(")) {
      test = Arguments(std::move(test));
    } else if ((kind == Token::Kind::kName && !IsName("else") && !IsName("or") && !IsName("and")) ||
               kind == Token::Kind::kString || kind == Token::Kind::kInteger ||
               kind == Token::Kind::kFloat || IsOp("[") || IsOp("{")) {
      if (IsName("is")) Fail("tests cannot be chained with is");
      test.parts.push_back(Postfix(Primary()));
      test.depth = std::max(test.depth, test.parts.back().depth + 1);
      CheckDepth(test);
    }
    return negated ? Make(Kind::kNot, line, Parts(std::move(test))) : test;
  }

  // --- Statements ---
  // Up to one of these tags, whose name is not taken; to the end of the template where there are
  // none.
  std::vector<Node> Body(std::initializer_list<std::string_view> ends) {
    if (++blocks_ > kMaxBlockDepth || !StackHasRoom()) Fail("blocks are nested too deeply");
    std::vector<Node> body;
    while (true) {
      const Token& token = now();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() > 0) Fail(Concat("unexpected end of template, expected ", *ends.begin()));
        break;
      }
      ++at_;
      if (token.kind == Token::Kind::kText) {
        body.push_back({.kind = Node::Kind::kText, .line = token.line, .text = token.text});
      } else if (token.kind == Token::Kind::kOutputBegin) {
        body.push_back({.kind = Node::Kind::kOutput, .line = token.line, .expr = Tuple()});
        Expect(Token::Kind::kOutputEnd, "}}");
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return IsName(end); })) break;
        body.push_back(Statement());
      }
    }
    --blocks_;
    return body;
  }
  void EndOfTag() { Expect(Token::Kind::kBlockEnd, "%}"); }
  // The body of a tag whose rest was read, and its end.
  std::vector<Node> BodyTo(std::string_view end) {
    EndOfTag();
    std::vector<Node> body = Body({end});
    ++at_;
    EndOfTag();
    return body;
  }
  // As BodyTo, where break and continue mean no loop around it: it is a function of its own.
  std::vector<Node> FunctionTo(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    std::vector<Node> body = BodyTo(end);
    loops_ = loops;
    return body;
  }

  Node Statement() {
    const int line = now().line;
    const std::string tag = ExpectName();
    if (tag == "if") return If(line);
    if (tag == "for") return For(line);
    if (tag == "set") return Set(line);
    if (tag == "macro") {
      Node node{.kind = Node::Kind::kMacro, .line = line, .text = ExpectName()};
      node.parameters = Parameters();
      node.body = FunctionTo("endmacro");
      return node;
    }
    if (tag == "call") {
      Node node{.kind = Node::Kind::kCall, .line = line};
      if (IsOp("(")) node.parameters = Parameters();
      node.expr = Condition();
      if (node.expr.kind != Kind::kCall) Fail("expected a call");
      node.body = FunctionTo("endcall");
      return node;
    }
    if (tag == "filter") {
      Node node{.kind = Node::Kind::kFilter, .line = line};
      node.expr = Make(Kind::kFilter, line, Parts(Expr{.line = line}), ExpectName());
      if (IsOp("(")) node.expr = Arguments(std::move(node.expr));
      while (IsOp("|")) node.expr = OneFilter(std::move(node.expr));
      node.body = BodyTo("endfilter");
      return node;
    }
    if (tag == "with") {
      Node node{.kind = Node::Kind::kWith, .line = line};
      while (now().kind != Token::Kind::kBlockEnd) {
        if (!node.parameters.empty()) ExpectOp(",");
        std::string name = ExpectName();
        ExpectOp("=");
        node.parameters.emplace_back(std::move(name), Condition());
      }
      node.body = BodyTo("endwith");
      return node;
    }
    if (tag == "generation") {
      Node node{.kind = Node::Kind::kGeneration, .line = line};
      node.body = FunctionTo("endgeneration");
      return node;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) Fail(Concat("'", tag, "' outside of a loop"));
      EndOfTag();
      return {.kind = tag == "break" ? Node::Kind::kBreak : Node::Kind::kContinue, .line = line};
    }
    --at_;
    Fail(Concat("unknown tag '", tag, "'"));
  }

  Node If(int line) {
    Node node{.kind = Node::Kind::kIf, .line = line};
    Expr condition = Tuple(/*with_condition=*/false);
    while (true) {
      EndOfTag();
      node.branches.push_back({std::move(condition), Body({"endif", "elif", "else"})});
      const std::string tag = ExpectName();
      if (tag == "endif") break;
      if (node.branches.back().condition.kind == Kind::kNothing) Fail("expected endif");
      condition = tag == "elif" ? Tuple(false) : Expr{.line = now().line};
    }
    EndOfTag();
    return node;
  }
  Node For(int line) {
    Node node{.kind = Node::Kind::kFor, .line = line};
    node.target = Target();
    if (!TakeName("in")) Fail(Concat("expected 'in', got ", Shown()));
    node.expr = Tuple(/*with_condition=*/false);
    if (TakeName("if")) node.condition = Condition();
    if (IsName("recursive")) Fail("recursive loops are not supported");
    EndOfTag();
    ++loops_;
    node.body = Body({"endfor", "else"});
    --loops_;
    if (ExpectName() == "else") {
      node.otherwise = BodyTo("endfor");
    } else {
      EndOfTag();
    }
    return node;
  }
  Node Set(int line) {
    Node node{.kind = Node::Kind::kSet, .line = line};
    node.target = Target();
    if (TakeOp("=")) {
      node.expr = Tuple();
      EndOfTag();
      return node;
    }
    node.kind = Node::Kind::kSetBlock;
    node.expr = Expr{.line = line};
    while (IsOp("|")) node.expr = OneFilter(std::move(node.expr));
    node.body = BodyTo("endset");
    return node;
  }
  // a | a, b | (a, b) | ns.a
  Expr Target() {
    const int line = now().line;
    const bool closes = TakeOp("(");
    std::vector<Expr> names;
    bool comma = false;
    do {
      if (now().kind != Token::Kind::kName || IsName("in")) break;
      Expr name = Make(Kind::kName, line, {}, ExpectName());
      if (IsOp(".")) {
        ++at_;
        name = Make(Kind::kAttribute, line, Parts(std::move(name)), ExpectName());
      }
      names.push_back(std::move(name));
      comma = comma || IsOp(",");
    } while (TakeOp(","));
    if (closes) ExpectOp(")");
    if (names.empty()) Fail(Concat("expected a name, got ", Shown()));
    for (const Expr& name : names) {
      for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
        if (name.name == constant) Fail(Concat("cannot assign to '", constant, "'"));
      }
    }
    if (!comma) return std::move(names[0]);
    return Make(Kind::kTuple, line, std::move(names));
  }
  std::vector<std::pair<std::string, Expr>> Parameters() {
    std::vector<std::pair<std::string, Expr>> parameters;
    ExpectOp("(");
    while (!TakeOp(")")) {
      if (!parameters.empty()) {
        ExpectOp(",");
        if (TakeOp(")")) break;
      }
      std::string name = ExpectName();
      const bool has_default = TakeOp("=");
      if (!has_default && !parameters.empty() && parameters.back().second.kind != Kind::kNothing) {
        Fail("a parameter without default behind one with a default");
      }
      parameters.emplace_back(std::move(name), has_default ? Condition() : Expr{});
    }
    return parameters;
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int blocks_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<Node> ParseTemplate(std::string_view source) {
  return Parser(SplitTemplate(source)).Run();
}

}  // namespace tessera::data::chat
