// Values of the template language, with Python's semantics. Lists, dicts and namespaces are shared by reference, as in
// Python.
#ifndef LOCKSTEP_TEXT_JINJA_VALUE_H_
#define LOCKSTEP_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::text::jinja {

class Value;
using List = std::vector<Value>;
// Keeps the order of insertion, which tojson and loops show.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Arguments {
  std::vector<Value> positional;
  Dict named;
};
// A macro or built-in function. Throws TemplateError.
using Function = std::function<Value(const Arguments&)>;

// Why a template could not be rendered; caught at the library's border (template.h).
struct TemplateError {
  std::string message;
  int line = 0;
};

struct Undefined {
  std::string name;  // for the error message
};
struct None {};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>,
                               std::shared_ptr<Dict>, std::shared_ptr<Function>>;
  Value() : storage_(Undefined{}) {}
  explicit Value(Storage storage) : storage_(std::move(storage)) {}
  static Value NoneValue() { return Value(Storage(None{})); }
  static Value Of(bool value) { return Value(Storage(value)); }
  static Value Of(int64_t value) { return Value(Storage(value)); }
  static Value Of(double value) { return Value(Storage(value)); }
  static Value Of(std::string value) { return Value(Storage(std::move(value))); }
  static Value Of(List value) { return Value(Storage(std::make_shared<List>(std::move(value)))); }
  static Value Of(Dict value) { return Value(Storage(std::make_shared<Dict>(std::move(value)))); }
  static Value Of(Function value) { return Value(Storage(std::make_shared<Function>(std::move(value)))); }
  static Value FromJson(const Json& json);

  const Storage& storage() const { return storage_; }
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&storage_);
  }
  const std::string* string() const { return As<std::string>(); }
  List* list() const { return Pointer<List>(); }
  Dict* dict() const { return Pointer<Dict>(); }
  bool is_undefined() const { return As<Undefined>() != nullptr; }
  bool is_none() const { return As<None>() != nullptr; }
  bool is_number() const { return As<int64_t>() != nullptr || As<double>() != nullptr || As<bool>() != nullptr; }

  bool Truthy() const;
  // What {{ value }} prints: str() of Python; lists and dicts print as repr.
  std::string ToText() const;
  std::string Repr() const;
  // json.dumps with separators ", " and ": ", non-ASCII kept; indent < 0: one line.
  std::string ToJson(int indent) const;
  const char* TypeName() const;

 private:
  template <typename T>
  T* Pointer() const {
    const auto* shared = As<std::shared_ptr<T>>();
    return shared == nullptr ? nullptr : shared->get();
  }
  Storage storage_;
};

bool Equal(const Value& a, const Value& b);
// -1, 0, 1; throws TemplateError for values that Python does not order.
int Compare(const Value& a, const Value& b);
const Value* Find(const Dict& dict, const std::string& key);
void Assign(Dict& dict, const std::string& key, Value value);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_VALUE_H_
