#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "text/jinja/methods.h"

namespace lockstep::text::jinja {

using E = Expression::Kind;
using TokenKind = Token::Kind;

namespace {

// Far above what people write, far below what the stack holds.
constexpr int kMaxNesting = 100;
constexpr int kMaxDepth = 200;

std::string WithoutUnderscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) parser_.Error("the template is nested too deeply");
}

const Token& ExpressionParser::Peek(size_t ahead) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
const Token& ExpressionParser::Next() {
  const Token& token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool ExpressionParser::IsOperator(std::string_view text, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kOperator && Peek(ahead).text == text;
}
bool ExpressionParser::IsName(std::string_view text, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == text;
}
bool ExpressionParser::TakeOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Next();
  return true;
}
bool ExpressionParser::TakeName(std::string_view text) {
  if (!IsName(text)) return false;
  Next();
  return true;
}
void ExpressionParser::ExpectOperator(std::string_view text) {
  if (!TakeOperator(text)) Error("expected '" + std::string(text) + "', got " + Describe(Peek()));
}
std::string_view ExpressionParser::ExpectName() {
  if (Peek().kind != TokenKind::kName) Error("expected a name, got " + Describe(Peek()));
  return Next().text;
}
void ExpressionParser::Error(std::string message) const { throw TemplateError{std::move(message), Peek().line}; }

std::string ExpressionParser::Describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kBeginPrint:
      return "'{{'";
    case TokenKind::kEndPrint:
      return "'}}'";
    case TokenKind::kBeginBlock:
      return "'{%'";
    case TokenKind::kEndBlock:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "a string";
    default:
      return "'" + std::string(token.text.substr(0, 40)) + "'";
  }
}

Expression* ExpressionParser::New(E kind) {
  Expression& expression = program_.expressions.emplace_back();
  expression.kind = kind;
  expression.line = Peek().line;
  return &expression;
}

Expression* ExpressionParser::Done(Expression* expression) const {
  int below = 0;
  const auto see = [&](const Expression* part) {
    if (part != nullptr) below = std::max(below, part->depth);
  };
  see(expression->left);
  see(expression->right);
  see(expression->star);
  see(expression->double_star);
  for (const Expression* item : expression->items) see(item);
  for (const Keyword& keyword : expression->keywords) see(keyword.value);
  expression->depth = below + 1;
  if (expression->depth > kMaxDepth) Error("an expression is nested too deeply");
  return expression;
}

Expression* ExpressionParser::Constant(const Value& value) {
  Expression* constant = New(E::kConstant);
  constant->constant = value;
  return constant;
}

Expression* ExpressionParser::ParseTuple(bool conditional) {
  const auto one = [&] { return conditional ? ParseExpression() : ParseOr(); };
  Expression* first = one();
  if (!IsOperator(",")) return first;
  Expression* tuple = New(E::kTuple);
  tuple->items.push_back(first);
  while (TakeOperator(",")) {
    const TokenKind next = Peek().kind;
    if (next == TokenKind::kEndBlock || next == TokenKind::kEndPrint || IsOperator(")") || IsOperator("]") ||
        IsName("in"))
      break;
    tuple->items.push_back(one());
  }
  return Done(tuple);
}

Expression* ExpressionParser::ParseExpression() {
  const Nesting nesting(*this);
  Expression* value = ParseOr();
  while (IsName("if")) {
    Expression* conditional = New(E::kConditional);
    Next();
    conditional->left = value;
    conditional->right = ParseOr();
    conditional->items.push_back(TakeName("else") ? ParseExpression() : nullptr);
    value = Done(conditional);
  }
  return value;
}

Expression* ExpressionParser::Chain(E kind, std::string_view word, Expression* (ExpressionParser::*next)()) {
  Expression* first = (this->*next)();
  if (!IsName(word)) return first;
  Expression* chain = New(kind);
  chain->items.push_back(first);
  while (TakeName(word)) chain->items.push_back((this->*next)());
  return Done(chain);
}
Expression* ExpressionParser::ParseOr() { return Chain(E::kOr, "or", &ExpressionParser::ParseAnd); }
Expression* ExpressionParser::ParseAnd() { return Chain(E::kAnd, "and", &ExpressionParser::ParseNot); }

Expression* ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseComparison();
  const Nesting nesting(*this);
  Expression* inverse = New(E::kNot);
  Next();
  inverse->left = ParseNot();
  return Done(inverse);
}

Operator ExpressionParser::TakeComparison() {
  static constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [text, op] : kComparisons) {
    if (TakeOperator(text)) return op;
  }
  if (TakeName("in")) return Operator::kIn;
  if (IsName("not") && IsName("in", 1)) {
    Next();
    Next();
    return Operator::kNotIn;
  }
  return Operator::kNone;
}

