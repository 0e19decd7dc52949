// SPDX-License-Identifier: Apache-2.0
// Finds the places of a source that can be mutated. tools/mutate compiles this program by itself
// (packages_mutate.txt has clang's libraries); bazel does not know it.
//
//   find_points SOURCE OUTPUT COMPILER_FLAG...
//
// OUTPUT gets a line for each point (point.h). A point has operands of plain types, in a function
// body that runs. Constant expressions, types, initialisers of statics, texts of errors and the
// bodies of macros have none.
#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "clang/AST/ASTConsumer.h"
#include "clang/AST/ASTContext.h"
#include "clang/AST/RecursiveASTVisitor.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendAction.h"
#include "clang/Lex/Lexer.h"
#include "clang/Tooling/CompilationDatabase.h"
#include "clang/Tooling/Tooling.h"
#include "tools/mutation/point.h"

namespace tessera::mutation {
namespace {

using clang::dyn_cast;
using clang::isa;

// Macros whose argument is evaluated once and is not made into text.
constexpr std::array kOpenMacros = {"TESSERA_CHECK", "TESSERA_RETURN_IF_ERROR",
                                    "TESSERA_ASSIGN_OR_RETURN", "TESSERA_ASSIGN_OR_RETURN_IMPL_"};
// Calls that change no result: a mutant without them is the same program.
constexpr std::array kIdleCalls = {"reserve", "shrink_to_fit", "Warning", "Warn", "Note"};
// Functions whose arguments are the text of a failure.
constexpr std::array kFailures = {
    "Concat",     "ThrowError",       "Failure",       "InvalidArgument",   "NotFound",
    "DataLoss",   "Internal",         "AlreadyExists", "ResourceExhausted", "FailedPrecondition",
    "OutOfRange", "PermissionDenied", "Unimplemented", "Unavailable",       "Cancelled",
    "Aborted",    "DeadlineExceeded", "SystemFailure"};

template <size_t N>
bool Has(const std::array<const char*, N>& names, std::string_view name) {
  for (const char* known : names) {
    if (name == known) return true;
  }
  return false;
}

// What surrounds the expression that is visited.
struct Surroundings {
  bool runs = false;           // in the body of a function
  bool for_increment = false;  // for (...; ...; here)
  std::string function;        // "Class::Name"
  clang::QualType result;      // what a return statement gives
};

// Whether an expression holds a lambda. Two copies of one have two types.
class LambdaSearch : public clang::RecursiveASTVisitor<LambdaSearch> {
 public:
  bool VisitLambdaExpr(clang::LambdaExpr*) { return !(found = true); }
  bool VisitStmtExpr(clang::StmtExpr*) { return !(found = true); }
  bool found = false;
};

class Finder : public clang::RecursiveASTVisitor<Finder> {
 public:
  using Base = clang::RecursiveASTVisitor<Finder>;

  explicit Finder(clang::ASTContext& context)
      : context_(context), sources_(context.getSourceManager()) {}

  bool shouldVisitTemplateInstantiations() const { return true; }

  std::vector<Point> Take() {
    std::vector<Point> points;
    for (auto& [key, found] : found_) {
      if (found.fits && !found.fails) points.push_back(std::move(found.point));
    }
    return points;
  }

  // ---- Where nothing is looked for --------------------------------------------------------------

  bool TraverseTypeLoc(clang::TypeLoc) { return true; }
  bool TraverseType(clang::QualType) { return true; }
  bool TraverseTemplateArgumentLoc(const clang::TemplateArgumentLoc&) { return true; }
  bool TraverseTemplateArgument(const clang::TemplateArgument&) { return true; }
  bool TraverseAttr(clang::Attr*) { return true; }
  bool TraverseStaticAssertDecl(clang::StaticAssertDecl*) { return true; }
  bool TraverseEnumDecl(clang::EnumDecl*) { return true; }
  bool TraverseFieldDecl(clang::FieldDecl*) { return true; }
  bool TraverseConceptDecl(clang::ConceptDecl*) { return true; }
  bool TraverseParmVarDecl(clang::ParmVarDecl*) { return true; }

