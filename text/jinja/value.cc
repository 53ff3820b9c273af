#include "text/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "text/jinja/operators.h"

namespace lockstep::text::jinja {
namespace {

constexpr size_t kBlockBytes = 16 << 10;
// Dicts of this size and more get a hash table.
constexpr size_t kTableFrom = 12;

uint64_t Mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15u;
  return a ^ (a >> 29);
}

uint64_t HashText(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

void Fail(std::string message) { throw TemplateError{std::move(message), 0}; }

Value Value::WithText(Kind kind, std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) Fail("a text is too long");
  Value value(kind);
  value.data_.text = text.data();
  value.size_ = static_cast<uint32_t>(text.size());
  return value;
}
Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.data_.boolean = value;
  return result;
}
Value Value::Integer(int64_t value) {
  Value result(Kind::kInteger);
  result.data_.integer = value;
  return result;
}
Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.data_.real = value;
  return result;
}
Value Value::Markup(std::string_view text) {
  Value value = Text(text);
  value.flag_ = 1;
  return value;
}
Value Value::UndefinedBecause(std::string_view message) {
  Value value = UndefinedName(message);
  value.flag_ = 1;
  return value;
}
Value Value::Of(Sequence* sequence) {
  Value value(Kind::kSequence);
  value.data_.sequence = sequence;
  return value;
}
Value Value::Of(Dict* dict) {
  Value value(Kind::kDict);
  value.data_.dict = dict;
  return value;
}
Value Value::Of(Namespace* space) {
  Value value(Kind::kNamespace);
  value.data_.space = space;
  return value;
}
Value Value::Of(Generator* generator) {
  Value value(Kind::kGenerator);
  value.data_.generator = generator;
  return value;
}
Value Value::Of(Loop* loop) {
  Value value(Kind::kLoop);
  value.data_.loop = loop;
  return value;
}
Value Value::Of(const BoundMethod* method) {
  Value value(Kind::kMethod);
  value.data_.method = method;
  return value;
}
Value Value::Of(const NativeFunction* function) {
  Value value(Kind::kFunction);
  value.data_.function = function;
  return value;
}
Value Value::Of(const Macro* macro) {
  Value value(Kind::kMacro);
  value.data_.macro = macro;
  return value;
}

bool Value::Truthy() const {
  switch (kind_) {
    case Kind::kUnbound:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return data_.boolean;
    case Kind::kInteger:
      return data_.integer != 0;
    case Kind::kFloat:
      return data_.real != 0;
    case Kind::kText:
      return size_ != 0;
    case Kind::kSequence:
      return !data_.sequence->items.empty();
    case Kind::kDict:
      return data_.dict->size() != 0;
    default:
      return true;
  }
}

std::string Value::UndefinedMessage() const {
  if (flag_ != 0) return std::string(text());
  return "'" + std::string(text()) + "' is undefined";
}

const char* Value::TypeName() const {
  static constexpr const char* kSequences[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  switch (kind_) {
    case Kind::kUnbound:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return flag_ != 0 ? "Markup" : "str";
    case Kind::kSequence:
      return kSequences[static_cast<int>(data_.sequence->type)];
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kGenerator:
      return "generator";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "Macro";
  }
  return "object";
}

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return data_.boolean == other.data_.boolean;
    case Kind::kText:
    case Kind::kBigInteger:
      return text() == other.text();
    case Kind::kUnbound:
    case Kind::kUndefined:
      return data_.text == other.data_.text;
    default:
      return data_.integer == other.data_.integer;  // number or pointer
  }
}

const Value* Arguments::Get(size_t index, std::string_view name) const {
  return index < positional.size() ? &positional[index] : Named(name);
}
const Value* Arguments::Named(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

// ----- dicts

uint64_t HashOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kText:
      return HashText(value.text());
    case Kind::kBool:
    case Kind::kInteger:
      return Mix(static_cast<uint64_t>(value.AsInteger()), 1);
    case Kind::kFloat: {
      const double real = value.real();
      const bool whole = std::floor(real) == real && std::abs(real) < 9.2e18;
      return whole ? Mix(static_cast<uint64_t>(static_cast<int64_t>(real)), 1) : Mix(std::bit_cast<uint64_t>(real), 2);
    }
    case Kind::kNone:
      return 3;
    case Kind::kUndefined:
      return 5;
    case Kind::kBigInteger:
      return HashText(value.text()) + 1;
    case Kind::kSequence:
      if (value.sequence().type == SequenceType::kTuple) {
        uint64_t hash = 4;
        for (const Value& item : value.sequence().items) {
          if (item.is_sequence()) Fail("a tuple in a tuple cannot be a key");  // hashing must stay cheap
          hash = Mix(hash, HashOf(item));
        }
        return hash;
      }
      break;
    default:
      break;
  }
  Fail(std::string("unhashable type: '") + value.TypeName() + "'");
}

