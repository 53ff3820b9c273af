// Filters on texts and numbers, as jinja2 has them; tojson is that of transformers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"
#include "text/jinja/str_format.h"

namespace lockstep::text::jinja {
namespace {

using Items = std::vector<Value>;

// The value as text, printed if need be (jinja's soft_str).
std::string_view Soft(Context& context, const Value& value) { return ToText(value, context.heap).text(); }

// ----- text

Value ToJsonFilter(Context& context, const Value& value, const Arguments& arguments) {
  TakesAtMost(arguments, 4, "tojson");
  if (value.is_undefined()) Fail("Object of type Undefined is not JSON serializable");
  JsonStyle style;
  style.ensure_ascii = FlagArgument(arguments, 0, "ensure_ascii", false);
  style.sort_keys = FlagArgument(arguments, 3, "sort_keys", false);
  const Value* indent = arguments.Get(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (indent->is_text()) {
      style.indent = indent->text();
    } else {
      const int64_t width = IntegerArgument(arguments, 1, "indent", 0);
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' ');
    }
  }
  const Value* separators = arguments.Get(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    Items storage;
    const Items& pair = Iterate(*separators, context.heap, storage);
    if (pair.size() != 2) Fail("separators must be two texts");
    style.item_separator = TextOf(pair[0], "separators");
    style.key_separator = TextOf(pair[1], "separators");
  }
  return context.heap.Text(ToJson(value, style, context.heap));
}

Value String(Context& context, const Value& value, const Arguments&) {
  return value.is_markup() ? value : ToText(value, context.heap);
}
Value Safe(Context& context, const Value& value, const Arguments&) { return Value::Markup(Soft(context, value)); }
Value Escape(Context& context, const Value& value, const Arguments&) {
  if (value.is_markup()) return value;
  return Value::Markup(context.heap.Text(EscapeHtml(Soft(context, value))).text());
}

Value Trim(Context& context, const Value& value, const Arguments& arguments) {
  const Value* characters = arguments.Get(0, "chars");
  if (characters == nullptr || characters->is_none()) {
    return Value::Text(Strip(Soft(context, value), nullptr, true, true));
  }
  const std::string_view set = TextOf(*characters, "trim");
  return Value::Text(Strip(Soft(context, value), &set, true, true));
}

template <std::string (*kChange)(std::string_view)>
Value Change(Context& context, const Value& value, const Arguments&) {
  return context.heap.Text(kChange(Soft(context, value)));
}

// Unlike str.title, words begin after spaces and some punctuation only.
std::string Title(std::string_view text) {
  std::string out;
  bool start = true;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = DecodeAt(text, at, &length);
    const std::string_view raw = text.substr(at, length);
    out += start ? Upper(raw) : Lower(raw);
    start = IsPythonSpace(c) ||
            (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  }
  return out;
}

Value ReplaceFilter(Context& context, const Value& value, const Arguments& arguments) {
  const Value* from = arguments.Get(0, "old");
  const Value* to = arguments.Get(1, "new");
  if (from == nullptr || to == nullptr) Fail("replace needs an old and a new text");
  const std::string_view text = Soft(context, value), old_text = Soft(context, *from), new_text = Soft(context, *to);
  context.heap.Charge((text.size() / std::max<size_t>(old_text.size(), 1) + 1) * new_text.size());
  return context.heap.Text(Replace(text, old_text, new_text, IntegerArgument(arguments, 2, "count", -1)));
}

Value Indent(Context& context, const Value& value, const Arguments& arguments) {
  const Value* width = arguments.Get(0, "width");
  std::string pad;
  if (width != nullptr && width->is_text()) {
    pad = width->text();
  } else {
    pad.assign(static_cast<size_t>(std::clamp<int64_t>(IntegerArgument(arguments, 0, "width", 4), 0, 1000)), ' ');
  }
  const bool first = FlagArgument(arguments, 1, "first", false), blank = FlagArgument(arguments, 2, "blank", false);
  if (value.is_undefined()) Fail(value.UndefinedMessage());
  const std::string text = std::string(TextOf(value, "indent")) + "\n";
  const std::vector<std::string_view> lines = SplitLines(text, false);
  context.heap.Charge(text.size() + lines.size() * pad.size());
  std::string out = first ? pad : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += pad;
    out += lines[i];
  }
  return context.heap.Text(out);
}

Value Format(Context& context, const Value& value, const Arguments& arguments) {
  Value values = context.heap.Tuple(arguments.positional);
  if (!arguments.named.empty()) {
    Dict* dict = context.heap.NewDict();
    for (const auto& [name, item] : arguments.named) dict->Set(Value::Text(name), item);
    values = Value::Of(dict);
  }
  return PercentFormat(Soft(context, value), values, context.heap);
}

Value Center(Context& context, const Value& value, const Arguments& arguments) {
  const std::string_view text = Soft(context, value);
  const int64_t missing = IntegerArgument(arguments, 0, "width", 80) - CountCodePoints(text);
  if (missing <= 0) return Value::Text(text);
  context.heap.Charge(static_cast<size_t>(missing));
  const int64_t left = missing / 2 + (missing & (missing + CountCodePoints(text)) & 1);
  return context.heap.Text(std::string(static_cast<size_t>(left), ' ') + std::string(text) +
                           std::string(static_cast<size_t>(missing - left), ' '));
}