  bool TraverseDecl(clang::Decl* decl) {
    if (decl == nullptr) return true;
    if (!isa<clang::TranslationUnitDecl>(decl) && !isa<clang::NamespaceDecl>(decl) &&
        !isa<clang::LinkageSpecDecl>(decl) &&
        !sources_.isInMainFile(sources_.getExpansionLoc(decl->getLocation()))) {
      return true;
    }
    if (auto* function = dyn_cast<clang::FunctionDecl>(decl)) {
      if (function->isConstexprSpecified() || function->isConsteval()) return true;
      const Surroundings outside = surroundings_;
      surroundings_ = {.runs = true, .function = NameOf(*function), .result = ResultOf(*function)};
      const bool ok = Base::TraverseDecl(decl);
      surroundings_ = outside;
      return ok;
    }
    if (auto* variable = dyn_cast<clang::VarDecl>(decl)) {
      if (variable->isConstexpr() || IsConstant(*variable)) return true;
      const Surroundings outside = surroundings_;
      if (variable->hasGlobalStorage()) surroundings_.runs = false;
      const bool ok = Base::TraverseDecl(decl);
      surroundings_ = outside;
      return ok;
    }
    return Base::TraverseDecl(decl);
  }

  bool TraverseLambdaExpr(clang::LambdaExpr* lambda) {
    const Surroundings outside = surroundings_;
    if (lambda->getCallOperator() != nullptr) {
      surroundings_ = {.runs = true,
                       .function = outside.function,
                       .result = ResultOf(*lambda->getCallOperator())};
    }
    bool ok = true;
    for (clang::Expr* capture : lambda->capture_inits()) {
      if (capture != nullptr) ok = ok && TraverseStmt(capture);
    }
    ok = ok && TraverseStmt(lambda->getBody());
    surroundings_ = outside;
    return ok;
  }

  bool TraverseStmt(clang::Stmt* statement) {
    if (statement == nullptr) return true;
    if (isa<clang::CXXThrowExpr>(statement) || isa<clang::ConstantExpr>(statement) ||
        isa<clang::UnaryExprOrTypeTraitExpr>(statement) || isa<clang::CXXNoexceptExpr>(statement) ||
        isa<clang::UserDefinedLiteral>(statement) || isa<clang::RequiresExpr>(statement) ||
        isa<clang::CXXDefaultArgExpr>(statement) || isa<clang::CXXDefaultInitExpr>(statement) ||
        isa<clang::AsmStmt>(statement) || isa<clang::OffsetOfExpr>(statement)) {
      return true;
    }
    if (auto* label = dyn_cast<clang::CaseStmt>(statement)) {
      Statement(label->getSubStmt());
      return TraverseStmt(label->getSubStmt());
    }
    if (auto* label = dyn_cast<clang::DefaultStmt>(statement)) Statement(label->getSubStmt());
    if (auto* branch = dyn_cast<clang::IfStmt>(statement)) {
      Statement(branch->getThen());
      Statement(branch->getElse());
      if (branch->isConstexpr()) {
        return TraverseStmt(branch->getThen()) && TraverseStmt(branch->getElse());
      }
      if (branch->getConditionVariable() == nullptr) Negate(branch->getCond());
    }
    if (auto* choice = dyn_cast<clang::ConditionalOperator>(statement)) Negate(choice->getCond());
    if (auto* block = dyn_cast<clang::CompoundStmt>(statement)) {
      for (clang::Stmt* inner : block->body()) Statement(inner);
    }
    if (auto* loop = dyn_cast<clang::WhileStmt>(statement)) Statement(loop->getBody());
    if (auto* loop = dyn_cast<clang::DoStmt>(statement)) Statement(loop->getBody());
    if (auto* loop = dyn_cast<clang::CXXForRangeStmt>(statement)) Statement(loop->getBody());
    if (auto* loop = dyn_cast<clang::ForStmt>(statement)) {
      Statement(loop->getBody());
      bool ok = TraverseStmt(loop->getInit()) && TraverseStmt(loop->getCond());
      surroundings_.for_increment = true;
      ok = ok && TraverseStmt(loop->getInc());
      surroundings_.for_increment = false;
      return ok && TraverseStmt(loop->getBody());
    }
    if (auto* call = dyn_cast<clang::CallExpr>(statement)) {
      const std::string name = CalleeOf(*call);
      if (Has(kFailures, name) || name.rfind("__builtin", 0) == 0) return true;
    }
    if (auto* cast = dyn_cast<clang::ImplicitCastExpr>(statement)) {
      if (cast->getCastKind() == clang::CK_NullToPointer) return true;
    }
    if (auto* sign = dyn_cast<clang::UnaryOperator>(statement)) {
      if (sign->getOpcode() == clang::UO_Minus && IsLiteral(sign->getSubExpr())) {
        Consider(statement);
        return true;
      }
    }
    Consider(statement);
    return Base::TraverseStmt(statement);
  }

