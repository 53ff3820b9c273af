#include "text/jinja/evaluator.h"

#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"

namespace lockstep::text::jinja {

// The variables of the template or of one macro call.
struct Frame {
  Frame* outer;
  std::vector<Value> slots;
};

struct Macro {
  const Statement* definition;
  Frame* frame;  // where it was defined
};

namespace {

using E = Expression::Kind;
using S = Statement::Kind;

enum class Flow { kNormal, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(const Program& program, const std::vector<Value>& globals, const Limits& limits, Context& context)
      : program_(program), globals_(globals), limits_(limits), context_(context), heap_(context.heap) {}

  Evaluation Run() {
    frame_ = heap_.New(Frame{nullptr, std::vector<Value>(static_cast<size_t>(program_.frame_size), Value::Unbound())});
    try {
      Execute(program_.body, result_.text);
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = line_;
      throw;
    }
    return std::move(result_);
  }

 private:
  // Evaluation within evaluation, up to what the stack holds. An error ends the rendering, so it need not be undone.
  void Enter(int line) {
    line_ = line;
    context_.Step();
    if (++depth_ > limits_.max_depth) [[unlikely]]
      Fail("the template calls itself too deeply");
  }
  void Leave() { --depth_; }

  // ----- statements

  Flow Execute(const Body& body, std::string& out) {
    for (const Statement* statement : body) {
      const Flow flow = Execute(*statement, out);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow Execute(const Statement& s, std::string& out) {
    Enter(s.line);
    const Flow flow = ExecuteKind(s, out);
    Leave();
    return flow;
  }

  Flow ExecuteKind(const Statement& s, std::string& out) {
    switch (s.kind) {
      case S::kText:
        Write(s.text, out);
        break;
      case S::kPrint:
        Print(Evaluate(*s.value), out);
        break;
      case S::kIf:
        return ExecuteIf(s, out);
      case S::kFor:
        return ExecuteFor(s, out);
      case S::kSet:
        Assign(s.target, Evaluate(*s.value));
        break;
      case S::kSetBlock:
        Assign(s.target, Filtered(s.value, Capture(s)));
        break;
      case S::kMacro:
        Slot(s.name_slot) = Value::Of(heap_.New(Macro{&s, frame_}));
        break;
      case S::kCallBlock:
        Print(EvaluateCall(*s.value, heap_.New(Macro{&s, frame_})), out);
        break;
      case S::kFilterBlock:
        Print(Filtered(s.value, Capture(s)), out);
        break;
      case S::kGeneration:
        ExecuteGeneration(s, out);
        break;
      case S::kWith:
        return ExecuteWith(s, out);
      case S::kBreak:
        return Flow::kBreak;
      case S::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  void CheckOutput(const std::string& out) const {
    if (static_cast<int64_t>(out.size()) > limits_.max_output_bytes) Fail("the template writes too much");
  }
  void Write(std::string_view text, std::string& out) {
    heap_.Charge(text.size());
    out += text;
    CheckOutput(out);
  }
  void Print(const Value& value, std::string& out) {
    AppendText(value, heap_, out);
    CheckOutput(out);
  }

  Value& Slot(int index) { return frame_->slots[static_cast<size_t>(index)]; }
  void Empty(const SlotRange& range) {
    for (int i = range.begin; i < range.end; ++i) Slot(i) = Value::Unbound();
  }

  // The text of a block with a scope of its own.
  Value Capture(const Statement& s) {
    Empty(s.slots);
    std::string text;
    Execute(s.body, text);
    return heap_.Text(text);
  }

  Flow ExecuteIf(const Statement& s, std::string& out) {
    for (const Branch& branch : s.branches) {
      if (branch.condition == nullptr || Evaluate(*branch.condition).Truthy()) return Execute(branch.body, out);
    }
    return Flow::kNormal;
  }

  Flow ExecuteWith(const Statement& s, std::string& out) {
    std::vector<Value> values;
    for (const auto& [target, value] : s.assignments) values.push_back(Evaluate(*value));
    Empty(s.slots);
    for (size_t i = 0; i < values.size(); ++i) Assign(s.assignments[i].first, values[i]);
    return Execute(s.body, out);
  }

  Flow ExecuteFor(const Statement& s, std::string& out) {
    const std::vector<Value>& items = LoopItems(s, Evaluate(*s.value));
    if (items.empty()) {
      Empty(s.otherwise_slots);
      return Execute(s.otherwise, out);
    }
    Loop* loop = nullptr;
    if (s.loop_slot >= 0) {
      loop = heap_.NewLoop();
      loop->items = &items;
      loop->depth = loop_depth_ + 1;
    }
    ++loop_depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      context_.Step();
      Empty(s.slots);
      Assign(s.target, items[i]);
      if (loop != nullptr) {
        loop->index0 = i;
        Slot(s.loop_slot) = Value::Of(loop);
      }
      if (Execute(s.body, out) == Flow::kBreak) break;
    }
    --loop_depth_;
    return Flow::kNormal;
  }

  // The items a loop visits. They outlive it: `loop` may be kept by a namespace.
  const std::vector<Value>& LoopItems(const Statement& s, const Value& iterable) {
    if (s.loop_slot >= 0) Slot(s.loop_slot) = Value::Unbound();
    auto* storage = heap_.New(std::vector<Value>());
    const std::vector<Value>* all = &Iterate(iterable, heap_, *storage);
    context_.Step(static_cast<int64_t>(all->size() / 4));
    if (context_.mutable_sandbox && all != storage) {  // the body may change the list
      heap_.Charge(all->size() * sizeof(Value));
      *storage = *all;
      all = storage;
    }
    if (s.condition == nullptr) return *all;
    auto* kept = heap_.New(std::vector<Value>());
    for (const Value& item : *all) {
      context_.Step();
      Empty(s.slots);
      Assign(s.target, item);
      if (Evaluate(*s.condition).Truthy()) kept->push_back(item);
    }
    heap_.Charge(kept->capacity() * sizeof(Value));
    return *kept;
  }

  void Assign(const Target& target, const Value& value) {
    switch (target.kind) {
      case Target::Kind::kVariable:
        Slot(target.slot) = value;
        return;
      case Target::Kind::kNamespace:
        return AssignAttribute(target, value);
      case Target::Kind::kTuple:
        break;
    }
    std::vector<Value> storage;
    const std::vector<Value>& items = Iterate(value, heap_, storage);
    if (items.size() != target.parts.size()) {
      Fail(items.size() < target.parts.size()
               ? "not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
                     std::to_string(items.size()) + ")"
               : "too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
  }

  void AssignAttribute(const Target& target, const Value& value) {
    const Value space = Lookup(target.ref);
    if (!space.is(Kind::kNamespace)) Fail("cannot assign attribute on non-namespace object");
    if (target.attribute.starts_with('_')) {
      Fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
           std::string(target.attribute) + "'. Please rename the attribute.");
    }
    heap_.Charge(sizeof(Dict::Entry));
    space.space().attributes.Set(Value::Text(target.attribute), value);
  }

  void ExecuteGeneration(const Statement& s, std::string& out) {
    const Value text = Capture(s);
    const std::string_view written = result_.text;
    counted_ += CountCodePoints(written.substr(counted_bytes_));
    counted_bytes_ = written.size();
    result_.generation_spans.emplace_back(counted_, counted_ + CountCodePoints(text.text()));
    Write(text.text(), out);
  }

  // ----- expressions

  Value Lookup(const NameRef& ref) const {
    for (const NameRef::Slot& slot : ref.slots) {
      const Frame* frame = frame_;
      for (int hop = 0; hop < slot.hops; ++hop) frame = frame->outer;
      const Value& value = frame->slots[static_cast<size_t>(slot.index)];
      if (!value.is_unbound()) return value;
    }
    const Value& global = globals_[static_cast<size_t>(ref.global)];
    return global.is_unbound() ? Value::UndefinedName(ref.name) : global;
  }

  Value Evaluate(const Expression& e) {
    Enter(e.line);
    const Value value = EvaluateKind(e);
    Leave();
    return value;
  }

  Value EvaluateKind(const Expression& e) {
    switch (e.kind) {
      case E::kConstant:
        return e.constant;
      case E::kName:
        return Lookup(e.ref);
      case E::kList:
        return heap_.List(EvaluateAll(e.items));
      case E::kTuple:
        return heap_.Tuple(EvaluateAll(e.items));
      case E::kDict:
        return EvaluateDict(e);
      case E::kAttribute:
        return EvaluateAttribute(e);
      case E::kItem: {
        const Value object = Evaluate(*e.left);
        return GetItem(context_, object, Evaluate(*e.right));
      }
      case E::kSlice:
        return EvaluateSlice(e);
      case E::kCall:
        return EvaluateCall(e, nullptr);
      case E::kFilter:
        return ApplyFilter(e, Evaluate(*e.left));
      case E::kTest: {
        const Value value = Evaluate(*e.left);
        return Value::Bool(e.test(context_, value, EvaluateArguments(e)));
      }
      case E::kNot:
        return Value::Bool(!Evaluate(*e.left).Truthy());
      case E::kNegate:
        return Negate(Evaluate(*e.left));
      case E::kPositive: {
        const Value value = Evaluate(*e.left);
        return Negate(Negate(value));
      }
      case E::kSum:
        return EvaluateSum(e);
      case E::kConcat:
        return EvaluateConcat(e);
      case E::kBinary: {
        const Value left = Evaluate(*e.left);
        return Arithmetic(e.operators[0], left, Evaluate(*e.right), heap_);
      }
      case E::kCompare:
        return EvaluateCompare(e);
      case E::kAnd:
      case E::kOr:
        return EvaluateLogic(e);
      case E::kConditional:
        if (Evaluate(*e.right).Truthy()) return Evaluate(*e.left);
        if (e.items[0] != nullptr) return Evaluate(*e.items[0]);
        return Value::UndefinedBecause("the inline if-expression evaluated to false and no else section was defined.");
    }
    return Value();
  }

  std::vector<Value> EvaluateAll(const std::vector<Expression*>& items) {
    std::vector<Value> values;
    values.reserve(items.size());
    for (const Expression* item : items) values.push_back(Evaluate(*item));
    return values;
  }

  Value EvaluateDict(const Expression& e) {
    Dict* dict = heap_.NewDict();
    heap_.Charge(e.items.size() * sizeof(Dict::Entry));
    for (size_t i = 0; i < e.items.size(); i += 2) {
      const Value key = Evaluate(*e.items[i]);
      dict->Set(key, Evaluate(*e.items[i + 1]));
    }
    return Value::Of(dict);
  }

  Value EvaluateAttribute(const Expression& e) {
    const Value object = Evaluate(*e.left);
    // The common cases first; what they do not find is treated in full.
    if (object.is_dict() && !e.may_be_method) {
      if (const Value* item = object.dict().Find(e.name)) return *item;
    } else if (object.is(Kind::kNamespace)) {
      if (const Value* item = object.space().attributes.Find(e.name)) return *item;
    }
    return GetAttribute(context_, object, e.name);
  }

  Value EvaluateSlice(const Expression& e) {
    const Value object = Evaluate(*e.left);
    Value parts[3] = {Value::None(), Value::None(), Value::None()};
    for (int i = 0; i < 3; ++i) {
      if (e.items[static_cast<size_t>(i)] != nullptr) parts[i] = Evaluate(*e.items[static_cast<size_t>(i)]);
    }
    return Slice(object, parts[0], parts[1], parts[2], heap_);
  }

  Value EvaluateSum(const Expression& e) {
    Value sum = Evaluate(*e.items[0]);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      const Value next = Evaluate(*e.items[i + 1]);
      const bool add = e.operators[i] == Operator::kAdd;
      sum = add ? Add(sum, next, heap_) : Arithmetic(Operator::kSubtract, sum, next, heap_);
    }
    return sum;
  }

  Value EvaluateConcat(const Expression& e) {
    std::string text;
    for (const Value& value : EvaluateAll(e.items)) AppendText(value, heap_, text);
    return heap_.Text(text);
  }

  Value EvaluateCompare(const Expression& e) {
    Value left = Evaluate(*e.items[0]);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      const Value right = Evaluate(*e.items[i + 1]);
      if (!Holds(e.operators[i], left, right, heap_)) return Value::Bool(false);
      left = right;
    }
    return Value::Bool(true);
  }

  Value EvaluateLogic(const Expression& e) {
    const bool stop_at = e.kind == E::kOr;
    Value value;
    for (const Expression* item : e.items) {
      value = Evaluate(*item);
      if (value.Truthy() == stop_at) break;
    }
    return value;
  }

  // ----- calls

  Arguments EvaluateArguments(const Expression& e) {
    Arguments arguments;
    if (!e.items.empty()) arguments.positional = EvaluateAll(e.items);
    for (const Keyword& keyword : e.keywords) arguments.named.emplace_back(keyword.name, Evaluate(*keyword.value));
    if (e.star != nullptr) {
      std::vector<Value> storage;
      const std::vector<Value>& items = Iterate(Evaluate(*e.star), heap_, storage);
      heap_.Charge(items.size() * sizeof(Value));
      arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
    }
    if (e.double_star != nullptr) {
      const Value dict = Evaluate(*e.double_star);
      if (!dict.is_dict()) Fail("argument after ** must be a mapping");
      for (const auto& [key, value] : dict.dict().entries()) {
        if (!key.is_text()) Fail("keywords must be strings");
        arguments.named.emplace_back(key.text(), value);
      }
    }
    return arguments;
  }

  Value ApplyFilter(const Expression& e, const Value& value) {
    if (e.filter == nullptr) Fail("No filter named '" + std::string(e.name) + "' found.");
    return e.filter(context_, value, EvaluateArguments(e));
  }

  // `filters` is a chain whose innermost value is missing, or null.
  Value Filtered(const Expression* filters, const Value& value) {
    if (filters == nullptr) return value;
    return ApplyFilter(*filters, Filtered(filters->left, value));
  }

  Value EvaluateCall(const Expression& e, const Macro* caller) {
    if (e.left->kind == E::kAttribute && e.left->may_be_method) {
      const Value object = Evaluate(*e.left->left);
      const MethodEntry* method = FindMethod(object, e.left->name);
      if (method != nullptr && (context_.mutable_sandbox || !method->mutates)) {
        return method->call(context_, object, EvaluateArguments(e));
      }
      return Call(GetAttribute(context_, object, e.left->name), EvaluateArguments(e), caller);
    }
    const Value callee = Evaluate(*e.left);
    return Call(callee, EvaluateArguments(e), caller);
  }

  Value Call(const Value& callee, const Arguments& arguments, const Macro* caller) {
    switch (callee.kind()) {
      case Kind::kMethod:
        return callee.method().entry->call(context_, callee.method().self, arguments);
      case Kind::kFunction:
        return callee.function().call(context_, arguments);
      case Kind::kMacro:
        return CallMacro(callee.macro(), arguments, caller);
      case Kind::kUndefined:
        Fail(callee.UndefinedMessage());
      default:
        Fail(std::string("'") + callee.TypeName() + "' object is not callable");
    }
  }

  Value CallMacro(const Macro& macro, const Arguments& arguments, const Macro* caller) {
    const Statement& s = *macro.definition;
    Frame* frame =
        heap_.New(Frame{macro.frame, std::vector<Value>(static_cast<size_t>(s.frame_size), Value::Unbound())});
    heap_.Charge(static_cast<size_t>(s.frame_size) * sizeof(Value));
    Frame* before = frame_;
    frame_ = frame;
    BindArguments(s, arguments, caller);
    std::string text;
    Execute(s.body, text);
    frame_ = before;
    return heap_.Text(text);
  }

  void BindArguments(const Statement& s, const Arguments& arguments, const Macro* caller) {
    const std::string name = s.kind == S::kMacro ? "macro '" + std::string(s.text) + "'" : "the caller";
    const size_t given = arguments.positional.size();
    if (given > s.parameters.size() && s.varargs_slot < 0) {
      Fail(name + " takes not more than " + std::to_string(s.parameters.size()) + " argument(s)");
    }
    for (size_t i = 0; i < std::min(given, s.parameters.size()); ++i) {
      Slot(s.parameters[i].slot) = arguments.positional[i];
    }
    BindNamed(s, arguments, name, caller);
    if (s.varargs_slot >= 0) {
      const auto from = static_cast<int64_t>(std::min(given, s.parameters.size()));
      Slot(s.varargs_slot) = heap_.Tuple({arguments.positional.begin() + from, arguments.positional.end()});
    }
    for (const Parameter& parameter : s.parameters) {
      if (!Slot(parameter.slot).is_unbound()) continue;
      Slot(parameter.slot) = parameter.fallback != nullptr ? Evaluate(*parameter.fallback) : NotProvided(parameter);
    }
  }

  Value NotProvided(const Parameter& parameter) {
    const std::string message = "parameter '" + std::string(parameter.name) + "' was not provided";
    return Value::UndefinedBecause(heap_.Text(message).text());
  }

  void BindNamed(const Statement& s, const Arguments& arguments, const std::string& name, const Macro* caller) {
    Dict* rest = s.kwargs_slot >= 0 ? heap_.NewDict() : nullptr;
    for (const auto& [keyword, value] : arguments.named) {
      const auto parameter = std::find_if(s.parameters.begin(), s.parameters.end(),
                                          [key = keyword](const Parameter& p) { return p.name == key; });
      if (parameter != s.parameters.end()) {
        if (!Slot(parameter->slot).is_unbound()) {
          Fail(name + " got multiple values for argument '" + std::string(keyword) + "'");
        }
        Slot(parameter->slot) = value;
      } else if (keyword == "caller" && s.caller_slot >= 0) {
        Slot(s.caller_slot) = value;
      } else if (rest != nullptr) {
        rest->Set(Value::Text(keyword), value);
      } else {
        Fail(name + " takes no keyword argument '" + std::string(keyword) + "'");
      }
    }
    if (rest != nullptr) Slot(s.kwargs_slot) = Value::Of(rest);
    if (caller == nullptr) return;
    if (s.caller_slot < 0) Fail(name + " takes no keyword argument 'caller'");
    Slot(s.caller_slot) = Value::Of(caller);
  }

  const Program& program_;
  const std::vector<Value>& globals_;
  const Limits& limits_;
  Context& context_;
  Heap& heap_;
  Frame* frame_ = nullptr;
  Evaluation result_;
  int line_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  // Code points in the first bytes of the result, for generation spans.
  int64_t counted_ = 0;
  size_t counted_bytes_ = 0;
};

}  // namespace

Evaluation Evaluate(const Program& program, const std::vector<Value>& globals, const Limits& limits, Context& context) {
  return Evaluator(program, globals, limits, context).Run();
}

}  // namespace lockstep::text::jinja
