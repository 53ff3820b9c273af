#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "text/jinja/context.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_text.h"
#include "text/jinja/str_format.h"

namespace lockstep::text::jinja {
namespace {

constexpr int kMaxDepth = 500;

void Descend(int depth, size_t items, Heap* heap) {
  if (depth > kMaxDepth) Fail("values are nested too deeply to be compared");
  if (heap != nullptr) heap->Charge(items * sizeof(Value) + 1);
}

bool IsTuple(const Sequence& sequence) { return sequence.type == SequenceType::kTuple; }

bool EqualAt(const Value& a, const Value& b, Heap* heap, int depth);

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, Heap* heap, int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!EqualAt(a[i], b[i], heap, depth + 1)) return false;
  }
  return true;
}

bool EqualDicts(const Dict& a, const Dict& b, Heap* heap, int depth) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && EqualAt(entry.second, *other, heap, depth + 1);
  });
}

bool EqualAt(const Value& a, const Value& b, Heap* heap, int depth) {
  if (a.is_text()) return b.is_text() && a.text() == b.text();
  if (a.is_number()) {
    if (!b.is_number()) return false;
    if (a.is(Kind::kBigInteger) || b.is(Kind::kBigInteger)) return a.kind() == b.kind() && a.text() == b.text();
    return a.is_float() || b.is_float() ? a.AsDouble() == b.AsDouble() : a.AsInteger() == b.AsInteger();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_sequence()) {
    Descend(depth, std::min(a.sequence().items.size(), b.sequence().items.size()), heap);
    return IsTuple(a.sequence()) == IsTuple(b.sequence()) &&
           EqualItems(a.sequence().items, b.sequence().items, heap, depth);
  }
  if (a.is_dict()) {
    Descend(depth, a.dict().size(), heap);
    return EqualDicts(a.dict(), b.dict(), heap, depth);
  }
  return a.SameAs(b);
}

int Sign(double a, double b) { return a < b ? -1 : a > b ? 1 : 0; }

