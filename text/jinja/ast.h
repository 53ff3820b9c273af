// Syntax trees of templates. Plain data; built by parser.h, walked by evaluator.h.
#ifndef LOCKSTEP_TEXT_JINJA_AST_H_
#define LOCKSTEP_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Expression {
  enum class Kind {
    kLiteral,      // literal
    kName,         // name
    kList,         // items
    kDict,         // items: key, value, key, value ...
    kAttribute,    // left.name
    kSubscript,    // left[right]
    kSlice,        // left[items[0] : items[1] : items[2]], absent ones null
    kCall,         // left(items, named)
    kFilter,       // left | name(items, named)
    kTest,         // left is name(items); negated: is not
    kUnary,        // name: "-", "+", "not"
    kBinary,       // name: operator
    kConditional,  // left if right else items[0] (may be null)
  };
  Kind kind = Kind::kLiteral;
  int line = 0;
  Value literal;
  std::string name;
  bool negated = false;
  ExpressionPtr left, right;
  std::vector<ExpressionPtr> items;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Statement {
  enum class Kind { kText, kPrint, kIf, kFor, kSet, kSetBlock, kMacro, kFilterBlock, kScope, kBreak, kContinue };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;                     // kText; name of kSet, kSetBlock, kMacro, kFilterBlock
  std::string attribute;                // kSet: namespace attribute, or ""
  std::vector<std::string> targets;     // kFor: loop variables; kMacro: parameters; kSet: unpacked names
  std::vector<ExpressionPtr> defaults;  // kMacro: defaults of the last parameters
  ExpressionPtr expression;             // printed, iterated, assigned or filter value
  ExpressionPtr filter;                 // kFor: condition on items
  // kIf: conditions[i] guards bodies[i]; a body more than conditions is the else. kFor: body, else. Others: body.
  std::vector<ExpressionPtr> conditions;
  std::vector<Body> bodies;
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_AST_H_
