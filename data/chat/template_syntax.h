// SPDX-License-Identifier: Apache-2.0
// A chat template as a tree, and what reads it (Jinja 3.1's grammar, with trim_blocks,
// lstrip_blocks and the tags break, continue and generation, as transformers sets it up).
//
//   const std::vector<Node> body = ParseTemplate("{% if x %}yes{% endif %}");
//
// Not understood, because no chat template has it: inheritance, imports, recursive loops, `*args`.
#ifndef TESSERA_DATA_CHAT_TEMPLATE_SYNTAX_H_
#define TESSERA_DATA_CHAT_TEMPLATE_SYNTAX_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/template_value.h"

namespace tessera::data::chat {

// Expressions within each other, and blocks within each other.
inline constexpr int kMaxExpressionDepth = 200;
inline constexpr int kMaxBlockDepth = 50;

struct Expr {
  enum class Kind {
    kNothing,    // left out: `x if y`, a slice's bound
    kConstant,   // constant
    kName,       // name
    kList,       // parts
    kTuple,      // parts
    kMapping,    // parts: key, value, key, ...
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]
    kCall,       // parts[0](parts[1], ..., named)
    kFilter,     // parts[0] | name(parts[1], ..., named)
    kTest,       // parts[0] is name(parts[1], ...)
    kCompare,    // parts[0] ops[0] parts[1] ops[1] ...
    kAnd,        // parts[0] and parts[1]
    kOr,
    kNot,
    kNegative,
    kPositive,
    kBinary,     // parts[0] name parts[1], of + - * / // % **
    kConcat,     // parts with ~ between
    kCondition,  // parts[1] if parts[0] else parts[2]
  };
  Kind kind = Kind::kNothing;
  int line = 0;
  std::string name = {};
  Value constant = {};
  std::vector<Expr> parts = {};
  std::vector<std::pair<std::string, Expr>> named = {};
  std::vector<std::string> ops = {};
  int depth = 1;
};

struct Node {
  enum class Kind {
    kText,        // text
    kOutput,      // {{ expr }}
    kIf,          // branches: condition (kNothing: else) and body
    kFor,         // target, expr; condition; body; otherwise
    kSet,         // target, expr
    kSetBlock,    // target; expr: filters around kNothing
    kMacro,       // name, parameters, body
    kCall,        // expr; parameters of the caller, body
    kFilter,      // expr: filters around kNothing; body
    kWith,        // parameters, body
    kGeneration,  // body
    kBreak,
    kContinue,
  };
  struct Branch {
    Expr condition;
    std::vector<Node> body;
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text = {};
  Expr target = {};
  Expr expr = {};
  Expr condition = {};
  std::vector<std::pair<std::string, Expr>> parameters = {};  // with defaults, or kNothing
  std::vector<Branch> branches = {};
  std::vector<Node> body = {};
  std::vector<Node> otherwise = {};
};

// Throws TemplateFailure. `source` is UTF-8.
std::vector<Node> ParseTemplate(std::string_view source);

struct Token {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text = {};  // of a string: what it stands for
  int line = 1;
};
// The parts of a template, white space around tags taken away as Jinja does; the last is kEnd.
std::vector<Token> SplitTemplate(std::string_view source);

}  // namespace tessera::data::chat

#endif  // TESSERA_DATA_CHAT_TEMPLATE_SYNTAX_H_
