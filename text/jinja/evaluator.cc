#include "text/jinja/evaluator.h"

#include <cmath>
#include <utility>

namespace lockstep::text::jinja {
namespace {

using E = Expression::Kind;
using S = Statement::Kind;

enum class Flow { kNormal, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(Dict globals, const Limits& limits) : limits_(limits) {
    scopes_.push_back(std::move(globals));
    scopes_.emplace_back();
  }

  std::string Run(const Body& body) {
    std::string out;
    Execute(body, out);
    return out;
  }

 private:
  void Step(int line) {
    if (++steps_ > limits_.max_steps) throw TemplateError{"the template runs for too long", line};
  }
  void Write(const std::string& text, std::string& out, int line) {
    written_ += static_cast<int64_t>(text.size());
    if (written_ > limits_.max_output_bytes) throw TemplateError{"the template writes too much", line};
    out += text;
  }

  const Value* Lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const Value* value = Find(*scope, name)) return value;
    }
    return nullptr;
  }

  Flow Execute(const Body& body, std::string& out) {
    for (const auto& statement : body) {
      const Flow flow = Execute(*statement, out);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow Execute(const Statement& s, std::string& out) {
    Step(s.line);
    switch (s.kind) {
      case S::kText:
        Write(s.text, out, s.line);
        return Flow::kNormal;
      case S::kPrint:
        Write(Evaluate(*s.expression).ToText(), out, s.line);
        return Flow::kNormal;
      case S::kIf:
        return ExecuteIf(s, out);
      case S::kFor:
        return ExecuteFor(s, out);
      case S::kSet:
        Set(s);
        return Flow::kNormal;
      case S::kSetBlock:
        Assign(scopes_.back(), s.text, Value::Of(Capture(s.bodies[0])));
        return Flow::kNormal;
      case S::kMacro:
        Assign(scopes_.back(), s.text, Macro(s));
        return Flow::kNormal;
      case S::kFilterBlock: {
        const std::string text = Capture(s.bodies[0]);
        Write(Filtered(*s.expression, Value::Of(text)).ToText(), out, s.line);
        return Flow::kNormal;
      }
      case S::kScope:
        return Execute(s.bodies[0], out);
      case S::kBreak:
        return Flow::kBreak;
      case S::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  std::string Capture(const Body& body) {
    std::string text;
    scopes_.emplace_back();
    Execute(body, text);
    scopes_.pop_back();
    return text;
  }

  Flow ExecuteIf(const Statement& s, std::string& out) {
    for (size_t i = 0; i < s.bodies.size(); ++i) {
      if (i >= s.conditions.size() || Evaluate(*s.conditions[i]).Truthy()) return Execute(s.bodies[i], out);
    }
    return Flow::kNormal;
  }

  void Bind(const std::vector<std::string>& names, const Value& value, int line) {
    if (names.size() == 1) {
      Assign(scopes_.back(), names[0], value);
      return;
    }
    const List items = Iterate(value);
    if (items.size() != names.size())
      throw TemplateError{"cannot unpack " + std::to_string(items.size()) + " values", line};
    for (size_t i = 0; i < names.size(); ++i) Assign(scopes_.back(), names[i], items[i]);
  }

  Flow ExecuteFor(const Statement& s, std::string& out) {
    List items = Iterate(Evaluate(*s.expression));
    scopes_.emplace_back();
    if (s.filter != nullptr) {
      List kept;
      for (const Value& item : items) {
        Step(s.line);
        Bind(s.targets, item, s.line);
        if (Evaluate(*s.filter).Truthy()) kept.push_back(item);
      }
      items = std::move(kept);
    }
    const int64_t count = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < count; ++i) {
      Step(s.line);
      scopes_.back().clear();
      Bind(s.targets, items[i], s.line);
      Assign(scopes_.back(), "loop", Value::Of(LoopVariables(items, i)));
      if (Execute(s.bodies[0], out) == Flow::kBreak) break;
    }
    scopes_.pop_back();
    if (count == 0 && s.bodies.size() > 1) return Execute(s.bodies[1], out);
    return Flow::kNormal;
  }

  static Dict LoopVariables(const List& items, int64_t i) {
    const int64_t count = static_cast<int64_t>(items.size());
    return {{"index", Value::Of(i + 1)},
            {"index0", Value::Of(i)},
            {"revindex", Value::Of(count - i)},
            {"revindex0", Value::Of(count - i - 1)},
            {"first", Value::Of(i == 0)},
            {"last", Value::Of(i + 1 == count)},
            {"length", Value::Of(count)},
            {"previtem", i > 0 ? items[i - 1] : Value()},
            {"nextitem", i + 1 < count ? items[i + 1] : Value()}};
  }

  void Set(const Statement& s) {
    Value value = Evaluate(*s.expression);
    if (s.attribute.empty()) {
      Bind(s.targets, value, s.line);
      return;
    }
    const Value* target = Lookup(s.text);
    if (target == nullptr || target->dict() == nullptr)
      throw TemplateError{"'" + s.text + "' is not a namespace", s.line};
    Assign(*target->dict(), s.attribute, std::move(value));
  }

  Value Macro(const Statement& s) {
    // A macro sees the globals and the template's top level, and its own parameters.
    return Value::Of(Function([this, &s](const Arguments& arguments) {
      if (++call_depth_ > limits_.max_call_depth) throw TemplateError{"macros call each other too deeply", s.line};
      if (arguments.positional.size() > s.targets.size())
        throw TemplateError{"too many arguments for " + s.text, s.line};
      Dict scope;
      for (size_t i = 0; i < s.targets.size(); ++i) {
        const size_t first_default = s.targets.size() - s.defaults.size();
        if (i < arguments.positional.size()) {
          Assign(scope, s.targets[i], arguments.positional[i]);
        } else if (const Value* named = Find(arguments.named, s.targets[i])) {
          Assign(scope, s.targets[i], *named);
        } else {
          Assign(scope, s.targets[i], i >= first_default ? Evaluate(*s.defaults[i - first_default]) : Value());
        }
      }
      std::vector<Dict> outer = std::move(scopes_);
      scopes_ = {outer[0], outer[1], std::move(scope)};
      std::string text;
      Execute(s.bodies[0], text);
      outer[1] = std::move(scopes_[1]);
      scopes_ = std::move(outer);
      --call_depth_;
      return Value::Of(text);
    }));
  }

  Value Evaluate(const Expression& e) {
    Step(e.line);
    try {
      return EvaluateKind(e);
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = e.line;
      throw;
    }
  }

  Value EvaluateKind(const Expression& e) {
    switch (e.kind) {
      case E::kLiteral:
        return e.literal;
      case E::kName: {
        const Value* value = Lookup(e.name);
        return value != nullptr ? *value : Value(Value::Storage(Undefined{e.name}));
      }
      case E::kList: {
        List list;
        for (const auto& item : e.items) list.push_back(Evaluate(*item));
        return Value::Of(std::move(list));
      }
      case E::kDict: {
        Dict dict;
        for (size_t i = 0; i < e.items.size(); i += 2)
          Assign(dict, Evaluate(*e.items[i]).ToText(), Evaluate(*e.items[i + 1]));
        return Value::Of(std::move(dict));
      }
      case E::kAttribute:
        return GetItem(Defined(*e.left, e.name), Value::Of(e.name));
      case E::kSubscript: {
        const Value key = Evaluate(*e.right);
        return GetItem(Defined(*e.left, key.ToText()), key);
      }
      case E::kSlice:
        return EvaluateSlice(e);
      case E::kCall:
        return EvaluateCall(e);
      case E::kFilter:
        return Filtered(e, Evaluate(*e.left));
      case E::kTest:
        return Value::Of(ApplyTest(e.name, Evaluate(*e.left), EvaluateArguments(e)) != e.negated);
      case E::kUnary:
        return EvaluateUnary(e);
      case E::kBinary:
        return EvaluateBinary(e);
      case E::kConditional:
        if (Evaluate(*e.right).Truthy()) return Evaluate(*e.left);
        return e.items[0] != nullptr ? Evaluate(*e.items[0]) : Value();
    }
    return Value();
  }

  // Looking into an undefined value is an error; the undefined value itself is not.
  Value Defined(const Expression& e, const std::string& key) {
    Value value = Evaluate(e);
    if (const auto* undefined = value.As<Undefined>()) {
      throw TemplateError{"'" + undefined->name + "' is undefined, so it has no '" + key + "'", e.line};
    }
    return value;
  }

  Arguments EvaluateArguments(const Expression& e) {
    Arguments arguments;
    for (const auto& item : e.items) arguments.positional.push_back(Evaluate(*item));
    for (const auto& [name, item] : e.named) arguments.named.emplace_back(name, Evaluate(*item));
    return arguments;
  }

  Value Filtered(const Expression& e, const Value& value) { return ApplyFilter(e.name, value, EvaluateArguments(e)); }

  Value EvaluateSlice(const Expression& e) {
    const Value object = Evaluate(*e.left);
    Value parts[3];
    const Value* given[3] = {};
    for (int i = 0; i < 3; ++i) {
      if (e.items[i] == nullptr) continue;
      parts[i] = Evaluate(*e.items[i]);
      if (!parts[i].is_none()) given[i] = &parts[i];
    }
    return Slice(object, given[0], given[1], given[2]);
  }

  Value EvaluateCall(const Expression& e) {
    if (e.left->kind == E::kAttribute) {
      const Value object = Defined(*e.left->left, e.left->name);
      // An entry that is a function wins over a method of that name.
      if (const Dict* dict = object.dict()) {
        const Value* entry = Find(*dict, e.left->name);
        if (entry != nullptr && entry->As<std::shared_ptr<Function>>() != nullptr) return Call(*entry, e);
      }
      return CallMethod(object, e.left->name, EvaluateArguments(e));
    }
    return Call(Evaluate(*e.left), e);
  }

  Value Call(const Value& callee, const Expression& e) {
    const auto* function = callee.As<std::shared_ptr<Function>>();
    if (function == nullptr) {
      const std::string name = e.left->kind == E::kName ? "'" + e.left->name + "'" : std::string("this");
      throw TemplateError{name + " is " + callee.TypeName() + " and cannot be called", e.line};
    }
    return (**function)(EvaluateArguments(e));
  }

  Value EvaluateUnary(const Expression& e) {
    const Value value = Evaluate(*e.left);
    if (e.name == "not") return Value::Of(!value.Truthy());
    const int64_t sign = e.name == "-" ? -1 : 1;
    if (const auto* i = value.As<int64_t>()) return Value::Of(sign * *i);
    if (const auto* d = value.As<double>()) return Value::Of(static_cast<double>(sign) * *d);
    throw TemplateError{std::string("cannot negate ") + value.TypeName(), e.line};
  }

  Value EvaluateBinary(const Expression& e) {
    const Value left = Evaluate(*e.left);
    if (e.name == "and") return left.Truthy() ? Evaluate(*e.right) : left;
    if (e.name == "or") return left.Truthy() ? left : Evaluate(*e.right);
    const Value right = Evaluate(*e.right);
    if (e.name == "==") return Value::Of(Equal(left, right));
    if (e.name == "!=") return Value::Of(!Equal(left, right));
    if (e.name == "<") return Value::Of(Compare(left, right) < 0);
    if (e.name == ">") return Value::Of(Compare(left, right) > 0);
    if (e.name == "<=") return Value::Of(Compare(left, right) <= 0);
    if (e.name == ">=") return Value::Of(Compare(left, right) >= 0);
    if (e.name == "in") return Value::Of(Contains(right, left));
    if (e.name == "not in") return Value::Of(!Contains(right, left));
    if (e.name == "~") return Value::Of(left.ToText() + right.ToText());
    if (e.name == "+") return Sum(left, right);
    return Arithmetic(e.name, left, right);
  }

  static bool Contains(const Value& container, const Value& item) {
    if (const std::string* text = container.string()) {
      if (item.string() == nullptr) throw TemplateError{std::string("a str cannot contain ") + item.TypeName(), 0};
      return text->find(*item.string()) != std::string::npos;
    }
    if (const Dict* dict = container.dict()) return item.string() != nullptr && Find(*dict, *item.string()) != nullptr;
    for (const Value& other : Iterate(container)) {
      if (Equal(other, item)) return true;
    }
    return false;
  }

  static Value Sum(const Value& left, const Value& right) {
    if (left.string() != nullptr && right.string() != nullptr) return Value::Of(*left.string() + *right.string());
    if (left.list() != nullptr && right.list() != nullptr) {
      List joined = *left.list();
      joined.insert(joined.end(), right.list()->begin(), right.list()->end());
      return Value::Of(std::move(joined));
    }
    return Arithmetic("+", left, right);
  }

  static double Number(const Value& value) {
    if (const auto* i = value.As<int64_t>()) return static_cast<double>(*i);
    if (const auto* b = value.As<bool>()) return *b ? 1 : 0;
    return *value.As<double>();
  }

  static Value Arithmetic(const std::string& name, const Value& left, const Value& right) {
    if (!left.is_number() || !right.is_number()) {
      throw TemplateError{"cannot compute " + std::string(left.TypeName()) + " " + name + " " + right.TypeName(), 0};
    }
    const double x = Number(left), y = Number(right);
    if ((name == "/" || name == "//" || name == "%") && y == 0) throw TemplateError{"division by zero", 0};
    if (left.As<double>() == nullptr && right.As<double>() == nullptr && name != "/") {
      const auto a = static_cast<int64_t>(x), b = static_cast<int64_t>(y);
      int64_t result = 0;
      bool overflow = false;
      if (name == "+") overflow = __builtin_add_overflow(a, b, &result);
      if (name == "-") overflow = __builtin_sub_overflow(a, b, &result);
      if (name == "*") overflow = __builtin_mul_overflow(a, b, &result);
      if (name == "//") result = static_cast<int64_t>(std::floor(x / y));
      if (name == "%") result = ((a % b) + b) % b;
      if (overflow) throw TemplateError{"a number is too large", 0};
      return Value::Of(result);
    }
    if (name == "+") return Value::Of(x + y);
    if (name == "-") return Value::Of(x - y);
    if (name == "*") return Value::Of(x * y);
    if (name == "/") return Value::Of(x / y);
    if (name == "//") return Value::Of(std::floor(x / y));
    return Value::Of(x - y * std::floor(x / y));
  }

  const Limits& limits_;
  std::vector<Dict> scopes_;  // globals, top level, inner ones
  int64_t steps_ = 0;
  int64_t written_ = 0;
  int call_depth_ = 0;
};

}  // namespace

std::string Evaluate(const Body& body, Dict globals, const Limits& limits) {
  return Evaluator(std::move(globals), limits).Run(body);
}

}  // namespace lockstep::text::jinja
