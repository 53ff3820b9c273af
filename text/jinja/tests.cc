// Tests ("x is mapping"), as jinja2 has them.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/builtins.h"
#include "text/jinja/context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"

namespace lockstep::text::jinja {
namespace {

const Value& Other(const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("the test needs an argument");
  return arguments.positional[0];
}

template <Operator kOperator>
bool Compares(Context& context, const Value& value, const Arguments& arguments) {
  return Holds(kOperator, value, Other(arguments), context.heap);
}

bool IsDefined(Context&, const Value& value, const Arguments&) { return !value.is_undefined(); }
bool IsUndefined(Context&, const Value& value, const Arguments&) { return value.is_undefined(); }
bool IsNone(Context&, const Value& value, const Arguments&) { return value.is_none(); }
bool IsBoolean(Context&, const Value& value, const Arguments&) { return value.is_bool(); }
bool IsTrue(Context&, const Value& value, const Arguments&) { return value.is_bool() && value.boolean(); }
bool IsFalse(Context&, const Value& value, const Arguments&) { return value.is_bool() && !value.boolean(); }
bool IsIntegerNumber(Context&, const Value& value, const Arguments&) {
  return value.is_integer() || value.is(Kind::kBigInteger);
}
bool IsFloatNumber(Context&, const Value& value, const Arguments&) { return value.is_float(); }
bool IsNumber(Context&, const Value& value, const Arguments&) { return value.is_number(); }
bool IsString(Context&, const Value& value, const Arguments&) { return value.is_text(); }
bool IsMapping(Context&, const Value& value, const Arguments&) { return value.is_dict(); }
bool IsIterableValue(Context&, const Value& value, const Arguments&) { return IsIterable(value); }
bool IsSequenceValue(Context&, const Value& value, const Arguments&) {
  if (value.is_sequence()) return value.sequence().type <= SequenceType::kRange;  // views have no items
  return value.is_text() || value.is_dict() || value.is_undefined();
}
bool IsCallable(Context&, const Value& value, const Arguments&) {
  return value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kMethod);
}
bool IsSameAs(Context&, const Value& value, const Arguments& arguments) { return value.SameAs(Other(arguments)); }
bool IsEscaped(Context&, const Value& value, const Arguments&) { return value.is_markup(); }

int64_t Whole(const Value& value) {
  if (value.is_undefined()) Fail(value.UndefinedMessage());
  if (!value.is_integer() && !value.is_bool()) Fail(std::string("an int is needed, not '") + value.TypeName() + "'");
  return value.AsInteger();
}
bool IsOdd(Context&, const Value& value, const Arguments&) { return Whole(value) % 2 != 0; }
bool IsEven(Context&, const Value& value, const Arguments&) { return Whole(value) % 2 == 0; }
bool IsDivisibleBy(Context&, const Value& value, const Arguments& arguments) {
  const int64_t by = Whole(Other(arguments));
  if (by == 0) Fail("integer modulo by zero");
  return by == -1 || Whole(value) % by == 0;
}

template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
bool HasCase(Context& context, const Value& value, const Arguments&) {
  const std::string_view text = ToText(value, context.heap).text();
  context.heap.Charge(text.size() / 16);
  bool any = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = DecodeAt(text, at, &length);
    if (kOther(c)) return false;
    any = any || kWanted(c);
  }
  return any;
}

bool IsFilter(Context&, const Value& value, const Arguments&) {
  return value.is_text() && FindFilter(value.text()) != nullptr;
}
bool IsTest(Context&, const Value& value, const Arguments&) {
  return value.is_text() && FindTest(value.text()) != nullptr;
}

}  // namespace

TestFunction FindTest(std::string_view name) {
  static const auto* tests = new std::unordered_map<std::string_view, TestFunction>{
      {"!=", Compares<Operator::kNotEqual>},
      {"<", Compares<Operator::kLess>},
      {"<=", Compares<Operator::kLessEqual>},
      {"==", Compares<Operator::kEqual>},
      {">", Compares<Operator::kGreater>},
      {">=", Compares<Operator::kGreaterEqual>},
      {"boolean", IsBoolean},
      {"callable", IsCallable},
      {"defined", IsDefined},
      {"divisibleby", IsDivisibleBy},
      {"eq", Compares<Operator::kEqual>},
      {"equalto", Compares<Operator::kEqual>},
      {"escaped", IsEscaped},
      {"even", IsEven},
      {"false", IsFalse},
      {"filter", IsFilter},
      {"float", IsFloatNumber},
      {"ge", Compares<Operator::kGreaterEqual>},
      {"greaterthan", Compares<Operator::kGreater>},
      {"gt", Compares<Operator::kGreater>},
      {"in", Compares<Operator::kIn>},
      {"integer", IsIntegerNumber},
      {"iterable", IsIterableValue},
      {"le", Compares<Operator::kLessEqual>},
      {"lessthan", Compares<Operator::kLess>},
      {"lower", HasCase<IsLower, IsUpper>},
      {"lt", Compares<Operator::kLess>},
      {"mapping", IsMapping},
      {"ne", Compares<Operator::kNotEqual>},
      {"none", IsNone},
      {"number", IsNumber},
      {"odd", IsOdd},
      {"sameas", IsSameAs},
      {"sequence", IsSequenceValue},
      {"string", IsString},
      {"test", IsTest},
      {"true", IsTrue},
      {"undefined", IsUndefined},
      {"upper", HasCase<IsUpper, IsLower>},
  };
  const auto it = tests->find(name);
  return it == tests->end() ? nullptr : it->second;
}

}  // namespace lockstep::text::jinja
