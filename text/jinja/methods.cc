#include "text/jinja/methods.h"

#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/context.h"
#include "text/jinja/operators.h"

namespace lockstep::text::jinja {
namespace {

std::vector<Value>& Items(const Value& self) { return self.sequence().items; }

const Value& Needed(const Arguments& arguments, size_t index, const char* what) {
  if (index >= arguments.positional.size()) Fail(std::string(what) + ": an argument is missing");
  return arguments.positional[index];
}

Value Index(Context& context, const Value& self, const Arguments& arguments) {
  const Value& wanted = Needed(arguments, 0, "index");
  const std::vector<Value>& items = Items(self);
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], wanted, &context.heap)) return Value::Integer(static_cast<int64_t>(i));
  }
  Fail("the value is not in the list");
}

Value Count(Context& context, const Value& self, const Arguments& arguments) {
  const Value& wanted = Needed(arguments, 0, "count");
  return Value::Integer(std::count_if(Items(self).begin(), Items(self).end(),
                                      [&](const Value& item) { return Equal(item, wanted, &context.heap); }));
}

Value CopyList(Context& context, const Value& self, const Arguments&) { return context.heap.List(Items(self)); }

Value Append(Context& context, const Value& self, const Arguments& arguments) {
  context.heap.Charge(2 * sizeof(Value));
  Items(self).push_back(Needed(arguments, 0, "append"));
  return Value::None();
}

Value Extend(Context& context, const Value& self, const Arguments& arguments) {
  std::vector<Value> storage;
  const std::vector<Value> added = Iterate(Needed(arguments, 0, "extend"), context.heap, storage);
  context.heap.Charge(2 * added.size() * sizeof(Value));
  Items(self).insert(Items(self).end(), added.begin(), added.end());
  return Value::None();
}

Value Insert(Context& context, const Value& self, const Arguments& arguments) {
  std::vector<Value>& items = Items(self);
  const auto size = static_cast<int64_t>(items.size());
  int64_t at = IntegerArgument(arguments, 0, "index", 0);
  if (at < 0) at += size;
  context.heap.Charge(2 * sizeof(Value));
  context.Step(size / 16);
  items.insert(items.begin() + std::clamp<int64_t>(at, 0, size), Needed(arguments, 1, "insert"));
  return Value::None();
}

Value PopItem(Context& context, const Value& self, const Arguments& arguments) {
  std::vector<Value>& items = Items(self);
  const auto size = static_cast<int64_t>(items.size());
  int64_t at = IntegerArgument(arguments, 0, "index", -1);
  if (at < 0) at += size;
  if (at < 0 || at >= size) Fail(size == 0 ? "pop from empty list" : "pop index out of range");
  context.Step(size / 16);
  const Value item = items[static_cast<size_t>(at)];
  items.erase(items.begin() + at);
  return item;
}

Value RemoveItem(Context& context, const Value& self, const Arguments& arguments) {
  std::vector<Value>& items = Items(self);
  const Value& wanted = Needed(arguments, 0, "remove");
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const Value& item) { return Equal(item, wanted, &context.heap); });
  if (it == items.end()) Fail("list.remove(x): x not in list");
  items.erase(it);
  return Value::None();
}

Value ReverseItems(Context& context, const Value& self, const Arguments&) {
  context.Step(static_cast<int64_t>(Items(self).size()));
  std::reverse(Items(self).begin(), Items(self).end());
  return Value::None();
}

Value ClearItems(Context&, const Value& self, const Arguments&) {
  Items(self).clear();
  return Value::None();
}

Value Get(Context&, const Value& self, const Arguments& arguments) {
  TakesAtMost(arguments, 2, "get");
  const Value* value = self.dict().Find(Needed(arguments, 0, "get"));
  if (value != nullptr) return *value;
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value::None();
}

Value Keys(Context& context, const Value& self, const Arguments&) {
  std::vector<Value> items;
  items.reserve(self.dict().size());
  for (const auto& [key, value] : self.dict().entries()) items.push_back(key);
  return context.heap.NewSequence(SequenceType::kDictKeys, std::move(items));
}

Value Values(Context& context, const Value& self, const Arguments&) {
  std::vector<Value> items;
  items.reserve(self.dict().size());
  for (const auto& [key, value] : self.dict().entries()) items.push_back(value);
  return context.heap.NewSequence(SequenceType::kDictValues, std::move(items));
}

Value DictItems(Context& context, const Value& self, const Arguments&) {
  std::vector<Value> items;
  items.reserve(self.dict().size());
  for (const auto& [key, value] : self.dict().entries()) items.push_back(context.heap.Tuple({key, value}));
  return context.heap.NewSequence(SequenceType::kDictItems, std::move(items));
}

Value CopyDict(Context& context, const Value& self, const Arguments&) {
  context.heap.Charge(self.dict().size() * sizeof(Dict::Entry));
  return Value::Of(context.heap.New(Dict(self.dict())));
}

void SetCharged(Context& context, Dict& dict, const Value& key, const Value& value) {
  context.heap.Charge(2 * sizeof(Dict::Entry));
  dict.Set(key, value);
}

Value PopKey(Context& context, const Value& self, const Arguments& arguments) {
  const Value& key = Needed(arguments, 0, "pop");
  context.Step(static_cast<int64_t>(self.dict().size()));
  const Value* found = self.dict().Find(key);
  if (found == nullptr) {
    if (arguments.positional.size() > 1) return arguments.positional[1];
    Fail("pop: the key is not in the dict");
  }
  const Value value = *found;
  self.dict().Remove(key);
  return value;
}