 private:
  struct Found {
    Point point;
    bool fits = false;   // the types of one reading allow it
    bool fails = false;  // those of one do not: an instantiation with pointers, say
  };
  enum class Fit { kYes, kNo, kDependsOnTemplate };

  // ---- Mutations --------------------------------------------------------------------------------

  void Consider(clang::Stmt* statement) {
    if (!surroundings_.runs) return;
    if (auto* binary = dyn_cast<clang::BinaryOperator>(statement)) return Binary(*binary);
    if (auto* unary = dyn_cast<clang::UnaryOperator>(statement)) return Unary(*unary);
    if (auto* call = dyn_cast<clang::CXXOperatorCallExpr>(statement)) return Overloaded(*call);
    if (auto* compare = dyn_cast<clang::CXXRewrittenBinaryOperator>(statement)) {
      const clang::BinaryOperatorKind op = compare->getOperator();
      if (op != clang::BO_EQ && op != clang::BO_NE) return;
      return Add(*compare, "compare", "", "!(" + TextOf(compare->getSourceRange()) + ")",
                 Fit::kYes);
    }
    if (auto* value = dyn_cast<clang::IntegerLiteral>(statement)) {
      const std::string text = TextOf(value->getSourceRange());
      const std::string other = text == "0" ? "1" : text == "1" ? "0" : "(" + text + " + 1)";
      return Add(*value, "constant", "", other, Fit::kYes);
    }
    if (auto* value = dyn_cast<clang::FloatingLiteral>(statement)) {
      return Add(*value, "constant", "", "(" + TextOf(value->getSourceRange()) + " + 1)",
                 Fit::kYes);
    }
    if (auto* value = dyn_cast<clang::CXXBoolLiteralExpr>(statement)) {
      return Add(*value, "constant", "", value->getValue() ? "false" : "true", Fit::kYes);
    }
    if (auto* leave = dyn_cast<clang::ReturnStmt>(statement)) return Return(*leave);
  }

