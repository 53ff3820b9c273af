// Filters, tests and methods.
#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <string_view>

#include "text/jinja/evaluator.h"

namespace lockstep::text::jinja {
namespace {

constexpr char kPythonSpace[] = " \t\n\r\f\v";

[[noreturn]] void Fail(const std::string& message) { throw TemplateError{message, 0}; }

const Value* Argument(const Arguments& arguments, size_t index, const char* name) {
  if (index < arguments.positional.size()) return &arguments.positional[index];
  return Find(arguments.named, name);
}

const std::string& Text(const Value& value, const std::string& what) {
  if (value.string() == nullptr) Fail(what + " needs a str, not " + value.TypeName());
  return *value.string();
}

std::string TextArgument(const Arguments& arguments, size_t index, const char* name, const std::string& fallback) {
  const Value* value = Argument(arguments, index, name);
  return value == nullptr || value->is_none() ? fallback : Text(*value, name);
}

int64_t IntegerArgument(const Arguments& arguments, size_t index, const char* name, int64_t fallback) {
  const Value* value = Argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return fallback;
  if (const auto* i = value->As<int64_t>()) return *i;
  Fail(std::string(name) + " must be an int");
}

std::string Strip(const std::string& text, const std::string& characters, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end && characters.find(text[begin]) != std::string::npos) ++begin;
  while (right && end > begin && characters.find(text[end - 1]) != std::string::npos) --end;
  return text.substr(begin, end - begin);
}

std::string MapCharacters(std::string text, int (*change)(int)) {
  for (char& c : text) c = static_cast<char>(change(static_cast<unsigned char>(c)));  // ASCII only
  return text;
}

std::string ReplaceAll(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
  }
  return out.append(text, at, std::string::npos);
}

List Split(const std::string& text, const std::string* separator, int64_t limit) {
  List parts;
  if (separator != nullptr) {
    if (separator->empty()) Fail("split needs a separator that is not empty");
    size_t at = 0;
    for (size_t found = text.find(*separator);
         found != std::string::npos && (limit < 0 || static_cast<int64_t>(parts.size()) < limit);
         found = text.find(*separator, at)) {
      parts.push_back(Value::Of(text.substr(at, found - at)));
      at = found + separator->size();
    }
    parts.push_back(Value::Of(text.substr(at)));
    return parts;
  }
  size_t at = text.find_first_not_of(kPythonSpace);
  while (at != std::string::npos) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Value::Of(Strip(text.substr(at), kPythonSpace, false, true)));
      break;
    }
    const size_t end = std::min(text.find_first_of(kPythonSpace, at), text.size());
    parts.push_back(Value::Of(text.substr(at, end - at)));
    at = text.find_first_not_of(kPythonSpace, end);
  }
  return parts;
}

std::string Title(const std::string& text) {
  std::string out = text;
  bool start = true;
  for (char& c : out) {
    const auto u = static_cast<unsigned char>(c);
    c = static_cast<char>(start ? std::toupper(u) : std::tolower(u));
    start = !std::isalpha(u);
  }
  return out;
}

std::string Join(const Value& value, const Arguments& arguments) {
  const std::string separator = TextArgument(arguments, 0, "d", "");
  const Value* attribute = Argument(arguments, 1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : Iterate(value)) {
    if (!first) out += separator;
    first = false;
    out += attribute == nullptr ? item.ToText() : GetItem(item, *attribute).ToText();
  }
  return out;
}

std::string Indent(const std::string& text, const Arguments& arguments) {
  const std::string pad(static_cast<size_t>(std::clamp<int64_t>(IntegerArgument(arguments, 0, "width", 4), 0, 1000)),
                        ' ');
  const Value* first = Argument(arguments, 1, "first");
  std::string out = first != nullptr && first->Truthy() ? pad : "";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    // Blank lines stay blank.
    if (text[i] == '\n' && i + 1 < text.size() && text[i + 1] != '\n') out += pad;
  }
  return out;
}