Value Truncate(Context& context, const Value& value, const Arguments& arguments) {
  const std::string_view text = Soft(context, value);
  const int64_t length = IntegerArgument(arguments, 0, "length", 255);
  const std::string_view end = TextArgumentOr(arguments, 2, "end", "...", "truncate");
  const int64_t leeway = IntegerArgument(arguments, 3, "leeway", 5);
  if (length < CountCodePoints(end)) Fail("truncate: the length is shorter than the end");
  if (CountCodePoints(text) <= length + leeway) return Value::Text(text);
  std::string_view kept = text.substr(0, ByteOffset(text, length - CountCodePoints(end)));
  if (!FlagArgument(arguments, 1, "killwords", false)) {
    const size_t space = kept.rfind(' ');
    if (space != kept.npos) kept = kept.substr(0, space);
  }
  return Value::Text(context.heap.Concat(kept, end));
}

Value WordCount(Context& context, const Value& value, const Arguments&) {
  return Value::Integer(static_cast<int64_t>(Split(Soft(context, value), nullptr, -1).size()));
}

Value UrlEncode(Context& context, const Value& value, const Arguments&) {
  std::string out;
  for (const char c : Soft(context, value)) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    static constexpr char kHex[] = "0123456789ABCDEF";
    if (plain) {
      out += c;
    } else {
      out.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  return context.heap.Text(out);
}

// ----- numbers

Value ToInteger(Context&, const Value& value, const Arguments& arguments) {
  const Value* fallback = arguments.Get(0, "default");
  const Value otherwise = fallback == nullptr ? Value::Integer(0) : *fallback;
  if (value.is_integer() || value.is_bool()) return Value::Integer(value.AsInteger());
  if (value.is(Kind::kBigInteger)) return value;
  double real = 0;
  if (value.is_float()) {
    real = value.real();
  } else if (value.is_text()) {
    std::string text(Strip(value.text(), nullptr, true, true));
    if (text.starts_with('+')) text.erase(0, 1);
    int64_t integer = 0;
    const int64_t base = std::clamp<int64_t>(IntegerArgument(arguments, 1, "base", 10), 2, 36);
    const size_t skip = base == 16 && (text.starts_with("0x") || text.starts_with("0X")) ? 2 : 0;
    const auto [end, error] =
        std::from_chars(text.data() + skip, text.data() + text.size(), integer, static_cast<int>(base));
    if (error == std::errc() && end == text.data() + text.size()) return Value::Integer(integer);
    const auto [real_end, real_error] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (real_error != std::errc() || real_end != text.data() + text.size()) return otherwise;
  } else {
    return otherwise;
  }
  return std::abs(real) < 9.2e18 ? Value::Integer(static_cast<int64_t>(real)) : otherwise;
}

Value ToFloat(Context&, const Value& value, const Arguments& arguments) {
  const Value* fallback = arguments.Get(0, "default");
  if (value.is_number() && !value.is(Kind::kBigInteger)) return Value::Float(value.AsDouble());
  if (value.is_text()) {
    std::string text(Strip(value.text(), nullptr, true, true));
    if (text.starts_with('+')) text.erase(0, 1);
    double real = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (error == std::errc() && end == text.data() + text.size()) return Value::Float(real);
  }
  return fallback == nullptr ? Value::Float(0) : *fallback;
}

Value Abs(Context&, const Value& value, const Arguments&) {
  if (value.is_float()) return Value::Float(std::abs(value.real()));
  if (!value.is_integer() && !value.is_bool())
    Fail(std::string("bad operand type for abs(): '") + value.TypeName() + "'");
  return value.AsInteger() < 0 ? Negate(value) : Value::Integer(value.AsInteger());
}

Value Round(Context&, const Value& value, const Arguments& arguments) {
  if (!value.is_number() || value.is(Kind::kBigInteger)) Fail("round needs a number");
  const int64_t precision = std::clamp<int64_t>(IntegerArgument(arguments, 0, "precision", 0), -300, 300);
  const std::string_view method = TextArgumentOr(arguments, 1, "method", "common", "round");
  if (method != "common" && method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.AsDouble() * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return Value::Float(rounded / scale);
}

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  static const auto* filters = new std::unordered_map<std::string_view, FilterFunction>{
      {"abs", Abs},
      {"capitalize", Change<Capitalize>},
      {"center", Center},
      {"e", Escape},
      {"escape", Escape},
      {"float", ToFloat},
      {"format", Format},
      {"indent", Indent},
      {"int", ToInteger},
      {"lower", Change<Lower>},
      {"replace", ReplaceFilter},
      {"round", Round},
      {"safe", Safe},
      {"string", String},
      {"title", Change<Title>},
      {"tojson", ToJsonFilter},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", Change<Upper>},
      {"urlencode", UrlEncode},
      {"wordcount", WordCount},
  };
  const auto it = filters->find(name);
  return it == filters->end() ? nullptr : it->second;
}

}  // namespace lockstep::text::jinja