Value Update(Context& context, const Value& self, const Arguments& arguments) {
  for (const Value& other : arguments.positional) {
    if (!other.is_dict()) Fail("update needs a dict");
    const Dict copy = other.dict();  // it may be the same dict
    for (const auto& [key, value] : copy.entries()) SetCharged(context, self.dict(), key, value);
  }
  for (const auto& [name, value] : arguments.named) SetCharged(context, self.dict(), Value::Text(name), value);
  return Value::None();
}

Value SetDefault(Context& context, const Value& self, const Arguments& arguments) {
  const Value& key = Needed(arguments, 0, "setdefault");
  if (const Value* found = self.dict().Find(key)) return *found;
  const Value value = arguments.positional.size() > 1 ? arguments.positional[1] : Value::None();
  SetCharged(context, self.dict(), key, value);
  return value;
}

Value ClearDict(Context&, const Value& self, const Arguments&) {
  self.dict().Clear();
  return Value::None();
}

const MethodTable& ListMethods() {
  static const auto* table = new MethodTable{
      {"index", {Index}},
      {"count", {Count}},
      {"copy", {CopyList}},
      {"append", {Append, true}},
      {"extend", {Extend, true}},
      {"insert", {Insert, true}},
      {"pop", {PopItem, true}},
      {"remove", {RemoveItem, true}},
      {"reverse", {ReverseItems, true}},
      {"clear", {ClearItems, true}},
  };
  return *table;
}
const MethodTable& TupleMethods() {
  static const auto* table = new MethodTable{{"index", {Index}}, {"count", {Count}}};
  return *table;
}
const MethodTable& DictMethods() {
  static const auto* table = new MethodTable{
      {"get", {Get}},
      {"keys", {Keys}},
      {"values", {Values}},
      {"items", {DictItems}},
      {"copy", {CopyDict}},
      {"pop", {PopKey, true}},
      {"update", {Update, true}},
      {"setdefault", {SetDefault, true}},
      {"clear", {ClearDict, true}},
  };
  return *table;
}

const MethodTable* TableOf(const Value& object) {
  switch (object.kind()) {
    case Kind::kText:
      return &TextMethods();
    case Kind::kDict:
      return &DictMethods();
    case Kind::kSequence:
      if (object.sequence().type == SequenceType::kList) return &ListMethods();
      return object.sequence().type <= SequenceType::kRange ? &TupleMethods() : nullptr;
    default:
      return nullptr;
  }
}

Value Cycle(Context&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("no items for cycling given");
  return arguments.positional[self.loop().index0 % arguments.positional.size()];
}

Value Changed(Context& context, const Value& self, const Arguments& arguments) {
  Loop& loop = self.loop();
  const Value now = context.heap.Tuple(arguments.positional);
  const bool same = loop.changed_called && Equal(now, context.heap.Tuple(loop.last_changed), &context.heap);
  loop.last_changed = arguments.positional;
  loop.changed_called = true;
  return Value::Bool(!same);
}

Value Neighbour(Context& context, const Loop& loop, int64_t offset) {
  const int64_t at = static_cast<int64_t>(loop.index0) + offset;
  if (at >= 0 && at < static_cast<int64_t>(loop.items->size())) return (*loop.items)[static_cast<size_t>(at)];
  return Value::UndefinedBecause(
      context.heap.Text(offset < 0 ? "there is no previous item" : "there is no next item").text());
}

}  // namespace

bool IsMethodName(std::string_view name) {
  return TextMethods().count(name) + ListMethods().count(name) + DictMethods().count(name) != 0;
}

const MethodEntry* FindMethod(const Value& object, std::string_view name) {
  const MethodTable* table = TableOf(object);
  if (table == nullptr) return nullptr;
  const auto it = table->find(name);
  return it == table->end() ? nullptr : &it->second;
}

Value UnsafeMethod(Context& context, const Value& object, std::string_view name) {
  const std::string message =
      "access to attribute '" + std::string(name) + "' of '" + object.TypeName() + "' object is unsafe.";
  return Value::UndefinedBecause(context.heap.Text(message).text());
}

Value MethodOf(Context& context, const Value& object, std::string_view name) {
  const MethodEntry* entry = FindMethod(object, name);
  if (entry == nullptr) return Value::Unbound();
  if (entry->mutates && !context.mutable_sandbox) return UnsafeMethod(context, object, name);
  return Value::Of(context.heap.New(BoundMethod{object, name, entry}));
}

Value LoopAttribute(Context& context, const Value& self, std::string_view name) {
  static const MethodEntry kCycle{Cycle}, kChanged{Changed};
  const Loop& loop = self.loop();
  const auto index0 = static_cast<int64_t>(loop.index0);
  const auto length = static_cast<int64_t>(loop.items->size());
  if (name == "index0") return Value::Integer(index0);
  if (name == "index") return Value::Integer(index0 + 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(index0 + 1 == length);
  if (name == "previtem") return Neighbour(context, loop, -1);
  if (name == "nextitem") return Neighbour(context, loop, 1);
  if (name == "length") return Value::Integer(length);
  if (name == "revindex") return Value::Integer(length - index0);
  if (name == "revindex0") return Value::Integer(length - index0 - 1);
  if (name == "depth") return Value::Integer(loop.depth);
  if (name == "depth0") return Value::Integer(loop.depth - 1);
  if (name == "cycle") return Value::Of(context.heap.New(BoundMethod{self, name, &kCycle}));
  if (name == "changed") return Value::Of(context.heap.New(BoundMethod{self, name, &kChanged}));
  return Value::Unbound();
}

}  // namespace lockstep::text::jinja