Expression* ExpressionParser::ParseComparison() {
  Expression* first = ParseSum();
  Expression* chain = nullptr;
  for (Operator op = TakeComparison(); op != Operator::kNone; op = TakeComparison()) {
    if (chain == nullptr) {
      chain = New(E::kCompare);
      chain->items.push_back(first);
    }
    chain->operators.push_back(op);
    chain->items.push_back(ParseSum());
  }
  return chain == nullptr ? first : Done(chain);
}

Expression* ExpressionParser::ParseSum() {
  Expression* first = ParseConcat();
  if (!IsOperator("+") && !IsOperator("-")) return first;
  Expression* chain = New(E::kSum);
  chain->items.push_back(first);
  while (IsOperator("+") || IsOperator("-")) {
    chain->operators.push_back(Next().text == "+" ? Operator::kAdd : Operator::kSubtract);
    chain->items.push_back(ParseConcat());
  }
  return Done(chain);
}

Expression* ExpressionParser::ParseConcat() {
  Expression* first = ParseProduct();
  if (!IsOperator("~")) return first;
  Expression* chain = New(E::kConcat);
  chain->items.push_back(first);
  while (TakeOperator("~")) chain->items.push_back(ParseProduct());
  return Done(chain);
}

Expression* ExpressionParser::ParseProduct() {
  Expression* left = ParsePower();
  while (true) {
    Operator op = Operator::kNone;
    if (IsOperator("*")) op = Operator::kMultiply;
    if (IsOperator("/")) op = Operator::kDivide;
    if (IsOperator("//")) op = Operator::kFloorDivide;
    if (IsOperator("%")) op = Operator::kModulo;
    if (op == Operator::kNone) return left;
    Expression* binary = New(E::kBinary);
    Next();
    binary->operators.push_back(op);
    binary->left = left;
    binary->right = ParsePower();
    left = Done(binary);
  }
}

Expression* ExpressionParser::ParsePower() {
  Expression* left = ParseUnary();
  while (IsOperator("**")) {
    Expression* binary = New(E::kBinary);
    Next();
    binary->operators.push_back(Operator::kPower);
    binary->left = left;
    binary->right = ParseUnary();
    left = Done(binary);
  }
  return left;
}

Expression* ExpressionParser::ParseSigned(bool with_filters) {
  Expression* value = nullptr;
  if (IsOperator("-") || IsOperator("+")) {
    const Nesting nesting(*this);
    Expression* sign = New(IsOperator("-") ? E::kNegate : E::kPositive);
    Next();
    sign->left = ParseSigned(/*with_filters=*/false);
    value = Done(sign);
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(value);
  return with_filters ? ParseFiltersAndTests(value) : value;
}

Expression* ExpressionParser::ParsePostfix(Expression* value) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      value = ParseSubscript(value);
    } else if (IsOperator("(")) {
      value = ParseCall(value);
    } else {
      return value;
    }
  }
}

Expression* ExpressionParser::ParseFiltersAndTests(Expression* value) {
  while (true) {
    if (IsOperator("|")) {
      value = ParseFilters(value, /*first_pipe_read=*/false);
    } else if (IsName("is")) {
      value = ParseTest(value);
    } else if (IsOperator("(")) {
      value = ParseCall(value);
    } else {
      return value;
    }
  }
}

Expression* ExpressionParser::ParseFilters(Expression* value, bool first_pipe_read) {
  while (first_pipe_read || TakeOperator("|")) {
    first_pipe_read = false;
    Expression* filter = New(E::kFilter);
    filter->name = ExpectName();
    filter->left = value;
    if (IsOperator("(")) ParseArguments(*filter);
    filter->filter = FindFilter(filter->name);
    value = Done(filter);
  }
  return value;
}

Expression* ExpressionParser::ParseTest(Expression* value) {
  Expression* test = New(E::kTest);
  Next();  // is
  const bool negated = TakeName("not");
  test->name = ExpectName();
  test->left = value;
  test->test = FindTest(test->name);
  const TokenKind next = Peek().kind;
  static constexpr std::string_view kWords[] = {"else", "or", "and", "if", "is", "in", "not"};
  const bool word =
      next == TokenKind::kName && std::find(std::begin(kWords), std::end(kWords), Peek().text) != std::end(kWords);
  if (IsOperator("(")) {
    ParseArguments(*test);
  } else if (!word && (next == TokenKind::kName || next == TokenKind::kString || next == TokenKind::kInteger ||
                       next == TokenKind::kFloat || IsOperator("[") || IsOperator("{"))) {
    test->items.push_back(ParsePostfix(ParsePrimary()));  // "is divisibleby 3"
  }
  if (test->test == nullptr) Error("No test named '" + std::string(test->name) + "'.");
  Done(test);
  if (!negated) return test;
  Expression* inverse = New(E::kNot);
  inverse->left = test;
  return Done(inverse);
}

