// Values of the template language, with Python's semantics.
//
// A value is a small handle (16 bytes, copied freely). What it points to lives in the Heap of one rendering, in the
// compiled template (texts of literals) or in the caller's JSON (texts of messages), and none of that moves or goes
// away while the rendering lasts. So nothing is counted or collected: the heap drops everything at the end, cycles too.
//
// Lists, dicts and namespaces are shared by reference, as in Python. Texts are UTF-8 and immutable.
//
// Thread contract: a Heap and what it holds belong to one thread.
#ifndef LOCKSTEP_TEXT_JINJA_VALUE_H_
#define LOCKSTEP_TEXT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::text::jinja {

// Why a template could not be compiled or rendered. Thrown inside the library, caught at its border (template.h).
struct TemplateError {
  std::string message;
  int line = 0;  // 0: not known yet; the evaluator fills it in
};
[[noreturn]] void Fail(std::string message);

enum class Kind : uint8_t {
  kUnbound,    // a variable that has no value yet; never seen by a template
  kUndefined,  // text: its name, or the whole message
  kNone,
  kBool,
  kInteger,
  kFloat,
  kBigInteger,  // beyond int64: its digits, which can be printed and compared, not computed with
  kText,
  kSequence,
  kDict,
  kNamespace,
  kGenerator,
  kLoop,
  kMethod,
  kFunction,
  kMacro,
};

class Value;
struct Sequence;
class Dict;
struct Namespace;
struct Generator;
struct Loop;
struct BoundMethod;
struct NativeFunction;
struct Macro;