const Value* Dict::Find(std::string_view key) const {
  if (table_.empty()) {
    for (const auto& [name, value] : entries_) {
      if (name.is_text() && name.text() == key) return &value;
    }
    return nullptr;
  }
  return Find(Value::Text(key));
}

const Value* Dict::Find(const Value& key) const {
  const size_t index = IndexOf(key);
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

size_t Dict::IndexOf(const Value& key) const {
  if (table_.empty()) {
    if (!key.is_text()) HashOf(key);  // an unhashable key is an error here too
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (Equal(entries_[i].first, key)) return i;
    }
    return entries_.size();
  }
  const size_t mask = table_.size() - 1;
  for (size_t slot = HashOf(key) & mask; table_[slot] != 0; slot = (slot + 1) & mask) {
    if (Equal(entries_[table_[slot] - 1].first, key)) return table_[slot] - 1;
  }
  return entries_.size();
}

void Dict::Set(const Value& key, const Value& value) {
  const size_t index = IndexOf(key);
  if (index < entries_.size()) {
    entries_[index].second = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (entries_.size() < kTableFrom) return;
  if (2 * entries_.size() > table_.size()) {
    Rebuild();
    return;
  }
  const size_t mask = table_.size() - 1;
  size_t slot = HashOf(key) & mask;
  while (table_[slot] != 0) slot = (slot + 1) & mask;
  table_[slot] = static_cast<uint32_t>(entries_.size());
}

bool Dict::Remove(const Value& key) {
  const size_t index = IndexOf(key);
  if (index == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<int64_t>(index));
  Rebuild();
  return true;
}

void Dict::Clear() {
  entries_.clear();
  table_.clear();
}

void Dict::Rebuild() {
  table_.clear();
  if (entries_.size() < kTableFrom) return;
  table_.resize(std::bit_ceil(4 * entries_.size()));
  const size_t mask = table_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = HashOf(entries_[i].first) & mask;
    while (table_[slot] != 0) slot = (slot + 1) & mask;
    table_[slot] = static_cast<uint32_t>(i + 1);
  }
}

// ----- the heap

Heap::~Heap() {
  while (objects_ != nullptr) {
    Object* next = objects_->next;
    delete objects_;
    objects_ = next;
  }
  for (char* block : blocks_) delete[] block;
}

void Heap::Exhausted() { Fail("the template needs too much memory"); }

char* Heap::NewText(size_t size) {
  Charge(size);
  if (static_cast<size_t>(end_ - free_) < size) {
    // Room beyond a large text, so that appending to it is cheap.
    const size_t block = std::max(kBlockBytes, 2 * size);
    blocks_.push_back(new char[block]);
    free_ = blocks_.back();
    end_ = free_ + block;
  }
  char* text = free_;
  free_ += size;
  return text;
}

Value Heap::Text(std::string_view text) {
  if (text.empty()) return Value::Text({});
  char* copy = NewText(text.size());
  std::memcpy(copy, text.data(), text.size());
  return Value::Text({copy, text.size()});
}

std::string_view Heap::Concat(std::string_view left, std::string_view right) {
  if (right.empty()) return left;
  if (left.empty()) return right;
  if (left.data() + left.size() == free_ && static_cast<size_t>(end_ - free_) >= right.size()) {
    Charge(right.size());
    std::memcpy(free_, right.data(), right.size());
    free_ += right.size();
    return {left.data(), left.size() + right.size()};
  }
  char* text = NewText(left.size() + right.size());
  std::memcpy(text, left.data(), left.size());
  std::memcpy(text + left.size(), right.data(), right.size());
  return {text, left.size() + right.size()};
}

Value Heap::NewSequence(SequenceType type, std::vector<Value> items) {
  Charge(items.capacity() * sizeof(Value));
  return Value::Of(New(Sequence{type, std::move(items)}));
}
Value Heap::NewGenerator(std::vector<Value> items) {
  Charge(items.capacity() * sizeof(Value));
  return Value::Of(New(Generator{std::move(items)}));
}
Dict* Heap::NewDict() { return New(Dict()); }
Namespace* Heap::NewNamespace() { return New(Namespace()); }
Loop* Heap::NewLoop() { return New(Loop()); }

Value Heap::FromJson(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return Value::Integer(static_cast<int64_t>(value));
      return Value::BigInteger(Text(std::to_string(value)).text());
    }
    case Json::value_t::number_integer:
      return Value::Integer(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::Text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(FromJson(item));
      return List(std::move(items));
    }
    case Json::value_t::object: {
      Dict* dict = NewDict();
      Charge(json.size() * sizeof(Dict::Entry));
      for (auto it = json.begin(); it != json.end(); ++it) dict->Set(Value::Text(it.key()), FromJson(it.value()));
      return Value::Of(dict);
    }
    default:
      return Value::None();
  }
}

}  // namespace lockstep::text::jinja
