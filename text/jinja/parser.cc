#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/expression_parser.h"

namespace lockstep::text::jinja {
namespace {

using S = Statement::Kind;
using TokenKind = Token::Kind;

class Parser : private ExpressionParser {
 public:
  Parser(const std::string& source, Program& program) : ExpressionParser(source, program) {}

  void Run() {
    program_.body = ParseBody({});
    if (Peek().kind != TokenKind::kEnd) Error("unexpected block " + Describe(Peek(1)));
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  Statement* New(S kind) {
    Statement& statement = program_.statements.emplace_back();
    statement.kind = kind;
    statement.line = Peek().line;
    return &statement;
  }

  bool AtBlock(std::string_view name) const { return Peek().kind == TokenKind::kBeginBlock && IsName(name, 1); }

  // Statements up to a block that starts with one of `ends`, which is left to be read.
  Body ParseBody(Ends ends) {
    const Nesting nesting(*this);
    Body body;
    while (Peek().kind != TokenKind::kEnd) {
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return AtBlock(end); })) return body;
      body.push_back(ParseStatement());
    }
    if (ends.size() > 0) Error("expected {% " + std::string(*(ends.end() - 1)) + " %} before the end of the template");
    return body;
  }

  // Reads "{% name" of a block that ParseBody stopped at.
  bool TakeBlock(std::string_view name) {
    if (!AtBlock(name)) return false;
    Next();
    Next();
    return true;
  }
  void EndBlock() {
    if (Peek().kind != TokenKind::kEndBlock) Error("unexpected " + Describe(Peek()) + " in a block");
    Next();
  }
  Body ParseBodyUntil(std::string_view end) {
    EndBlock();
    Body body = ParseBody({end});
    TakeBlock(end);
    EndBlock();
    return body;
  }

  Statement* ParseStatement() {
    if (Peek().kind == TokenKind::kText) {
      Statement* text = New(S::kText);
      text->text = Next().text;
      return text;
    }
    if (Peek().kind == TokenKind::kBeginPrint) return ParsePrint();
    Next();  // {%
    const std::string_view name = ExpectName();
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "generation") {
      Statement* generation = New(S::kGeneration);
      generation->body = ParseFunctionBody("endgeneration");
      return generation;
    }
    if (name == "break" || name == "continue") {
      Statement* jump = New(name == "break" ? S::kBreak : S::kContinue);
      if (loops_ == 0) Error("{% " + std::string(name) + " %} outside of a loop");
      EndBlock();
      return jump;
    }
    Error("Encountered unknown tag '" + std::string(name) + "'.");
  }

  Statement* ParsePrint() {
    Statement* print = New(S::kPrint);
    Next();
    print->value = ParseTuple(/*conditional=*/true);
    if (Peek().kind != TokenKind::kEndPrint) Error("unexpected " + Describe(Peek()) + " in {{ }}");
    Next();
    return print;
  }

  Statement* ParseIf() {
    Statement* statement = New(S::kIf);
    do {
      Branch branch;
      branch.condition = ParseTuple(/*conditional=*/true);
      EndBlock();
      branch.body = ParseBody({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
    } while (TakeBlock("elif"));
    if (TakeBlock("else")) {
      EndBlock();
      statement->branches.push_back({nullptr, ParseBody({"endif"})});
    }
    if (!TakeBlock("endif")) Error("expected {% endif %}");
    EndBlock();
    return statement;
  }

  Statement* ParseFor() {
    Statement* statement = New(S::kFor);
    statement->target = ParseTarget(/*with_namespace=*/false);
    if (!TakeName("in")) Error("expected 'in', got " + Describe(Peek()));
    statement->value = ParseTuple(/*conditional=*/false);  // "for x in xs if condition" filters
    if (TakeName("if")) statement->condition = ParseExpression();
    if (TakeName("recursive")) Error("recursive loops are not supported");
    EndBlock();
    ++loops_;
    statement->body = ParseBody({"else", "endfor"});
    --loops_;
    if (TakeBlock("else")) {
      EndBlock();
      statement->otherwise = ParseBody({"endfor"});
    }
    if (!TakeBlock("endfor")) Error("expected {% endfor %}");
    EndBlock();
    return statement;
  }

  Target ParseTarget(bool with_namespace) {
    Target first = ParseOneTarget(with_namespace);
    if (!IsOperator(",")) return first;
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.parts.push_back(std::move(first));
    while (TakeOperator(",")) {
      if (IsName("in") || IsOperator("=") || IsOperator(")")) break;
      tuple.parts.push_back(ParseOneTarget(with_namespace));
    }
    return tuple;
  }

  Target ParseOneTarget(bool with_namespace) {
    const Nesting nesting(*this);
    if (TakeOperator("(")) {
      Target inner = ParseTarget(with_namespace);
      ExpectOperator(")");
      return inner;
    }
    Target target;
    target.name = ExpectName();
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), target.name) != std::end(kConstants)) {
      Error("can't assign to '" + std::string(target.name) + "'");
    }
    if (with_namespace && TakeOperator(".")) {
      target.kind = Target::Kind::kNamespace;
      target.ref.name = target.name;
      target.attribute = ExpectName();
    }
    return target;
  }

  Statement* ParseSet() {
    Statement* statement = New(S::kSet);
    statement->target = ParseTarget(/*with_namespace=*/true);
    if (TakeOperator("=")) {
      statement->value = ParseTuple(/*conditional=*/true);
      EndBlock();
      return statement;
    }
    statement->kind = S::kSetBlock;
    statement->value = ParseFilters(nullptr, /*first_pipe_read=*/false);
    statement->body = ParseFunctionBody("endset");
    return statement;
  }

  // A body that loop controls cannot leave.
  Body ParseFunctionBody(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    Body body = ParseBodyUntil(end);
    loops_ = loops;
    return body;
  }

  void ParseParameters(Statement& statement) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      Parameter parameter;
      parameter.name = ExpectName();
      if (TakeOperator("=")) {
        parameter.fallback = ParseExpression();
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback != nullptr) {
        Error("non-default argument follows default argument");
      }
      statement.parameters.push_back(parameter);
      if (!TakeOperator(",")) break;
    }
    ExpectOperator(")");
  }

  Statement* ParseMacro() {
    Statement* macro = New(S::kMacro);
    macro->text = ExpectName();
    ParseParameters(*macro);
    macro->body = ParseFunctionBody("endmacro");
    return macro;
  }

  Statement* ParseCallBlock() {
    Statement* block = New(S::kCallBlock);
    if (IsOperator("(")) ParseParameters(*block);
    block->value = ParseExpression();
    if (block->value->kind != Expression::Kind::kCall) Error("expected a call");
    block->body = ParseFunctionBody("endcall");
    return block;
  }

  Statement* ParseFilterBlock() {
    Statement* block = New(S::kFilterBlock);
    block->value = ParseFilters(nullptr, /*first_pipe_read=*/true);
    block->body = ParseFunctionBody("endfilter");
    return block;
  }

  Statement* ParseWith() {
    Statement* with = New(S::kWith);
    while (Peek().kind != TokenKind::kEndBlock) {
      if (!with->assignments.empty()) ExpectOperator(",");
      Target target = ParseOneTarget(/*with_namespace=*/false);
      ExpectOperator("=");
      with->assignments.emplace_back(std::move(target), ParseExpression());
    }
    with->body = ParseBodyUntil("endwith");
    return with;
  }

  int loops_ = 0;  // around the statement at hand, within the same function
};

}  // namespace

void Parse(const std::string& source, Program& program) { Parser(source, program).Run(); }

}  // namespace lockstep::text::jinja