Expression* ExpressionParser::ParseSubscript(Expression* value) {
  if (TakeOperator("[")) {
    Expression* item = ParseSubscribed(value);
    ExpectOperator("]");
    return Done(item);
  }
  Next();  // .
  if (Peek().kind == TokenKind::kInteger) {
    Expression* item = New(E::kItem);
    item->left = value;
    item->right = ParseInteger(Next());
    return Done(item);
  }
  Expression* attribute = New(E::kAttribute);
  attribute->left = value;
  attribute->name = ExpectName();
  attribute->may_be_method = IsMethodName(attribute->name);
  return Done(attribute);
}

Expression* ExpressionParser::ParseSubscribed(Expression* value) {
  Expression* subscript = New(E::kItem);
  subscript->left = value;
  Expression* first = IsOperator(":") ? nullptr : ParseTuple(/*conditional=*/true);
  if (!IsOperator(":")) {
    subscript->right = first;
    return subscript;
  }
  subscript->kind = E::kSlice;
  subscript->items = {first, nullptr, nullptr};
  for (size_t part = 1; part < 3 && TakeOperator(":"); ++part) {
    if (!IsOperator(":") && !IsOperator("]")) subscript->items[part] = ParseExpression();
  }
  return subscript;
}

Expression* ExpressionParser::ParseCall(Expression* value) {
  Expression* call = New(E::kCall);
  call->left = value;
  ParseArguments(*call);
  return Done(call);
}

void ExpressionParser::ParseArguments(Expression& call) {
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (TakeOperator("*")) {
      if (call.star != nullptr || call.double_star != nullptr) Error("invalid syntax for function call expression");
      call.star = ParseExpression();
    } else if (TakeOperator("**")) {
      if (call.double_star != nullptr) Error("invalid syntax for function call expression");
      call.double_star = ParseExpression();
    } else if (Peek().kind == TokenKind::kName && IsOperator("=", 1)) {
      const std::string_view name = Next().text;
      Next();
      call.keywords.push_back({name, ParseExpression()});
    } else {
      if (call.star != nullptr || call.double_star != nullptr || !call.keywords.empty())
        Error("invalid syntax for function call expression");
      call.items.push_back(ParseExpression());
    }
    if (!TakeOperator(",")) break;
  }
  ExpectOperator(")");
}

Expression* ExpressionParser::ParseInteger(const Token& token) {
  const std::string text = WithoutUnderscores(token.text);
  int base = 10;
  size_t skip = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    skip = base == 10 ? 0 : 2;
  }
  errno = 0;
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str() + skip, &end, base);
  if (*end != '\0') Error("'" + text + "' is not a number");
  if (errno != 0) Error("the number " + text + " is too large");
  return Constant(Value::Integer(value));
}

Expression* ExpressionParser::ParsePrimary() {
  const Token& token = Peek();
  switch (token.kind) {
    case TokenKind::kString: {
      std::string_view text = Next().text;
      if (Peek().kind == TokenKind::kString) {  // literals side by side are one
        std::string& joined = program_.texts.emplace_back(text);
        while (Peek().kind == TokenKind::kString) joined += Next().text;
        text = joined;
      }
      return Constant(Value::Text(text));
    }
    case TokenKind::kInteger:
      return ParseInteger(Next());
    case TokenKind::kFloat:
      return Constant(Value::Float(std::strtod(WithoutUnderscores(Next().text).c_str(), nullptr)));
    case TokenKind::kName:
      return ParseNameOrConstant();
    default:
      break;
  }
  const Nesting nesting(*this);
  if (TakeOperator("(")) return ParseParenthesis();
  if (TakeOperator("[")) return ParseList();
  if (TakeOperator("{")) return ParseDict();
  Error("unexpected " + Describe(token));
}

Expression* ExpressionParser::ParseNameOrConstant() {
  const std::string_view name = Next().text;
  if (name == "true" || name == "True") return Constant(Value::Bool(true));
  if (name == "false" || name == "False") return Constant(Value::Bool(false));
  if (name == "none" || name == "None") return Constant(Value::None());
  Expression* expression = New(E::kName);
  expression->ref.name = name;
  return expression;
}

Expression* ExpressionParser::ParseParenthesis() {
  if (TakeOperator(")")) return New(E::kTuple);
  Expression* inner = ParseTuple(/*conditional=*/true);
  ExpectOperator(")");
  return inner;
}

Expression* ExpressionParser::ParseList() {
  Expression* list = New(E::kList);
  while (!IsOperator("]")) {
    list->items.push_back(ParseExpression());
    if (!TakeOperator(",")) break;
  }
  ExpectOperator("]");
  return Done(list);
}

Expression* ExpressionParser::ParseDict() {
  Expression* dict = New(E::kDict);
  while (!IsOperator("}")) {
    dict->items.push_back(ParseExpression());
    ExpectOperator(":");
    dict->items.push_back(ParseExpression());
    if (!TakeOperator(",")) break;
  }
  ExpectOperator("}");
  return Done(dict);
}

}  // namespace lockstep::text::jinja