int CompareAt(const Value& a, const Value& b, Heap* heap, int depth) {
  if (a.is_text() && b.is_text()) return a.text().compare(b.text());
  const bool big = a.is(Kind::kBigInteger) || b.is(Kind::kBigInteger);
  if (a.is_number() && b.is_number() && !big) {
    if (a.is_float() || b.is_float()) return Sign(a.AsDouble(), b.AsDouble());
    return a.AsInteger() < b.AsInteger() ? -1 : a.AsInteger() > b.AsInteger() ? 1 : 0;
  }
  if (a.is_sequence() && b.is_sequence() && IsTuple(a.sequence()) == IsTuple(b.sequence())) {
    const std::vector<Value>&x = a.sequence().items, &y = b.sequence().items;
    const size_t common = std::min(x.size(), y.size());
    Descend(depth, common, heap);
    for (size_t i = 0; i < common; ++i) {
      if (!EqualAt(x[i], y[i], heap, depth + 1)) return CompareAt(x[i], y[i], heap, depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  if (a.is_undefined()) Fail(a.UndefinedMessage());
  if (b.is_undefined()) Fail(b.UndefinedMessage());
  Fail(std::string("'<' not supported between instances of '") + a.TypeName() + "' and '" + b.TypeName() + "'");
}

[[noreturn]] void BadOperands(const char* op, const Value& left, const Value& right) {
  if (left.is_undefined()) Fail(left.UndefinedMessage());
  if (right.is_undefined()) Fail(right.UndefinedMessage());
  Fail(std::string("unsupported operand type(s) for ") + op + ": '" + left.TypeName() + "' and '" + right.TypeName() +
       "'");
}

const char* Symbol(Operator op) {
  static constexpr const char* kSymbols[] = {"", "+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

std::string_view Escaped(const Value& value, Heap& heap) {
  return value.is_markup() ? value.text() : heap.Text(EscapeHtml(value.text())).text();
}

Value Repeat(const Value& value, int64_t count, Heap& heap) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (value.is_text()) {
    const size_t size = value.text().size();
    if (size == 0 || times == 0) return Value::Text({});
    if (times > size_t{1} << 30 || size > (size_t{1} << 32) / times) Fail("a repeated text is too long");
    char* out = heap.NewText(size * times);
    for (size_t i = 0; i < times; ++i) value.text().copy(out + i * size, size);
    return Value::Text({out, size * times});
  }
  const std::vector<Value>& items = value.sequence().items;
  if (times > size_t{1} << 30) Fail("a repeated list is too long");
  heap.Charge(items.size() * times * sizeof(Value));
  std::vector<Value> repeated;
  repeated.reserve(items.size() * times);
  for (size_t i = 0; i < times; ++i) repeated.insert(repeated.end(), items.begin(), items.end());
  return heap.NewSequence(value.sequence().type, std::move(repeated));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  bool overflow = false;
  if (base == 0 || base == 1) return Value::Integer(exponent == 0 ? 1 : base);
  for (; exponent > 0 && !overflow; --exponent) overflow = __builtin_mul_overflow(result, base, &result);
  if (overflow) Fail("an integer is too large");
  return Value::Integer(result);
}

Value IntegerArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kFloorDivide:
    case Operator::kModulo:
      if (b == 0) Fail("integer division or modulo by zero");
      if (b == -1) {  // the one case that overflows: -(2^63) / -1
        overflow = op == Operator::kFloorDivide && __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        result = op == Operator::kFloorDivide ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
      }
      break;
    case Operator::kDivide:
      if (b == 0) Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (overflow) Fail("an integer is too large");
  return Value::Integer(result);
}

Value FloatArithmetic(Operator op, double x, double y) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(x + y);
    case Operator::kSubtract:
      return Value::Float(x - y);
    case Operator::kMultiply:
      return Value::Float(x * y);
    case Operator::kPower:
      return Value::Float(std::pow(x, y));
    default:
      break;
  }
  if (y == 0) Fail("float division by zero");
  if (op == Operator::kDivide) return Value::Float(x / y);
  double remainder = std::fmod(x, y);
  if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
  return Value::Float(op == Operator::kModulo ? remainder : std::floor((x - remainder) / y + 0.5));
}

std::string ObjectName(const Value& object) {
  return object.is_none() ? "'None'" : std::string("'") + object.TypeName() + " object'";
}

Value UndefinedItem(Context& context, const Value& object, const Value& key) {
  std::string message;
  if (key.is_text()) {
    message = ObjectName(object) + " has no attribute ";
  } else {
    message = std::string(object.TypeName()) + " object has no element ";
  }
  if (key.is_text() || key.is_integer()) {
    if (key.is_text()) {
      AppendRepr(key.text(), message);
    } else {
      message += std::to_string(key.integer());
    }
  }
  return Value::UndefinedBecause(context.heap.Text(message).text());
}

int64_t Normalised(int64_t index, int64_t length) { return index < 0 ? index + length : index; }

// What the item protocol (obj[key]) finds; unbound if nothing.
Value FindItem(Context& context, const Value& object, const Value& key) {
  if (object.is_dict()) {
    // An unhashable key finds nothing here.
    if (key.is_sequence() || key.is_dict()) return Value::Unbound();
    const Value* item = key.is_text() ? object.dict().Find(key.text()) : object.dict().Find(key);
    return item == nullptr ? Value::Unbound() : *item;
  }
  if (!key.is_integer() && !key.is_bool()) return Value::Unbound();
  if (object.is_sequence()) {
    const Sequence& sequence = object.sequence();
    if (sequence.type > SequenceType::kRange) return Value::Unbound();  // views have no items
    const auto length = static_cast<int64_t>(sequence.items.size());
    const int64_t index = Normalised(key.AsInteger(), length);
    return index < 0 || index >= length ? Value::Unbound() : sequence.items[static_cast<size_t>(index)];
  }
  if (object.is_text()) {
    context.Step(static_cast<int64_t>(object.text().size() / 16));
    const int64_t length = CountCodePoints(object.text());
    const int64_t index = Normalised(key.AsInteger(), length);
    if (index < 0 || index >= length) return Value::Unbound();
    const size_t at = ByteOffset(object.text(), index);
    size_t size = 0;
    DecodeAt(object.text(), at, &size);
    return Value::Text(object.text().substr(at, size));
  }
  return Value::Unbound();
}

// Attributes proper: methods, namespace attributes, loop variables; unbound if there is none.
Value FindAttribute(Context& context, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) {
    const Value* value = object.space().attributes.Find(name);
    return value == nullptr ? Value::Unbound() : *value;
  }
  if (object.is(Kind::kLoop)) return LoopAttribute(context, object, name);
  return MethodOf(context, object, name);
}

Value SliceItems(const Value& object, int64_t begin, int64_t count, int64_t step, Heap& heap) {
  const Sequence& sequence = object.sequence();
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) items.push_back(sequence.items[static_cast<size_t>(begin + i * step)]);
  return heap.NewSequence(sequence.type, std::move(items));
}