List DictItems(const Dict& dict) {
  List items;
  for (const auto& [key, value] : dict) items.push_back(Value::Of(List{Value::Of(key), value}));
  return items;
}

int64_t Length(const Value& value) {
  if (const std::string* text = value.string()) {
    return std::count_if(text->begin(), text->end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  if (value.list() != nullptr) return static_cast<int64_t>(value.list()->size());
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->size());
  Fail(std::string(value.TypeName()) + " has no length");
}

// select, reject, selectattr, rejectattr: items whose (attribute's) test holds, or does not.
List Select(const Value& value, const Arguments& arguments, bool by_attribute, bool keep) {
  Arguments rest;
  const size_t test_index = by_attribute ? 1 : 0;
  if (arguments.positional.size() > test_index + 1) {
    rest.positional.assign(arguments.positional.begin() + static_cast<int64_t>(test_index) + 1,
                           arguments.positional.end());
  }
  List out;
  for (const Value& item : Iterate(value)) {
    const Value subject = by_attribute ? GetItem(item, arguments.positional.at(0)) : item;
    const bool holds = arguments.positional.size() > test_index
                           ? ApplyTest(Text(arguments.positional[test_index], "a test"), subject, rest)
                           : subject.Truthy();
    if (holds == keep) out.push_back(item);
  }
  return out;
}

List Map(const Value& value, const Arguments& arguments) {
  List out;
  const Value* attribute = Find(arguments.named, "attribute");
  for (const Value& item : Iterate(value)) {
    if (attribute != nullptr) {
      out.push_back(GetItem(item, *attribute));
      continue;
    }
    if (arguments.positional.empty()) Fail("map needs a filter or an attribute");
    Arguments rest;
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    out.push_back(ApplyFilter(Text(arguments.positional[0], "map"), item, rest));
  }
  return out;
}

List Sorted(const Value& value, const Arguments& arguments) {
  List items = Iterate(value);
  const Value* attribute = Find(arguments.named, "attribute");
  const Value* reverse = Argument(arguments, 0, "reverse");
  const bool descending = reverse != nullptr && reverse->Truthy();
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    const int order = attribute == nullptr ? Compare(a, b) : Compare(GetItem(a, *attribute), GetItem(b, *attribute));
    return descending ? order > 0 : order < 0;
  });
  return items;
}

List Unique(const Value& value) {
  List out;
  for (const Value& item : Iterate(value)) {
    if (std::none_of(out.begin(), out.end(), [&](const Value& seen) { return Equal(seen, item); })) out.push_back(item);
  }
  return out;
}

Value Extreme(const Value& value, int sign) {
  const List items = Iterate(value);
  if (items.empty()) return Value();
  return *std::min_element(items.begin(), items.end(),
                           [&](const Value& a, const Value& b) { return sign * Compare(a, b) < 0; });
}

Value ToInteger(const Value& value, const Arguments& arguments) {
  if (const auto* i = value.As<int64_t>()) return Value::Of(*i);
  if (const auto* d = value.As<double>()) return Value::Of(static_cast<int64_t>(*d));
  if (const auto* b = value.As<bool>()) return Value::Of(int64_t{*b ? 1 : 0});
  if (const std::string* text = value.string()) {
    char* end = nullptr;
    const int64_t parsed = std::strtoll(text->c_str(), &end, 10);
    if (!text->empty() && *end == '\0') return Value::Of(parsed);
  }
  return Value::Of(IntegerArgument(arguments, 0, "default", 0));
}

using Filter = std::function<Value(const Value&, const Arguments&)>;