  void Binary(clang::BinaryOperator& e) {
    const char* other = nullptr;
    bool numbers = true;
    bool integers = false;
    const char* kind = "arithmetic";
    switch (e.getOpcode()) {
      case clang::BO_LT:
        other = "<=", numbers = false, kind = "compare";
        break;
      case clang::BO_LE:
        other = "<", numbers = false, kind = "compare";
        break;
      case clang::BO_GT:
        other = ">=", numbers = false, kind = "compare";
        break;
      case clang::BO_GE:
        other = ">", numbers = false, kind = "compare";
        break;
      case clang::BO_EQ:
        other = "!=", numbers = false, kind = "compare";
        break;
      case clang::BO_NE:
        other = "==", numbers = false, kind = "compare";
        break;
      case clang::BO_LAnd:
        other = "||", numbers = false, kind = "logic";
        break;
      case clang::BO_LOr:
        other = "&&", numbers = false, kind = "logic";
        break;
      case clang::BO_Add:
        other = "-";
        break;
      case clang::BO_Sub:
        other = "+";
        break;
      case clang::BO_Mul:
        other = "/";
        break;
      case clang::BO_Div:
        other = "*";
        break;
      case clang::BO_Rem:
        other = "*";
        break;
      case clang::BO_AddAssign:
        other = "-=";
        break;
      case clang::BO_SubAssign:
        other = "+=";
        break;
      case clang::BO_MulAssign:
        other = "/=";
        break;
      case clang::BO_DivAssign:
        other = "*=";
        break;
      case clang::BO_And:
        other = "|", integers = true;
        break;
      case clang::BO_Or:
        other = "&", integers = true;
        break;
      case clang::BO_Xor:
        other = "&", integers = true;
        break;
      case clang::BO_Shl:
        other = ">>", integers = true;
        break;
      case clang::BO_Shr:
        other = "<<", integers = true;
        break;
      default:
        return;
    }
    // The step of a loop: another one never ends.
    if (e.isAssignmentOp() && surroundings_.for_increment) return;
    Fit fit = Fit::kYes;
    for (const clang::Expr* side : {e.getLHS(), e.getRHS()}) {
      const clang::QualType type = side->getType();
      if (type->isDependentType()) {
        if (fit == Fit::kYes) fit = Fit::kDependsOnTemplate;
      } else if (type->isVectorType() || (integers && !type->isIntegerType()) ||
                 (numbers && !type->isArithmeticType()) ||
                 !(type->isScalarType() || type->isNullPtrType())) {
        fit = Fit::kNo;
      }
    }
    if (e.getType()->isVectorType()) fit = Fit::kNo;
    Swap(e, *e.getLHS(), *e.getRHS(), e.getOperatorLoc(), kind, other, fit);
  }

  void Unary(clang::UnaryOperator& e) {
    const clang::QualType type = e.getSubExpr()->getType();
    Fit fit = type->isDependentType()                             ? Fit::kDependsOnTemplate
              : type->isArithmeticType() && !type->isVectorType() ? Fit::kYes
                                                                  : Fit::kNo;
    const std::string inner = TextOf(e.getSubExpr()->getSourceRange());
    if (inner.empty()) return;
    switch (e.getOpcode()) {
      case clang::UO_LNot:
        if (!type->isDependentType() && type->isScalarType()) fit = Fit::kYes;
        return Add(e, "logic", "", "static_cast<bool>(" + inner + ")", fit);
      case clang::UO_Minus:
        return Add(e, "arithmetic", "", "(" + inner + ")", fit);
      case clang::UO_PreInc:
      case clang::UO_PreDec:
        if (surroundings_.for_increment) return;
        return Add(e, "arithmetic", "", (e.isIncrementOp() ? "--" : "++") + inner, fit);
      case clang::UO_PostInc:
      case clang::UO_PostDec:
        if (surroundings_.for_increment) return;
        return Add(e, "arithmetic", "", inner + (e.isIncrementOp() ? "--" : "++"), fit);
      default:
        return;
    }
  }