Value SliceText(std::string_view text, int64_t begin, int64_t count, int64_t step, Heap& heap) {
  if (count == 0) return Value::Text({});
  if (step == 1) {
    const size_t from = ByteOffset(text, begin);
    return Value::Text(text.substr(from, ByteOffset(text.substr(from), count)));
  }
  heap.Charge(text.size());
  std::vector<size_t> starts;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    starts.push_back(at);
    DecodeAt(text, at, &length);
  }
  starts.push_back(text.size());
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(begin + i * step);
    out.append(text.substr(starts[at], starts[at + 1] - starts[at]));
  }
  return heap.Text(out);
}

int64_t SliceBound(const Value& bound, int64_t length, int64_t low, int64_t high, int64_t fallback) {
  if (bound.is_none()) return fallback;
  if (!bound.is_integer() && !bound.is_bool()) Fail("slice indices must be integers or None");
  return std::clamp(Normalised(bound.AsInteger(), length), low, high);
}

}  // namespace

bool Equal(const Value& a, const Value& b, Heap* heap) { return EqualAt(a, b, heap, 0); }
int Compare(const Value& a, const Value& b, Heap* heap) { return CompareAt(a, b, heap, 0); }

bool Contains(const Value& container, const Value& item, Heap& heap) {
  if (container.is_text()) {
    if (!item.is_text()) {
      Fail(std::string("'in <string>' requires string as left operand, not ") + item.TypeName());
    }
    heap.Charge(container.text().size() / 8);
    return container.text().find(item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.dict().Find(item) != nullptr;
  if (!IsIterable(container)) Fail(std::string("argument of type '") + container.TypeName() + "' is not iterable");
  std::vector<Value> storage;
  const std::vector<Value>& items = Iterate(container, heap, storage);
  heap.Charge(items.size() * sizeof(Value));
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return Equal(other, item, &heap); });
}

bool Holds(Operator comparison, const Value& left, const Value& right, Heap& heap) {
  switch (comparison) {
    case Operator::kEqual:
      return Equal(left, right, &heap);
    case Operator::kNotEqual:
      return !Equal(left, right, &heap);
    case Operator::kLess:
      return Compare(left, right, &heap) < 0;
    case Operator::kLessEqual:
      return Compare(left, right, &heap) <= 0;
    case Operator::kGreater:
      return Compare(left, right, &heap) > 0;
    case Operator::kGreaterEqual:
      return Compare(left, right, &heap) >= 0;
    case Operator::kIn:
      return Contains(right, left, heap);
    case Operator::kNotIn:
      return !Contains(right, left, heap);
    default:
      Fail("not a comparison");
  }
}

Value Add(const Value& left, const Value& right, Heap& heap) {
  if (left.is_text() && right.is_text()) {
    if (left.is_markup() || right.is_markup()) {
      return Value::Markup(heap.Concat(Escaped(left, heap), Escaped(right, heap)));
    }
    return Value::Text(heap.Concat(left.text(), right.text()));
  }
  if (left.is_text() && !right.is_undefined()) {
    Fail(std::string("can only concatenate str (not \"") + right.TypeName() + "\") to str");
  }
  if (left.is_sequence() && right.is_sequence() && left.sequence().type == right.sequence().type &&
      left.sequence().type <= SequenceType::kTuple) {
    std::vector<Value> items;
    items.reserve(left.sequence().items.size() + right.sequence().items.size());
    items = left.sequence().items;
    items.insert(items.end(), right.sequence().items.begin(), right.sequence().items.end());
    return heap.NewSequence(left.sequence().type, std::move(items));
  }
  return Arithmetic(Operator::kAdd, left, right, heap);
}

Value Arithmetic(Operator op, const Value& left, const Value& right, Heap& heap) {
  if (left.is_number() && right.is_number()) {
    if (left.is(Kind::kBigInteger) || right.is(Kind::kBigInteger)) Fail("an integer is too large");
    if (left.is_float() || right.is_float()) return FloatArithmetic(op, left.AsDouble(), right.AsDouble());
    return IntegerArithmetic(op, left.AsInteger(), right.AsInteger());
  }
  const auto repeatable = [](const Value& value) {
    return value.is_text() || (value.is_sequence() && value.sequence().type <= SequenceType::kTuple);
  };
  const auto countable = [](const Value& value) { return value.is_integer() || value.is_bool(); };
  if (op == Operator::kMultiply && repeatable(left) && countable(right)) return Repeat(left, right.AsInteger(), heap);
  if (op == Operator::kMultiply && countable(left) && repeatable(right)) return Repeat(right, left.AsInteger(), heap);
  if (op == Operator::kModulo && left.is_text()) return PercentFormat(left.text(), right, heap);
  BadOperands(Symbol(op), left, right);
}

