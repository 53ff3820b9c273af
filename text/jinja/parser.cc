#include "text/jinja/parser.h"

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "text/jinja/lexer.h"

namespace lockstep::text::jinja {
namespace {

constexpr int kMaxDepth = 200;

using Kind = Token::Kind;
using E = Expression::Kind;
using S = Statement::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body Run() {
    Body body = ParseBody({});
    if (Peek().kind != Kind::kEnd) Fail("unexpected {% " + Peek().text + " %}");
    return body;
  }

 private:
  // Counts nesting; recursion must not follow a hostile template down the stack.
  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxDepth) parser.Fail("nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[noreturn]] void Fail(const std::string& what) const { throw TemplateError{what, Peek().line}; }
  bool IsOperator(std::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == Kind::kOperator && Peek(ahead).text == text;
  }
  bool IsName(std::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == Kind::kName && Peek(ahead).text == text;
  }
  bool TakeOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Next();
    return true;
  }
  bool TakeName(std::string_view text) {
    if (!IsName(text)) return false;
    Next();
    return true;
  }
  void ExpectOperator(std::string_view text) {
    if (!TakeOperator(text)) Fail("expected '" + std::string(text) + "' before '" + Peek().text + "'");
  }
  std::string ExpectName() {
    if (Peek().kind != Kind::kName) Fail("expected a name before '" + Peek().text + "'");
    return Next().text;
  }
  void ExpectEndBlock() {
    if (Peek().kind != Kind::kEndBlock) Fail("unexpected '" + Peek().text + "' in a block");
    Next();
  }