  // Operators of classes: equality, and the arithmetic of vector registers.
  void Overloaded(clang::CXXOperatorCallExpr& e) {
    if (e.getNumArgs() != 2) return;
    const clang::OverloadedOperatorKind op = e.getOperator();
    if (op == clang::OO_EqualEqual || op == clang::OO_ExclaimEqual) {
      if (!e.getType()->isBooleanType()) return;
      return Add(e, "compare", "", "!(" + TextOf(e.getSourceRange()) + ")", Fit::kYes);
    }
    const char* other = op == clang::OO_Plus    ? "-"
                        : op == clang::OO_Minus ? "+"
                        : op == clang::OO_Star  ? "/"
                        : op == clang::OO_Slash ? "*"
                                                : nullptr;
    if (other == nullptr) return;
    const auto* type = e.getType().getCanonicalType()->getAsCXXRecordDecl();
    if (type == nullptr || type->getName() != "VecF") return;
    for (const clang::Expr* side : e.arguments()) {
      if (side->getType().getCanonicalType()->getAsCXXRecordDecl() != type) return;
    }
    Swap(e, *e.getArg(0), *e.getArg(1), e.getOperatorLoc(), "arithmetic", other, Fit::kYes);
  }

  // A condition that has no mutation of its own.
  void Negate(clang::Expr* condition) {
    if (!surroundings_.runs || condition == nullptr || HasMutation(condition)) return;
    Add(*condition, "condition", "static_cast<bool>",
        "!(" + TextOf(condition->getSourceRange()) + ")",
        condition->isTypeDependent() ? Fit::kDependsOnTemplate : Fit::kYes);
  }

  void Return(clang::ReturnStmt& leave) {
    clang::Expr* value = leave.getRetValue();
    if (value == nullptr || surroundings_.result.isNull() || HasMutation(value)) return;
    const clang::QualType result = surroundings_.result;
    // As it is written: what a class is converted to by itself is another type.
    const clang::QualType type = value->IgnoreUnlessSpelledInSource()->getType();
    if (result->isReferenceType() || result->isDependentType() || type->isDependentType()) return;
    const std::string text = "(" + TextOf(value->getSourceRange()) + ")";
    // What has `explicit operator bool` only is not returned as it is.
    const bool truth = result->isBooleanType() && type->isBooleanType();
    const bool number = !result->isBooleanType() && result->isArithmeticType() &&
                        type->isArithmeticType() && !type->isEnumeralType() &&
                        context_.getTypeSize(type) >= 32;
    // Instantiations of a template differ: one that does not fit keeps the point out.
    Add(*value, "return", "", "!" + text, truth ? Fit::kYes : Fit::kNo);
    Add(*value, "return", "", text + " + 1", number ? Fit::kYes : Fit::kNo);
  }

  // A call or an assignment for its effect alone: left out.
  void Statement(clang::Stmt* statement) {
    if (!surroundings_.runs || statement == nullptr) return;
    auto* e = dyn_cast<clang::Expr>(statement);
    if (e == nullptr) return;
    const clang::Expr* inner = e->IgnoreImplicit();
    if (const auto* call = dyn_cast<clang::CallExpr>(inner)) {
      if (const auto* op = dyn_cast<clang::CXXOperatorCallExpr>(call)) {
        if (op->getOperator() != clang::OO_Equal && op->getOperator() != clang::OO_Call &&
            op->getOperator() != clang::OO_PlusEqual) {
          return;
        }
      }
      if (Has(kIdleCalls, CalleeOf(*call)) || Has(kFailures, CalleeOf(*call))) return;
      const auto* function = dyn_cast_or_null<clang::FunctionDecl>(call->getCalleeDecl());
      if (function != nullptr && function->isNoReturn()) return;
    } else if (const auto* assign = dyn_cast<clang::BinaryOperator>(inner)) {
      if (assign->getOpcode() != clang::BO_Assign) return;
    } else {
      return;
    }
    Add(*e, "statement", "void", "void()", Fit::kYes);
  }

  // ---- What they are made of --------------------------------------------------------------------

  void Swap(const clang::Expr& e, const clang::Expr& left, const clang::Expr& right,
            clang::SourceLocation op, const char* kind, const std::string& other, Fit fit) {
    if (op.isMacroID() && !OfOpenMacro(op)) return;
    const std::string l = TextOf(left.getSourceRange());
    const std::string r = TextOf(right.getSourceRange());
    if (l.empty() || r.empty()) return;
    Add(e, kind, "", l + " " + other + " " + r, fit);
  }