const std::map<std::string, Filter, std::less<>>& Filters() {
  static const auto* filters = new std::map<std::string, Filter, std::less<>>{
      {"length", [](const Value& v, const Arguments&) { return Value::Of(Length(v)); }},
      {"count", [](const Value& v, const Arguments&) { return Value::Of(Length(v)); }},
      {"trim",
       [](const Value& v, const Arguments& a) {
         return Value::Of(Strip(v.ToText(), TextArgument(a, 0, "chars", kPythonSpace), true, true));
       }},
      {"string", [](const Value& v, const Arguments&) { return Value::Of(v.ToText()); }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"upper", [](const Value& v, const Arguments&) { return Value::Of(MapCharacters(v.ToText(), std::toupper)); }},
      {"lower", [](const Value& v, const Arguments&) { return Value::Of(MapCharacters(v.ToText(), std::tolower)); }},
      {"title", [](const Value& v, const Arguments&) { return Value::Of(Title(v.ToText())); }},
      {"capitalize",
       [](const Value& v, const Arguments&) {
         std::string text = MapCharacters(v.ToText(), std::tolower);
         if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
         return Value::Of(text);
       }},
      {"default",
       [](const Value& v, const Arguments& a) {
         const Value* boolean = Argument(a, 1, "boolean");
         const bool missing = v.is_undefined() || (boolean != nullptr && boolean->Truthy() && !v.Truthy());
         const Value* fallback = Argument(a, 0, "default_value");
         return !missing ? v : fallback != nullptr ? *fallback : Value::Of(std::string());
       }},
      {"tojson",
       [](const Value& v, const Arguments& a) {
         return Value::Of(v.ToJson(static_cast<int>(IntegerArgument(a, 99, "indent", -1))));
       }},
      {"join", [](const Value& v, const Arguments& a) { return Value::Of(Join(v, a)); }},
      {"items",
       [](const Value& v, const Arguments&) {
         if (v.is_undefined()) return Value::Of(List{});
         if (v.dict() == nullptr) Fail("items needs a dict");
         return Value::Of(DictItems(*v.dict()));
       }},
      {"dictsort",
       [](const Value& v, const Arguments&) {
         if (v.dict() == nullptr) Fail("dictsort needs a dict");
         Dict sorted = *v.dict();
         std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
           return MapCharacters(a.first, std::tolower) < MapCharacters(b.first, std::tolower);
         });
         return Value::Of(DictItems(sorted));
       }},
      {"list", [](const Value& v, const Arguments&) { return Value::Of(Iterate(v)); }},
      {"first",
       [](const Value& v, const Arguments&) {
         const List items = Iterate(v);
         return items.empty() ? Value() : items.front();
       }},
      {"last",
       [](const Value& v, const Arguments&) {
         const List items = Iterate(v);
         return items.empty() ? Value() : items.back();
       }},
      {"reverse",
       [](const Value& v, const Arguments&) {
         List items = Iterate(v);
         std::reverse(items.begin(), items.end());
         return Value::Of(std::move(items));
       }},
      {"replace",
       [](const Value& v, const Arguments& a) {
         return Value::Of(ReplaceAll(v.ToText(), TextArgument(a, 0, "old", ""), TextArgument(a, 1, "new", "")));
       }},
      {"indent", [](const Value& v, const Arguments& a) { return Value::Of(Indent(v.ToText(), a)); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return Value::Of(Select(v, a, true, true)); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return Value::Of(Select(v, a, true, false)); }},
      {"select", [](const Value& v, const Arguments& a) { return Value::Of(Select(v, a, false, true)); }},
      {"reject", [](const Value& v, const Arguments& a) { return Value::Of(Select(v, a, false, false)); }},
      {"map", [](const Value& v, const Arguments& a) { return Value::Of(Map(v, a)); }},
      {"sort", [](const Value& v, const Arguments& a) { return Value::Of(Sorted(v, a)); }},
      {"unique", [](const Value& v, const Arguments&) { return Value::Of(Unique(v)); }},
      {"min", [](const Value& v, const Arguments&) { return Extreme(v, 1); }},
      {"max", [](const Value& v, const Arguments&) { return Extreme(v, -1); }},
      {"int", [](const Value& v, const Arguments& a) { return ToInteger(v, a); }},
      {"abs",
       [](const Value& v, const Arguments&) {
         if (const auto* i = v.As<int64_t>()) return Value::Of(*i < 0 ? -*i : *i);
         if (const auto* d = v.As<double>()) return Value::Of(*d < 0 ? -*d : *d);
         Fail("abs needs a number");
       }},
  };
  return *filters;
}

