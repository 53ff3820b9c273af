#include "text/jinja/value.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace lockstep::text::jinja {
namespace {

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  for (int precision = 1; precision <= 17; ++precision) {
    std::snprintf(buffer, sizeof(buffer), "%.*g", precision, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string text = buffer;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\\':
        out += "\\\\";
        break;
      default:
        if (c == quote) out += '\\';
        out += c;
    }
  }
  return out + quote;
}

double AsDouble(const Value& value) {
  if (const auto* b = value.As<bool>()) return *b ? 1 : 0;
  if (const auto* i = value.As<int64_t>()) return static_cast<double>(*i);
  return *value.As<double>();
}

void DumpString(const std::string& text, std::string& out) {
  out += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Dump(const Value& value, int indent, int depth, std::string& out) {
  const auto newline = [&](int level) {
    if (indent >= 0) out += "\n" + std::string(static_cast<size_t>(indent) * level, ' ');
  };
  const char* comma = indent >= 0 ? "," : ", ";
  if (const List* list = value.list()) {
    out += '[';
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out += comma;
      newline(depth + 1);
      Dump((*list)[i], indent, depth + 1, out);
    }
    if (!list->empty()) newline(depth);
    out += ']';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (size_t i = 0; i < dict->size(); ++i) {
      if (i > 0) out += comma;
      newline(depth + 1);
      DumpString((*dict)[i].first, out);
      out += ": ";
      Dump((*dict)[i].second, indent, depth + 1, out);
    }
    if (!dict->empty()) newline(depth);
    out += '}';
  } else if (const std::string* text = value.string()) {
    DumpString(*text, out);
  } else if (const bool* b = value.As<bool>()) {
    out += *b ? "true" : "false";
  } else if (value.is_none()) {
    out += "null";
  } else if (value.is_undefined()) {
    throw TemplateError{"an undefined value is not JSON", 0};
  } else {
    out += value.ToText();
  }
}

}  // namespace

Value Value::FromJson(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Of(json.get<bool>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return Of(json.get<int64_t>());
    case Json::value_t::number_float:
      return Of(json.get<double>());
    case Json::value_t::string:
      return Of(json.get<std::string>());
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.push_back(FromJson(item));
      return Of(std::move(list));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.emplace_back(key, FromJson(item));
      return Of(std::move(dict));
    }
    default:
      return NoneValue();
  }
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return AsDouble(*this) != 0;
  if (const std::string* text = string()) return !text->empty();
  if (const List* items = list()) return !items->empty();
  if (const Dict* items = dict()) return !items->empty();
  return true;
}

std::string Value::ToText() const {
  if (const std::string* text = string()) return *text;
  if (is_undefined()) return "";
  return Repr();
}

std::string Value::Repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* b = As<bool>()) return *b ? "True" : "False";
  if (const int64_t* i = As<int64_t>()) return std::to_string(*i);
  if (const double* d = As<double>()) return FloatText(*d);
  if (const std::string* text = string()) return Quoted(*text);
  std::string out;
  if (const List* items = list()) {
    for (const Value& item : *items) out += (out.empty() ? "" : ", ") + item.Repr();
    return "[" + out + "]";
  }
  if (const Dict* items = dict()) {
    for (const auto& [key, item] : *items) out += (out.empty() ? "" : ", ") + Quoted(key) + ": " + item.Repr();
    return "{" + out + "}";
  }
  return "<function>";
}

std::string Value::ToJson(int indent) const {
  std::string out;
  Dump(*this, indent, 0, out);
  return out;
}

const char* Value::TypeName() const {
  static constexpr const char* kNames[] = {"undefined", "None", "bool", "int",     "float",
                                           "str",       "list", "dict", "function"};
  return kNames[storage_.index()];
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return AsDouble(a) == AsDouble(b);
  if (a.storage().index() != b.storage().index()) return false;
  if (a.is_none() || a.is_undefined()) return true;
  if (a.string() != nullptr) return *a.string() == *b.string();
  if (const List* x = a.list()) {
    const List* y = b.list();
    if (x->size() != y->size()) return false;
    for (size_t i = 0; i < x->size(); ++i) {
      if (!Equal((*x)[i], (*y)[i])) return false;
    }
    return true;
  }
  if (const Dict* x = a.dict()) {
    if (x->size() != b.dict()->size()) return false;
    for (const auto& [key, item] : *x) {
      const Value* other = Find(*b.dict(), key);
      if (other == nullptr || !Equal(item, *other)) return false;
    }
    return true;
  }
  return false;
}

int Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const double x = AsDouble(a), y = AsDouble(b);
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.string() != nullptr && b.string() != nullptr) return a.string()->compare(*b.string());
  throw TemplateError{std::string("cannot order ") + a.TypeName() + " and " + b.TypeName(), 0};
}

const Value* Find(const Dict& dict, const std::string& key) {
  for (const auto& [name, value] : dict) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Assign(Dict& dict, const std::string& key, Value value) {
  for (auto& [name, old] : dict) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  dict.emplace_back(key, std::move(value));
}

}  // namespace lockstep::text::jinja
