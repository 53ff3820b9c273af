// Functions of the environment, as transformers sets it up.
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace lockstep::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Value RaiseException(Context& context, const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("raise_exception needs a message");
  Fail(std::string(ToText(arguments.positional[0], context.heap).text()));
}

// dict(mapping or pairs, name=value ...)
void FillDict(Context& context, const Arguments& arguments, Dict& dict) {
  TakesAtMost({arguments.positional, {}}, 1, "dict");
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      context.heap.Charge(source.dict().size() * sizeof(Dict::Entry));
      for (const auto& [key, value] : source.dict().entries()) dict.Set(key, value);
      continue;
    }
    std::vector<Value> storage;
    for (const Value& pair : Iterate(source, context.heap, storage)) {
      std::vector<Value> pair_storage;
      const std::vector<Value>& parts = Iterate(pair, context.heap, pair_storage);
      if (parts.size() != 2) Fail("dict needs pairs of a key and a value");
      dict.Set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(Value::Text(name), value);
}

Value MakeDict(Context& context, const Arguments& arguments) {
  Dict* dict = context.heap.NewDict();
  FillDict(context, arguments, *dict);
  return Value::Of(dict);
}

Value MakeNamespace(Context& context, const Arguments& arguments) {
  Namespace* space = context.heap.NewNamespace();
  FillDict(context, arguments, space->attributes);
  for (const auto& [name, value] : space->attributes.entries()) {
    if (name.is_text() && name.text().starts_with('_')) {
      Fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
           std::string(name.text()) + "'. Please rename the attribute.");
    }
  }
  return Value::Of(space);
}

Value Range(Context& context, const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) Fail("range expected one to three arguments");
  for (size_t i = 0; i < count; ++i) {
    const Value& value = arguments.positional[i];
    if (!value.is_integer() && !value.is_bool()) {
      Fail(std::string("'") + value.TypeName() + "' object cannot be interpreted as an integer");
    }
    bounds[count == 1 ? 1 : i] = value.AsInteger();
  }
  const int64_t step = bounds[2];
  if (step == 0) Fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    items.push_back(Value::Integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return context.heap.NewSequence(SequenceType::kRange, std::move(items));
}

Value StrftimeNow(Context& context, const Arguments& arguments) {
  const std::string format(TextArgument(arguments, 0, "format", "strftime_now"));
  std::tm now = {};
  if (context.now.has_value()) {
    now = *context.now;
  } else {
    const std::time_t time = std::time(nullptr);
    localtime_r(&time, &now);
  }
  char buffer[1024];
  if (format.size() > 200) Fail("strftime_now: the format is too long");
  return context.heap.Text({buffer, std::strftime(buffer, sizeof(buffer), format.c_str(), &now)});
}

constexpr NativeFunction kFunctions[] = {
    {"dict", MakeDict}, {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
    {"range", Range},   {"strftime_now", StrftimeNow},
};

}  // namespace

const NativeFunction* FindFunction(std::string_view name) {
  for (const NativeFunction& function : kFunctions) {
    if (name == function.name) return &function;
  }
  return nullptr;
}

}  // namespace lockstep::text::jinja