Value CallStringMethod(const std::string& text, const std::string& name, const Arguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    return Value::Of(
        Strip(text, TextArgument(arguments, 0, "chars", kPythonSpace), name != "rstrip", name != "lstrip"));
  }
  if (name == "split") {
    const Value* separator = Argument(arguments, 0, "sep");
    const bool given = separator != nullptr && !separator->is_none();
    return Value::Of(
        Split(text, given ? &Text(*separator, "split") : nullptr, IntegerArgument(arguments, 1, "maxsplit", -1)));
  }
  if (name == "startswith" || name == "endswith") {
    const Value* what = Argument(arguments, 0, "prefix");
    if (what == nullptr) Fail(name + " needs a str");
    for (const Value& option : what->list() != nullptr ? *what->list() : List{*what}) {
      const std::string& part = Text(option, name);
      if (name == "startswith" ? text.starts_with(part) : text.ends_with(part)) return Value::Of(true);
    }
    return Value::Of(false);
  }
  if (name == "upper") return Value::Of(MapCharacters(text, std::toupper));
  if (name == "lower") return Value::Of(MapCharacters(text, std::tolower));
  if (name == "title") return Value::Of(Title(text));
  if (name == "replace")
    return Value::Of(ReplaceAll(text, TextArgument(arguments, 0, "old", ""), TextArgument(arguments, 1, "new", "")));
  if (name == "find") return Value::Of(static_cast<int64_t>(text.find(TextArgument(arguments, 0, "sub", ""))));
  Fail("str has no method '" + name + "'");
}

Value CallDictMethod(Dict& dict, const std::string& name, const Arguments& arguments) {
  if (name == "items") return Value::Of(DictItems(dict));
  if (name == "keys" || name == "values") {
    List list;
    for (const auto& [key, value] : dict) list.push_back(name == "keys" ? Value::Of(key) : value);
    return Value::Of(std::move(list));
  }
  if (name == "get" || name == "pop") {
    if (arguments.positional.empty()) Fail(name + " needs a key");
    const std::string key = arguments.positional[0].ToText();
    const Value* found = Find(dict, key);
    if (found == nullptr) return arguments.positional.size() > 1 ? arguments.positional[1] : Value::NoneValue();
    const Value value = *found;
    if (name == "pop") std::erase_if(dict, [&](const auto& entry) { return entry.first == key; });
    return value;
  }
  if (name == "update") {
    if (const Dict* other = arguments.positional.empty() ? nullptr : arguments.positional[0].dict()) {
      for (const auto& [key, value] : *other) Assign(dict, key, value);
    }
    return Value::NoneValue();
  }
  Fail("dict has no method '" + name + "'");
}

}  // namespace

Value ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto it = Filters().find(name);
  if (it == Filters().end()) Fail("unknown filter '" + name + "'");
  return it->second(value, arguments);
}

bool ApplyTest(const std::string& name, const Value& value, const Arguments& arguments) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.string() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence") return value.list() != nullptr || value.string() != nullptr || value.dict() != nullptr;
  if (name == "iterable") return value.list() != nullptr || value.string() != nullptr || value.dict() != nullptr;
  if (name == "boolean") return value.As<bool>() != nullptr;
  if (name == "true") return value.As<bool>() != nullptr && *value.As<bool>();
  if (name == "false") return value.As<bool>() != nullptr && !*value.As<bool>();
  if (name == "integer") return value.As<int64_t>() != nullptr;
  if (name == "float") return value.As<double>() != nullptr;
  if (name == "number") return value.is_number();
  if (name == "callable") return value.As<std::shared_ptr<Function>>() != nullptr;
  if (name == "odd" || name == "even") {
    const auto* i = value.As<int64_t>();
    if (i == nullptr) Fail(name + " needs an int");
    return (*i % 2 != 0) == (name == "odd");
  }
  const auto argument = [&]() -> const Value& {
    if (arguments.positional.empty()) Fail("the test '" + name + "' needs a value");
    return arguments.positional[0];
  };
  if (name == "equalto" || name == "eq" || name == "==" || name == "sameas") return Equal(value, argument());
  if (name == "ne" || name == "!=") return !Equal(value, argument());
  if (name == "in") {
    for (const Value& item : Iterate(argument())) {
      if (Equal(item, value)) return true;
    }
    return false;
  }
  Fail("unknown test '" + name + "'");
}