class Value {
 public:
  Value() : Value(Kind::kUndefined) {}
  static Value Unbound() { return Value(Kind::kUnbound); }
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Integer(int64_t value);
  static Value Float(double value);
  // The texts must outlive the rendering.
  static Value Text(std::string_view text) { return WithText(Kind::kText, text); }
  static Value Markup(std::string_view text);
  static Value BigInteger(std::string_view digits) { return WithText(Kind::kBigInteger, digits); }
  // "'name' is undefined".
  static Value UndefinedName(std::string_view name) { return WithText(Kind::kUndefined, name); }
  // `message` is the whole error.
  static Value UndefinedBecause(std::string_view message);
  static Value Of(Sequence* sequence);
  static Value Of(Dict* dict);
  static Value Of(Namespace* space);
  static Value Of(Generator* generator);
  static Value Of(Loop* loop);
  static Value Of(const BoundMethod* method);
  static Value Of(const NativeFunction* function);
  static Value Of(const Macro* macro);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_unbound() const { return kind_ == Kind::kUnbound; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_markup() const { return kind_ == Kind::kText && flag_ != 0; }  // HTML-safe text: + escapes the other side
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_integer() const { return kind_ == Kind::kInteger; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_number() const { return kind_ >= Kind::kBool && kind_ <= Kind::kBigInteger; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_sequence() const { return kind_ == Kind::kSequence; }

  // Each only for its kind.
  bool boolean() const { return data_.boolean; }
  int64_t integer() const { return data_.integer; }
  double real() const { return data_.real; }
  std::string_view text() const { return {data_.text, size_}; }  // also digits, names of undefined
  Sequence& sequence() const { return *data_.sequence; }
  Dict& dict() const { return *data_.dict; }
  Namespace& space() const { return *data_.space; }
  Generator& generator() const { return *data_.generator; }
  Loop& loop() const { return *data_.loop; }
  const BoundMethod& method() const { return *data_.method; }
  const NativeFunction& function() const { return *data_.function; }
  const Macro& macro() const { return *data_.macro; }

  // Integer of a bool or integer; double of any number but a big one.
  int64_t AsInteger() const { return is_bool() ? data_.boolean : data_.integer; }
  double AsDouble() const { return is_float() ? data_.real : static_cast<double>(AsInteger()); }

  bool Truthy() const;
  // The error of using an undefined value.
  std::string UndefinedMessage() const;
  // Python's name of the type: "str", "list", ...
  const char* TypeName() const;
  // The very same object (Python's "is").
  bool SameAs(const Value& other) const;

 private:
  explicit Value(Kind kind) : kind_(kind) { data_.integer = 0; }
  static Value WithText(Kind kind, std::string_view text);

  Kind kind_;
  uint8_t flag_ = 0;  // markup; undefined: text is the whole message
  uint32_t size_ = 0;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const char* text;
    Sequence* sequence;
    Dict* dict;
    Namespace* space;
    Generator* generator;
    Loop* loop;
    const BoundMethod* method;
    const NativeFunction* function;
    const Macro* macro;
  } data_;
};

enum class SequenceType : uint8_t { kList, kTuple, kRange, kDictKeys, kDictValues, kDictItems };

struct Sequence {
  SequenceType type = SequenceType::kList;
  std::vector<Value> items;
};

// Keeps the order of insertion, which tojson and loops show. Keys are hashable values (texts, numbers, none, tuples).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
  // Replaces or appends.
  void Set(const Value& key, const Value& value);
  // False if the key was absent.
  bool Remove(const Value& key);
  void Clear();

 private:
  size_t IndexOf(const Value& key) const;  // size() if absent
  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;  // open addressing over entries_, once there are many; 0: free, else index + 1
  void Rebuild();
};
// The hash that `==` agrees with: 1, 1.0 and true are one key. Throws for lists, dicts and other mutable values.
uint64_t HashOf(const Value& value);

struct Namespace {
  Dict attributes;
};

// What select, map and their like return: it can be walked once, from where it stands.
struct Generator {
  std::vector<Value> items;
  size_t next = 0;
};

// The variable `loop` of one for statement.
struct Loop {
  const std::vector<Value>* items = nullptr;
  size_t index0 = 0;
  int depth = 1;
  std::vector<Value> last_changed;  // for loop.changed()
  bool changed_called = false;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // By position or name; nullptr if not given.
  const Value* Get(size_t index, std::string_view name) const;
  const Value* Named(std::string_view name) const;
};

class Context;

// A function of the environment, such as raise_exception.
struct NativeFunction {
  const char* name;
  Value (*call)(Context&, const Arguments&);
};

// Owner of everything one rendering creates. Counts bytes, so that a hostile template ends with an error.
class Heap {
 public:
  explicit Heap(int64_t max_bytes) : left_(max_bytes) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Throws when the limit is passed.
  void Charge(size_t bytes) {
    left_ -= static_cast<int64_t>(bytes);
    if (left_ < 0) [[unlikely]]
      Exhausted();
  }
  char* NewText(size_t size);
  Value Text(std::string_view text);
  // Concatenation. Appending to the newest text again and again costs what is appended, not the whole.
  std::string_view Concat(std::string_view left, std::string_view right);

  Value NewSequence(SequenceType type, std::vector<Value> items);
  Value List(std::vector<Value> items) { return NewSequence(SequenceType::kList, std::move(items)); }
  Value Tuple(std::vector<Value> items) { return NewSequence(SequenceType::kTuple, std::move(items)); }
  Value NewGenerator(std::vector<Value> items);
  Dict* NewDict();
  Namespace* NewNamespace();
  Loop* NewLoop();
  // Of any type; lives as long as the heap.
  template <typename T>
  T* New(T value) {
    Charge(sizeof(T) + 16);
    auto* holder = new Holder<T>(std::move(value));
    holder->next = objects_;
    objects_ = holder;
    return &holder->object;
  }

  // Texts are borrowed from `json`, which must outlive the rendering.
  Value FromJson(const Json& json);

 private:
  struct Object {
    virtual ~Object() = default;
    Object* next = nullptr;
  };
  template <typename T>
  struct Holder : Object {
    explicit Holder(T value) : object(std::move(value)) {}
    T object;
  };
  [[noreturn]] static void Exhausted();

  int64_t left_;
  Object* objects_ = nullptr;
  std::vector<char*> blocks_;
  char* free_ = nullptr;  // in the newest block
  char* end_ = nullptr;
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_VALUE_H_