Value Negate(const Value& value) {
  if (value.is_float()) return Value::Float(-value.real());
  if (value.is_integer() || value.is_bool()) return IntegerArithmetic(Operator::kSubtract, 0, value.AsInteger());
  if (value.is_undefined()) Fail(value.UndefinedMessage());
  Fail(std::string("bad operand type for unary -: '") + value.TypeName() + "'");
}

Value GetItem(Context& context, const Value& object, const Value& key) {
  if (object.is_undefined()) Fail(object.UndefinedMessage());
  Value found = FindItem(context, object, key);
  if (found.is_unbound() && key.is_text()) found = FindAttribute(context, object, key.text());
  return found.is_unbound() ? UndefinedItem(context, object, key) : found;
}

Value GetAttribute(Context& context, const Value& object, std::string_view name) {
  if (object.is_undefined()) Fail(object.UndefinedMessage());
  const Value key = Value::Text(name);
  Value found = FindAttribute(context, object, name);
  if (found.is_unbound()) found = FindItem(context, object, key);
  return found.is_unbound() ? UndefinedItem(context, object, key) : found;
}

Value Slice(const Value& object, const Value& begin, const Value& end, const Value& step, Heap& heap) {
  if (object.is_undefined()) Fail(object.UndefinedMessage());
  const bool text = object.is_text();
  if (!text && !(object.is_sequence() && object.sequence().type <= SequenceType::kRange)) {
    Fail(std::string("'") + object.TypeName() + "' object cannot be sliced");
  }
  if (!step.is_none() && !step.is_integer() && !step.is_bool()) Fail("slice indices must be integers or None");
  const int64_t stride = step.is_none() ? 1 : step.AsInteger();
  if (stride == 0) Fail("slice step cannot be zero");
  if (text) heap.Charge(object.text().size() / 16);
  const int64_t length = Length(object);
  int64_t count = 0, from = 0;
  if (stride > 0) {
    from = SliceBound(begin, length, 0, length, 0);
    const int64_t to = SliceBound(end, length, 0, length, length);
    if (to > from) count = (to - from - 1) / stride + 1;
  } else {
    from = SliceBound(begin, length, -1, length - 1, length - 1);
    const int64_t to = SliceBound(end, length, -1, length - 1, -1);
    // -(stride + 1) + 1 stands for -stride, which may not exist
    if (to < from)
      count = static_cast<int64_t>(static_cast<uint64_t>(from - to - 1) / (0 - static_cast<uint64_t>(stride))) + 1;
  }
  return text ? SliceText(object.text(), from, count, stride, heap) : SliceItems(object, from, count, stride, heap);
}

const std::vector<Value>& Iterate(const Value& value, Heap& heap, std::vector<Value>& storage) {
  switch (value.kind()) {
    case Kind::kSequence:
      return value.sequence().items;
    case Kind::kUndefined:
      return storage;
    case Kind::kDict:
      heap.Charge(value.dict().size() * sizeof(Value));
      for (const auto& [key, item] : value.dict().entries()) storage.push_back(key);
      return storage;
    case Kind::kText:
      heap.Charge(value.text().size() * sizeof(Value));
      for (size_t at = 0, length = 0; at < value.text().size(); at += length) {
        DecodeAt(value.text(), at, &length);
        storage.push_back(Value::Text(value.text().substr(at, length)));
      }
      return storage;
    case Kind::kGenerator: {
      Generator& generator = value.generator();
      storage.assign(generator.items.begin() + static_cast<int64_t>(generator.next), generator.items.end());
      generator.next = generator.items.size();
      return storage;
    }
    default:
      Fail(std::string("'") + value.TypeName() + "' object is not iterable");
  }
}

bool IsIterable(const Value& value) {
  return value.is_sequence() || value.is_undefined() || value.is_dict() || value.is_text() ||
         value.is(Kind::kGenerator);
}

int64_t Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return CountCodePoints(value.text());
    case Kind::kSequence:
      return static_cast<int64_t>(value.sequence().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop().items->size());
    default:
      Fail(std::string("object of type '") + value.TypeName() + "' has no len()");
  }
}

}  // namespace lockstep::text::jinja