Value CallMethod(const Value& object, const std::string& name, const Arguments& arguments) {
  if (object.string() != nullptr) return CallStringMethod(*object.string(), name, arguments);
  if (object.dict() != nullptr) return CallDictMethod(*object.dict(), name, arguments);
  if (List* list = object.list()) {
    if (name == "append" && !arguments.positional.empty()) {
      list->push_back(arguments.positional[0]);
      return Value::NoneValue();
    }
    if (name == "pop" && !list->empty()) {
      const int64_t at = IntegerArgument(arguments, 0, "index", -1);
      const int64_t index = at < 0 ? at + static_cast<int64_t>(list->size()) : at;
      if (index < 0 || index >= static_cast<int64_t>(list->size())) Fail("pop index out of range");
      const Value value = (*list)[static_cast<size_t>(index)];
      list->erase(list->begin() + index);
      return value;
    }
  }
  Fail(std::string(object.TypeName()) + " has no method '" + name + "'");
}

Value GetItem(const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    const Value* found = key.string() != nullptr ? Find(*dict, *key.string()) : nullptr;
    return found != nullptr ? *found : Value(Value::Storage(Undefined{key.ToText()}));
  }
  if (const auto* index = key.As<int64_t>()) {
    if (const List* list = object.list()) {
      const int64_t size = static_cast<int64_t>(list->size());
      const int64_t at = *index < 0 ? *index + size : *index;
      if (at >= 0 && at < size) return (*list)[static_cast<size_t>(at)];
      return Value(Value::Storage(Undefined{key.ToText()}));
    }
    if (object.string() != nullptr) {
      const List characters = Iterate(object);
      return GetItem(Value::Of(characters), key);
    }
  }
  return Value(Value::Storage(Undefined{key.ToText()}));
}

List Iterate(const Value& value) {
  if (const List* list = value.list()) return *list;
  List items;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : *dict) items.push_back(Value::Of(key));
    return items;
  }
  if (const std::string* text = value.string()) {
    for (size_t i = 0; i < text->size();) {
      size_t end = i + 1;
      while (end < text->size() && (static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80) ++end;
      items.push_back(Value::Of(text->substr(i, end - i)));
      i = end;
    }
    return items;
  }
  if (value.is_undefined()) return items;
  Fail(std::string(value.TypeName()) + " cannot be iterated");
}

Value Slice(const Value& object, const Value* begin, const Value* end, const Value* step) {
  if (object.list() == nullptr && object.string() == nullptr)
    Fail(std::string(object.TypeName()) + " cannot be sliced");
  const List items = Iterate(object);
  const auto integer = [](const Value* value) -> int64_t {
    const auto* i = value->As<int64_t>();
    if (i == nullptr) Fail("a slice needs ints");
    return *i;
  };
  const int64_t size = static_cast<int64_t>(items.size());
  const int64_t stride = step == nullptr ? 1 : integer(step);
  if (stride == 0) Fail("a slice step cannot be 0");
  const auto bound = [&](const Value* value, int64_t fallback) {
    if (value == nullptr) return fallback;
    const int64_t at = integer(value);
    const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t first = bound(begin, stride > 0 ? 0 : size - 1);
  const int64_t last = bound(end, stride > 0 ? size : -1);
  List picked;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride)
    picked.push_back(items[static_cast<size_t>(i)]);
  if (object.list() != nullptr) return Value::Of(std::move(picked));
  std::string text;
  for (const Value& item : picked) text += *item.string();
  return Value::Of(std::move(text));
}

}  // namespace lockstep::text::jinja