  // Statements up to a block that starts with one of `ends` (not consumed).
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Body body;
    while (Peek().kind != Kind::kEnd) {
      if (Peek().kind == Kind::kBeginBlock) {
        for (std::string_view end : ends) {
          if (IsName(end, 1)) return body;
        }
        if (Peek(1).text.starts_with("end") || IsName("else", 1) || IsName("elif", 1)) return body;
      }
      body.push_back(ParseStatement());
    }
    if (ends.size() > 0) Fail("expected {% " + std::string(*(ends.end() - 1)) + " %}");
    return body;
  }

  std::unique_ptr<Statement> New(S kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = Peek().line;
    return statement;
  }

  std::unique_ptr<Statement> ParseStatement() {
    if (Peek().kind == Kind::kText) {
      auto text = New(S::kText);
      text->text = Next().text;
      return text;
    }
    if (Peek().kind == Kind::kBeginPrint) {
      auto print = New(S::kPrint);
      Next();
      print->expression = ParseExpression();
      if (Peek().kind != Kind::kEndPrint) Fail("unexpected '" + Peek().text + "' in {{ }}");
      Next();
      return print;
    }
    Next();  // {%
    const std::string name = ExpectName();
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "filter") return ParseFilterBlock();
    if (name == "generation") return ParseScope("endgeneration");
    if (name == "break" || name == "continue") {
      auto jump = New(name == "break" ? S::kBreak : S::kContinue);
      ExpectEndBlock();
      return jump;
    }
    Fail("unknown block {% " + name + " %}");
  }

  void End(std::string_view name) {
    if (Peek().kind != Kind::kBeginBlock || !IsName(name, 1)) Fail("expected {% " + std::string(name) + " %}");
    Next();
    Next();
    ExpectEndBlock();
  }

  std::unique_ptr<Statement> ParseIf() {
    auto statement = New(S::kIf);
    statement->conditions.push_back(ParseExpression());
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({"elif", "else", "endif"}));
    while (Peek().kind == Kind::kBeginBlock && IsName("elif", 1)) {
      Next();
      Next();
      statement->conditions.push_back(ParseExpression());
      ExpectEndBlock();
      statement->bodies.push_back(ParseBody({"elif", "else", "endif"}));
    }
    if (Peek().kind == Kind::kBeginBlock && IsName("else", 1)) {
      Next();
      Next();
      ExpectEndBlock();
      statement->bodies.push_back(ParseBody({"endif"}));
    }
    End("endif");
    return statement;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = New(S::kFor);
    statement->targets = ParseTargets();
    if (!TakeName("in")) Fail("expected 'in'");
    // No conditional here: "for x in xs if condition" filters.
    statement->expression = ParseOr();
    if (TakeName("if")) statement->filter = ParseExpression();
    if (TakeName("recursive")) Fail("recursive loops are not supported");
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({"else", "endfor"}));
    if (Peek().kind == Kind::kBeginBlock && IsName("else", 1)) {
      Next();
      Next();
      ExpectEndBlock();
      statement->bodies.push_back(ParseBody({"endfor"}));
    }
    End("endfor");
    return statement;
  }

  std::vector<std::string> ParseTargets() {
    const bool parenthesised = TakeOperator("(");
    std::vector<std::string> names = {ExpectName()};
    while (TakeOperator(",")) names.push_back(ExpectName());
    if (parenthesised) ExpectOperator(")");
    return names;
  }

  std::unique_ptr<Statement> ParseSet() {
    auto statement = New(S::kSet);
    if (IsOperator(".", 1)) {
      statement->text = ExpectName();
      Next();
      statement->attribute = ExpectName();
    } else {
      statement->targets = ParseTargets();
      statement->text = statement->targets.front();
    }
    if (TakeOperator("=")) {
      statement->expression = ParseTuple();
      ExpectEndBlock();
      return statement;
    }
    statement->kind = S::kSetBlock;
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({"endset"}));
    End("endset");
    return statement;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = New(S::kMacro);
    statement->text = ExpectName();
    ExpectOperator("(");
    while (!IsOperator(")")) {
      statement->targets.push_back(ExpectName());
      if (TakeOperator("=")) {
        statement->defaults.push_back(ParseExpression());
      } else if (!statement->defaults.empty()) {
        Fail("a parameter without default follows one with default");
      }
      if (!TakeOperator(",")) break;
    }
    ExpectOperator(")");
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({"endmacro"}));
    End("endmacro");
    return statement;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto statement = New(S::kFilterBlock);
    statement->expression = Make(E::kFilter);
    statement->expression->name = ExpectName();
    if (IsOperator("(")) ParseArguments(*statement->expression);
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({"endfilter"}));
    End("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> ParseScope(std::string_view end) {
    auto statement = New(S::kScope);
    ExpectEndBlock();
    statement->bodies.push_back(ParseBody({end}));
    End(end);
    return statement;
  }

  // ----- expressions, loosest first

  ExpressionPtr Make(E kind) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = Peek().line;
    return expression;
  }

  ExpressionPtr ParseTuple() {
    ExpressionPtr first = ParseExpression();
    if (!IsOperator(",")) return first;
    ExpressionPtr tuple = Make(E::kList);
    tuple->items.push_back(std::move(first));
    while (TakeOperator(",")) tuple->items.push_back(ParseExpression());
    return tuple;
  }

  ExpressionPtr ParseExpression() {
    const Deeper deeper(*this);
    ExpressionPtr value = ParseOr();
    while (IsName("if")) {
      ExpressionPtr conditional = Make(E::kConditional);
      Next();
      conditional->left = std::move(value);
      conditional->right = ParseOr();
      conditional->items.push_back(TakeName("else") ? ParseExpression() : nullptr);
      value = std::move(conditional);
    }
    return value;
  }

  ExpressionPtr Binary(std::string name, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr binary = Make(E::kBinary);
    binary->name = std::move(name);
    binary->left = std::move(left);
    binary->right = std::move(right);
    return binary;
  }

  ExpressionPtr ParseOr() {
    ExpressionPtr left = ParseAnd();
    while (TakeName("or")) left = Binary("or", std::move(left), ParseAnd());
    return left;
  }
  ExpressionPtr ParseAnd() {
    ExpressionPtr left = ParseNot();
    while (TakeName("and")) left = Binary("and", std::move(left), ParseNot());
    return left;
  }
  ExpressionPtr ParseNot() {
    if (!IsName("not")) return ParseComparison();
    const Deeper deeper(*this);
    ExpressionPtr unary = Make(E::kUnary);
    Next();
    unary->name = "not";
    unary->left = ParseNot();
    return unary;
  }
  ExpressionPtr ParseComparison() {
    ExpressionPtr left = ParseSum();
    while (true) {
      if (Peek().kind == Kind::kOperator && (Peek().text == "==" || Peek().text == "!=" || Peek().text == "<" ||
                                             Peek().text == ">" || Peek().text == "<=" || Peek().text == ">=")) {
        const std::string name = Next().text;
        left = Binary(name, std::move(left), ParseSum());
      } else if (TakeName("in")) {
        left = Binary("in", std::move(left), ParseSum());
      } else if (IsName("not") && IsName("in", 1)) {
        Next();
        Next();
        left = Binary("not in", std::move(left), ParseSum());
      } else {
        return left;
      }
    }
  }
  ExpressionPtr ParseSum() {
    ExpressionPtr left = ParseConcat();
    while (IsOperator("+") || IsOperator("-")) {
      const std::string name = Next().text;
      left = Binary(name, std::move(left), ParseConcat());
    }
    return left;
  }
  ExpressionPtr ParseConcat() {
    ExpressionPtr left = ParseProduct();
    while (TakeOperator("~")) left = Binary("~", std::move(left), ParseProduct());
    return left;
  }
  ExpressionPtr ParseProduct() {
    ExpressionPtr left = ParseUnary();
    while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
      const std::string name = Next().text;
      left = Binary(name, std::move(left), ParseUnary());
    }
    return left;
  }
  ExpressionPtr ParseUnary() {
    if (!IsOperator("-") && !IsOperator("+")) return ParsePostfix(ParsePrimary());
    const Deeper deeper(*this);
    ExpressionPtr unary = Make(E::kUnary);
    unary->name = Next().text;
    unary->left = ParseUnary();
    return unary;
  }

  ExpressionPtr ParsePostfix(ExpressionPtr value) {
    while (true) {
      if (TakeOperator(".")) {
        ExpressionPtr attribute = Make(E::kAttribute);
        attribute->name = Peek().kind == Kind::kInteger ? Next().text : ExpectName();
        attribute->left = std::move(value);
        value = std::move(attribute);
      } else if (TakeOperator("[")) {
        value = ParseSubscript(std::move(value));
      } else if (IsOperator("(")) {
        ExpressionPtr call = Make(E::kCall);
        call->left = std::move(value);
        ParseArguments(*call);
        value = std::move(call);
      } else if (TakeOperator("|")) {
        ExpressionPtr filter = Make(E::kFilter);
        filter->name = ExpectName();
        filter->left = std::move(value);
        if (IsOperator("(")) ParseArguments(*filter);
        value = std::move(filter);
      } else if (IsName("is")) {
        value = ParseTest(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr ParseTest(ExpressionPtr value) {
    ExpressionPtr test = Make(E::kTest);
    Next();
    test->negated = TakeName("not");
    test->name = ExpectName();
    test->left = std::move(value);
    if (IsOperator("(")) {
      ParseArguments(*test);
    } else if (Peek().kind == Kind::kString || Peek().kind == Kind::kInteger) {
      test->items.push_back(ParsePrimary());  // "is divisibleby 3"
    }
    return test;
  }

  ExpressionPtr ParseSubscript(ExpressionPtr value) {
    ExpressionPtr subscript = Make(E::kSubscript);
    subscript->left = std::move(value);
    ExpressionPtr first = IsOperator(":") ? nullptr : ParseExpression();
    if (!IsOperator(":")) {
      subscript->right = std::move(first);
      ExpectOperator("]");
      return subscript;
    }
    subscript->kind = E::kSlice;
    subscript->items.push_back(std::move(first));
    while (TakeOperator(":")) {
      subscript->items.push_back(IsOperator(":") || IsOperator("]") ? nullptr : ParseExpression());
    }
    if (subscript->items.size() > 3) Fail("a slice has at most three parts");
    subscript->items.resize(3);
    ExpectOperator("]");
    return subscript;
  }

  void ParseArguments(Expression& call) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (Peek().kind == Kind::kName && IsOperator("=", 1)) {
        std::string name = Next().text;
        Next();
        call.named.emplace_back(std::move(name), ParseExpression());
      } else {
        call.items.push_back(ParseExpression());
      }
      if (!TakeOperator(",")) break;
    }
    ExpectOperator(")");
  }

  ExpressionPtr Literal(Value value) {
    ExpressionPtr literal = Make(E::kLiteral);
    literal->literal = std::move(value);
    return literal;
  }

  ExpressionPtr ParsePrimary() {
    const Token token = Peek();
    switch (token.kind) {
      case Kind::kString: {
        std::string text;
        while (Peek().kind == Kind::kString) text += Next().text;
        return Literal(Value::Of(std::move(text)));
      }
      case Kind::kInteger:
        Next();
        return Literal(Value::Of(static_cast<int64_t>(std::strtoll(token.text.c_str(), nullptr, 10))));
      case Kind::kFloat:
        Next();
        return Literal(Value::Of(std::strtod(token.text.c_str(), nullptr)));
      case Kind::kName:
        return ParseName();
      default:
        break;
    }
    if (TakeOperator("(")) return ParseParenthesis();
    if (TakeOperator("[")) {
      ExpressionPtr list = Make(E::kList);
      while (!IsOperator("]")) {
        list->items.push_back(ParseExpression());
        if (!TakeOperator(",")) break;
      }
      ExpectOperator("]");
      return list;
    }
    if (TakeOperator("{")) {
      ExpressionPtr dict = Make(E::kDict);
      while (!IsOperator("}")) {
        dict->items.push_back(ParseExpression());
        ExpectOperator(":");
        dict->items.push_back(ParseExpression());
        if (!TakeOperator(",")) break;
      }
      ExpectOperator("}");
      return dict;
    }
    Fail("unexpected '" + token.text + "'");
  }

  ExpressionPtr ParseParenthesis() {
    if (TakeOperator(")")) return Make(E::kList);
    ExpressionPtr inner = ParseExpression();
    if (IsOperator(",")) {
      ExpressionPtr tuple = Make(E::kList);
      tuple->items.push_back(std::move(inner));
      while (TakeOperator(",")) {
        if (IsOperator(")")) break;
        tuple->items.push_back(ParseExpression());
      }
      inner = std::move(tuple);
    }
    ExpectOperator(")");
    return inner;
  }

  ExpressionPtr ParseName() {
    const std::string name = Next().text;
    if (name == "true" || name == "True") return Literal(Value::Of(true));
    if (name == "false" || name == "False") return Literal(Value::Of(false));
    if (name == "none" || name == "None") return Literal(Value::NoneValue());
    ExpressionPtr expression = Make(E::kName);
    expression->name = name;
    return expression;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Body Parse(const std::string& source) { return Parser(Tokenize(source)).Run(); }

}  // namespace lockstep::text::jinja
