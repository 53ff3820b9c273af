// Python's operators on values: comparison, arithmetic, membership, indexing, iteration.
#ifndef LOCKSTEP_TEXT_JINJA_OPERATORS_H_
#define LOCKSTEP_TEXT_JINJA_OPERATORS_H_

#include <vector>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

enum class Operator : uint8_t {
  kNone,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// Nested values take long to compare, and can be built cheaply: with a heap, the comparison is charged to it.
bool Equal(const Value& a, const Value& b, Heap* heap = nullptr);
// < 0, 0, > 0. Throws for values that Python does not order.
int Compare(const Value& a, const Value& b, Heap* heap = nullptr);
bool Contains(const Value& container, const Value& item, Heap& heap);
bool Holds(Operator comparison, const Value& left, const Value& right, Heap& heap);

Value Add(const Value& left, const Value& right, Heap& heap);
Value Arithmetic(Operator op, const Value& left, const Value& right, Heap& heap);
Value Negate(const Value& value);

// x[key]: the item, else the attribute or method of that name, else undefined.
Value GetItem(Context& context, const Value& object, const Value& key);
// x.name: the attribute or method, else the item of that name, else undefined.
Value GetAttribute(Context& context, const Value& object, std::string_view name);
// x[begin:end:step]; absent parts are none.
Value Slice(const Value& object, const Value& begin, const Value& end, const Value& step, Heap& heap);

// What a loop over the value visits. Sequences give their own vector, others fill `storage`. A generator is used up.
const std::vector<Value>& Iterate(const Value& value, Heap& heap, std::vector<Value>& storage);
bool IsIterable(const Value& value);
int64_t Length(const Value& value);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_OPERATORS_H_
