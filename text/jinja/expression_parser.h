// The part of the parser that reads expressions; parser.cc adds statements.
#ifndef LOCKSTEP_TEXT_JINJA_EXPRESSION_PARSER_H_
#define LOCKSTEP_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace lockstep::text::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(const std::string& source, Program& program)
      : program_(program), tokens_(Tokenize(source, program.texts)) {}

  // ----- tokens
  const Token& Peek(size_t ahead = 0) const;
  const Token& Next();
  bool IsOperator(std::string_view text, size_t ahead = 0) const;
  bool IsName(std::string_view text, size_t ahead = 0) const;
  bool TakeOperator(std::string_view text);
  bool TakeName(std::string_view text);
  void ExpectOperator(std::string_view text);
  std::string_view ExpectName();
  [[noreturn]] void Error(std::string message) const;
  std::string Describe(const Token& token) const;

  // ----- expressions
  Expression* ParseExpression();  // with "a if b else c"
  Expression* ParseOr();          // without
  // One expression, or several with commas between them. `conditional`: each may be an "a if b else c".
  Expression* ParseTuple(bool conditional);
  // "| filter | filter(...)" on `value`, which is null in a filter block.
  Expression* ParseFilters(Expression* value, bool first_pipe_read);
  void ParseArguments(Expression& call);

  // Throws when blocks or expressions lie too deep in each other.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  Program& program_;

 private:
  Expression* New(Expression::Kind kind);
  Expression* Done(Expression* expression) const;  // computes the depth
  Expression* Constant(const Value& value);
  Expression* Chain(Expression::Kind kind, std::string_view word, Expression* (ExpressionParser::*next)());
  Expression* ParseAnd();
  Expression* ParseNot();
  Expression* ParseComparison();
  Operator TakeComparison();
  Expression* ParseSum();
  Expression* ParseConcat();
  Expression* ParseProduct();
  Expression* ParsePower();
  Expression* ParseUnary() { return ParseSigned(/*with_filters=*/true); }
  Expression* ParseSigned(bool with_filters);
  Expression* ParsePostfix(Expression* value);
  Expression* ParseFiltersAndTests(Expression* value);
  Expression* ParseTest(Expression* value);
  Expression* ParseSubscript(Expression* value);
  Expression* ParseSubscribed(Expression* value);
  Expression* ParseCall(Expression* value);
  Expression* ParsePrimary();
  Expression* ParseNameOrConstant();
  Expression* ParseParenthesis();
  Expression* ParseList();
  Expression* ParseDict();
  Expression* ParseInteger(const Token& token);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_EXPRESSION_PARSER_H_
