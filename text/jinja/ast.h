// Syntax trees of templates. Plain data: built by parser.h, completed by resolver.h, walked by evaluator.cc.
//
// Nodes lie in the deques of a Program and point to each other, so a deep tree is freed without recursion.
#ifndef LOCKSTEP_TEXT_JINJA_AST_H_
#define LOCKSTEP_TEXT_JINJA_AST_H_

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace lockstep::text::jinja {

struct Expression;
struct Statement;
using Body = std::vector<Statement*>;

// Where a variable may live, innermost scope first: the first of these that has a value is meant, else the global.
struct NameRef {
  struct Slot {
    int hops;   // frames outward: 0 is the running macro's (or the template's) own
    int index;  // in that frame
  };
  std::string_view name;
  std::vector<Slot> slots;
  int global = -1;  // in Program::globals
};

struct Keyword {
  std::string_view name;
  Expression* value;
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,     // constant
    kName,         // ref
    kList,         // items
    kTuple,        // items
    kDict,         // items: key, value, key, value ...
    kAttribute,    // left.name
    kItem,         // left[right]
    kSlice,        // left[items[0] : items[1] : items[2]], absent ones null
    kCall,         // left(items, keywords, *star, **double_star)
    kFilter,       // left | name(arguments as in kCall); left is null in a filter block
    kTest,         // left is name(arguments as in kCall)
    kNot,          // not left
    kNegate,       // -left
    kPositive,     // +left
    kSum,          // items[0] operators[0] items[1] ...: + and -
    kConcat,       // items[0] ~ items[1] ~ ...
    kBinary,       // left operators[0] right: * / // % **
    kCompare,      // items[0] operators[0] items[1] ...: a chain as in Python
    kAnd,          // items
    kOr,           // items
    kConditional,  // left if right else items[0] (may be null)
  };
  Kind kind = Kind::kConstant;
  bool may_be_method = false;  // kAttribute: some type has a method of that name
  int line = 0;
  int depth = 1;  // of the tree below
  Value constant;
  std::string_view name;
  NameRef ref;
  Expression* left = nullptr;
  Expression* right = nullptr;
  std::vector<Expression*> items;
  std::vector<Operator> operators;
  std::vector<Keyword> keywords;
  Expression* star = nullptr;
  Expression* double_star = nullptr;
  FilterFunction filter = nullptr;  // null: unknown, an error when it runs
  TestFunction test = nullptr;
};

// What an assignment or a loop writes to.
struct Target {
  enum class Kind : uint8_t { kVariable, kNamespace, kTuple };
  Kind kind = Kind::kVariable;
  std::string_view name;       // of the variable, or of the namespace
  int slot = -1;               // kVariable
  NameRef ref;                 // kNamespace
  std::string_view attribute;  // kNamespace
  std::vector<Target> parts;   // kTuple
};

struct Branch {
  Expression* condition = nullptr;  // null: else
  Body body;
};

struct Parameter {
  std::string_view name;
  int slot = -1;
  Expression* fallback = nullptr;
};

// A run of slots in the frame, emptied when its scope is entered.
struct SlotRange {
  int begin = 0;
  int end = 0;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // value
    kIf,           // branches
    kFor,          // target in value if condition: body; otherwise
    kSet,          // target = value
    kSetBlock,     // target = body, through the filters of value (may be null)
    kMacro,        // name(parameters): body
    kCallBlock,    // value is the call; parameters and body are its caller
    kFilterBlock,  // body through the filters of value
    kGeneration,   // body
    kWith,         // assignments; body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string_view text;  // kText; the name of kMacro
  Expression* value = nullptr;
  Expression* condition = nullptr;
  Target target;
  Body body;
  Body otherwise;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, Expression*>> assignments;
  std::vector<Parameter> parameters;
  SlotRange slots;            // of body's scope
  SlotRange otherwise_slots;  // of otherwise's scope
  int name_slot = -1;         // kMacro
  int frame_size = 0;         // kMacro, kCallBlock
  // -1: not used by the body. loop: kFor; the others: kMacro, kCallBlock.
  int loop_slot = -1, caller_slot = -1, varargs_slot = -1, kwargs_slot = -1;
};

struct Program {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::deque<std::string> texts;  // what names, constants and texts point to
  Body body;
  int frame_size = 0;
  std::vector<std::string_view> globals;  // names that may come from outside
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_AST_H_