  void Add(const clang::Expr& e, const char* kind, const char* wrap, std::string mutated, Fit fit) {
    const clang::CharSourceRange range = RangeOf(e.getSourceRange());
    if (range.isInvalid() || mutated.empty()) return;
    const auto begin = static_cast<int64_t>(sources_.getFileOffset(range.getBegin()));
    const auto end = static_cast<int64_t>(sources_.getFileOffset(range.getEnd()));
    if (std::string_view(kind) != "statement") {
      // The mutant is a copy of the operands on one line.
      LambdaSearch search;
      search.TraverseStmt(const_cast<clang::Expr*>(&e));
      if (search.found || mutated.find("//") != std::string::npos ||
          mutated.find("/*") != std::string::npos || mutated.find('#') != std::string::npos) {
        return;
      }
      for (char& c : mutated) {
        if (c == '\n') c = ' ';
      }
    }
    Found& found = found_[{begin, -end, kind, mutated}];
    found.fits = found.fits || fit == Fit::kYes;
    found.fails = found.fails || fit == Fit::kNo;
    found.point = {.begin = begin,
                   .end = end,
                   .line = static_cast<int64_t>(sources_.getSpellingLineNumber(range.getBegin())),
                   .kind = kind,
                   .wrap = wrap,
                   .function = surroundings_.function,
                   .mutated = std::move(mutated)};
  }

  // ---- Questions about the tree -----------------------------------------------------------------

  bool OfOpenMacro(clang::SourceLocation place) const {
    while (place.isMacroID()) {
      if (!sources_.isMacroArgExpansion(place)) return false;
      const llvm::StringRef macro =
          clang::Lexer::getImmediateMacroName(place, sources_, context_.getLangOpts());
      if (!Has(kOpenMacros, std::string_view(macro.data(), macro.size()))) return false;
      place = sources_.getImmediateSpellingLoc(place);
    }
    return true;
  }

  // Invalid for what a macro's body makes, wholly or in part.
  clang::CharSourceRange RangeOf(clang::SourceRange tokens) const {
    if (!OfOpenMacro(tokens.getBegin())) return {};
    const clang::CharSourceRange range = clang::Lexer::makeFileCharRange(
        clang::CharSourceRange::getTokenRange(tokens), sources_, context_.getLangOpts());
    if (range.isInvalid() || !sources_.isInMainFile(range.getBegin()) ||
        sources_.getFileID(range.getBegin()) != sources_.getMainFileID()) {
      return {};
    }
    return range;
  }

  std::string TextOf(clang::SourceRange tokens) const {
    const clang::CharSourceRange range = RangeOf(tokens);
    if (range.isInvalid()) return "";
    return clang::Lexer::getSourceText(range, sources_, context_.getLangOpts()).str();
  }

  static bool IsLiteral(const clang::Expr* e) {
    e = e->IgnoreParenImpCasts();
    return isa<clang::IntegerLiteral>(e) || isa<clang::FloatingLiteral>(e) ||
           isa<clang::CXXBoolLiteralExpr>(e);
  }

  // Whether the outermost operator is mutated, so that another change of the whole adds nothing.
  static bool HasMutation(const clang::Expr* e) {
    e = e->IgnoreParenImpCasts();
    if (const auto* cleanup = dyn_cast<clang::ExprWithCleanups>(e)) {
      e = cleanup->getSubExpr()->IgnoreParenImpCasts();
    }
    if (const auto* unary = dyn_cast<clang::UnaryOperator>(e)) {
      return unary->getOpcode() == clang::UO_LNot || unary->getOpcode() == clang::UO_Minus ||
             unary->isIncrementDecrementOp();
    }
    if (const auto* call = dyn_cast<clang::CXXOperatorCallExpr>(e)) {
      return call->getOperator() == clang::OO_EqualEqual ||
             call->getOperator() == clang::OO_ExclaimEqual;
    }
    return IsLiteral(e) || isa<clang::BinaryOperator>(e) ||
           isa<clang::CXXRewrittenBinaryOperator>(e);
  }

  // An integer that other constant expressions may be made of.
  bool IsConstant(const clang::VarDecl& variable) const {
    return variable.getType().isConstQualified() &&
           variable.getType()->isIntegralOrEnumerationType() && variable.getInit() != nullptr &&
           !variable.getInit()->isValueDependent() &&
           variable.getInit()->isCXX11ConstantExpr(context_);
  }

  static std::string CalleeOf(const clang::CallExpr& call) {
    const auto* decl = dyn_cast_or_null<clang::NamedDecl>(call.getCalleeDecl());
    if (decl != nullptr && decl->getDeclName().isIdentifier()) return decl->getName().str();
    const clang::Expr* callee = call.getCallee()->IgnoreParenImpCasts();
    if (const auto* lookup = dyn_cast<clang::OverloadExpr>(callee)) {
      return lookup->getName().getAsString();
    }
    if (const auto* member = dyn_cast<clang::CXXDependentScopeMemberExpr>(callee)) {
      return member->getMember().getAsString();
    }
    return "";
  }

  static clang::QualType ResultOf(const clang::FunctionDecl& function) {
    return function.getReturnType().isNull() ? clang::QualType()
                                             : function.getReturnType().getCanonicalType();
  }

  // "Class::Name", whatever the namespace and the template arguments.
  static std::string NameOf(const clang::FunctionDecl& function) {
    std::string name = function.getNameAsString();
    const clang::DeclContext* outside = function.getDeclContext();
    while (outside != nullptr) {
      if (const auto* record = dyn_cast<clang::CXXRecordDecl>(outside)) {
        if (record->isLambda()) return name;
        name = record->getNameAsString() + "::" + name;
      }
      outside = outside->getParent();
    }
    return name;
  }

  clang::ASTContext& context_;
  const clang::SourceManager& sources_;
  Surroundings surroundings_;
  std::map<std::tuple<int64_t, int64_t, std::string, std::string>, Found> found_;
};

class Consumer : public clang::ASTConsumer {
 public:
  explicit Consumer(std::vector<Point>& points) : points_(points) {}
  void HandleTranslationUnit(clang::ASTContext& context) override {
    if (context.getDiagnostics().hasErrorOccurred()) return;
    Finder finder(context);
    finder.TraverseDecl(context.getTranslationUnitDecl());
    points_ = finder.Take();
  }

 private:
  std::vector<Point>& points_;
};

class Action : public clang::ASTFrontendAction {
 public:
  explicit Action(std::vector<Point>& points) : points_(points) {}
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance&,
                                                        llvm::StringRef) override {
    return std::make_unique<Consumer>(points_);
  }

 private:
  std::vector<Point>& points_;
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: find_points SOURCE OUTPUT COMPILER_FLAG...\n";
    return 2;
  }
  const std::string source = argv[1];
  std::ifstream file(source);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) {
    std::cerr << "error: " << source << ": cannot be read\n";
    return 1;
  }
  std::vector<Point> points;
  if (!clang::tooling::runToolOnCodeWithArgs(std::make_unique<Action>(points), text,
                                             std::vector<std::string>(argv + 3, argv + argc),
                                             source, "find_points")) {
    std::cerr << "error: " << source << ": clang cannot compile it\n";
    return 1;
  }
  std::ofstream out(argv[2]);
  for (const Point& point : points) out << WritePoint(point) << "\n";
  out.close();
  if (!out) {
    std::cerr << "error: " << argv[2] << ": cannot be written\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::mutation

int main(int argc, char** argv) { return tessera::mutation::Main(argc, argv); }
