#include "text/jinja/str_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>

#include "text/jinja/context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"

namespace lockstep::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;

// A format spec: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^; 0: the type's own
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t ReadNumber(std::string_view text, size_t* at, int64_t fallback) {
  if (*at >= text.size() || text[*at] < '0' || text[*at] > '9') return fallback;
  int64_t number = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = number * 10 + (text[*at] - '0');
    if (number > kMaxWidth) Fail("a width in a format is too large");
  }
  return number;
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Spec ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0, length = 0;
  if (!text.empty()) DecodeAt(text, 0, &length);
  if (length > 0 && length < text.size() && IsAlign(text[length])) {
    spec.fill = text.substr(0, length);
    spec.align = text[length];
    at = length + 1;
  } else if (!text.empty() && IsAlign(text[0])) {
    spec.align = text[at++];
  }
  const auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
  for (const char sign : {'+', '-', ' '}) {
    if (take(sign)) spec.sign = sign;
  }
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = ReadNumber(text, &at, 0);
  for (const char grouping : {',', '_'}) {
    if (take(grouping)) spec.grouping = grouping;
  }
  if (take('.')) {
    spec.precision = ReadNumber(text, &at, -1);
    if (spec.precision < 0) Fail("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) Fail("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

std::string Group(std::string digits, char separator) {
  if (separator == 0) return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3;) digits.insert(at -= 3, 1, separator);
  return digits;
}

// Puts sign, prefix and digits into the field.
std::string Fit(const Spec& spec, const std::string& head, const std::string& body, char align) {
  const int64_t missing = spec.width - CountCodePoints(head) - CountCodePoints(body);
  if (spec.align != 0) align = spec.align;
  if (missing <= 0) return head + body;
  const auto pad = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (align) {
    case '<':
      return head + body + pad(missing);
    case '^':
      return pad(missing / 2) + head + body + pad(missing - missing / 2);
    case '=':
      return head + pad(missing) + body;
    default:
      return pad(missing) + head + body;
  }
}

std::string SignOf(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string FormatInteger(const Spec& spec, int64_t value) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int base = 10;
  std::string prefix;
  switch (spec.type) {
    case 'x':
    case 'X':
      base = 16;
      prefix = spec.type == 'x' ? "0x" : "0X";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    default:
      break;
  }
  char buffer[80];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr);
  if (spec.type == 'X') digits = Upper(digits);
  return Fit(spec, SignOf(spec, value < 0) + (spec.alternate ? prefix : ""), Group(digits, spec.grouping), '>');
}

std::string FormatFloat(const Spec& spec, double value) {
  std::string digits;
  if (spec.type == 0 && spec.precision < 0) {
    digits = FloatRepr(std::abs(value));
  } else {
    const bool percent = spec.type == '%';
    const char type = spec.type == 0 ? 'g' : percent ? 'f' : spec.type;
    const char conversion[] = {'%', '.', '*', type, 0};
    char buffer[512];
    const auto precision = static_cast<int>(std::min<int64_t>(spec.precision < 0 ? 6 : spec.precision, 100));
    std::snprintf(buffer, sizeof(buffer), conversion, precision, std::abs(value) * (percent ? 100 : 1));
    digits = std::string(buffer) + (percent ? "%" : "");
  }
  return Fit(spec, SignOf(spec, std::signbit(value)), Group(digits, spec.grouping), '>');
}

bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

std::string FormatValue(const Value& value, std::string_view spec_text, Heap& heap) {
  std::string text;
  if (spec_text.empty()) {
    AppendText(value, heap, text);
    return text;
  }
  const Spec spec = ParseSpec(spec_text);
  if (value.is_integer() || (value.is_bool() && spec.type != 0 && spec.type != 's')) {
    if (spec.type == 0 || IsOneOf(spec.type, "dnxXob")) return FormatInteger(spec, value.AsInteger());
    if (IsOneOf(spec.type, "eEfFgG%")) return FormatFloat(spec, value.AsDouble());
  } else if (value.is_float()) {
    if (spec.type == 0 || IsOneOf(spec.type, "eEfFgG%n")) return FormatFloat(spec, value.real());
  } else if (value.is_text() || value.is_bool()) {
    if (spec.type == 0 || spec.type == 's') {
      AppendText(value, heap, text);
      if (spec.precision >= 0) text.resize(ByteOffset(text, spec.precision));
      return Fit(spec, "", text, '<');
    }
  } else {
    Fail(std::string("unsupported format string passed to ") + value.TypeName() + ".__format__");
  }
  Fail(std::string("Unknown format code '") + spec.type + "' for object of type '" + value.TypeName() + "'");
}

class BraceFormatter {
 public:
  BraceFormatter(Context& context, const Arguments& arguments) : context_(context), arguments_(arguments) {}

  std::string Run(std::string_view format, int depth) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at++];
      const bool doubled = at < format.size() && format[at] == c;
      if (c == '}') {
        if (!doubled) Fail("Single '}' encountered in format string");
        out += c;
        ++at;
      } else if (c != '{') {
        out += c;
      } else if (doubled) {
        out += c;
        ++at;
      } else {
        const size_t end = FieldEnd(format, at);
        out += Field(format.substr(at, end - at), depth);
        at = end + 1;
      }
      if (out.size() > (size_t{1} << 26)) Fail("a formatted text is too long");
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view format, size_t at) {
    int depth = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    Fail("expected '}' before end of string");
  }

  // name[!conversion][:spec]
  std::string Field(std::string_view field, int depth) {
    const size_t stop = std::min(field.find_first_of("!:"), field.size());
    Value value = Lookup(field.substr(0, stop));
    size_t at = stop;
    if (at < field.size() && field[at] == '!') {
      if (at + 1 >= field.size()) Fail("end of string while looking for conversion specifier");
      std::string text;
      field[at + 1] == 's' ? AppendText(value, context_.heap, text) : AppendRepr(value, context_.heap, text);
      value = context_.heap.Text(text);
      at += 2;
    }
    if (at < field.size() && field[at] != ':') Fail("expected ':' after conversion specifier");
    std::string spec(at < field.size() ? field.substr(at + 1) : std::string_view());
    if (spec.find('{') != spec.npos) {
      if (depth > 0) Fail("Max string recursion exceeded");
      spec = Run(spec, depth + 1);
    }
    return FormatValue(value, spec, context_.heap);
  }

  Value Lookup(std::string_view name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = Root(name.substr(0, at));
    while (at < name.size()) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = GetAttribute(context_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const size_t end = name.find(']', at);
        if (end == name.npos) Fail("Missing ']' in format string");
        value = GetItem(context_, value, Key(name.substr(at + 1, end - at - 1)));
        at = end + 1;
      }
    }
    return value;
  }

  Value Root(std::string_view name) {
    size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (name.find_first_not_of("0123456789") == name.npos && name.size() < 9) {
      index = static_cast<size_t>(std::stoul(std::string(name)));
    } else {
      const Value* value = arguments_.Named(name);
      if (value == nullptr) Fail("format has no argument '" + std::string(name) + "'");
      return *value;
    }
    if (index >= arguments_.positional.size()) Fail("Replacement index " + std::to_string(index) + " out of range");
    return arguments_.positional[index];
  }

  static Value Key(std::string_view text) {
    if (text.find_first_not_of("0123456789") == text.npos && !text.empty() && text.size() < 9)
      return Value::Integer(std::stol(std::string(text)));
    return Value::Text(text);
  }

  Context& context_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(const Value& values, Heap& heap) : values_(values), heap_(heap) {
    single_ = !values.is_sequence() || values.sequence().type != SequenceType::kTuple;
  }

  std::string Run(std::string_view format) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at++];
      if (c != '%') {
        out += c;
      } else if (at < format.size() && format[at] == '%') {
        out += '%';
        ++at;
      } else {
        out += Field(format, &at);
      }
      if (out.size() > (size_t{1} << 26)) Fail("a formatted text is too long");
    }
    const size_t given = single_ ? 1 : values_.sequence().items.size();
    if (!named_ && next_ < given && !(single_ && values_.is_dict())) {
      Fail("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  Value Next() {
    if (single_) {
      if (next_++ > 0) Fail("not enough arguments for format string");
      return values_;
    }
    if (next_ >= values_.sequence().items.size()) Fail("not enough arguments for format string");
    return values_.sequence().items[next_++];
  }

  std::string Field(std::string_view format, size_t* at) {
    Value value;
    bool named = false;
    if (*at < format.size() && format[*at] == '(') {
      const size_t end = format.find(')', *at);
      if (end == format.npos) Fail("incomplete format key");
      if (!values_.is_dict()) Fail("format requires a mapping");
      const Value* found = values_.dict().Find(format.substr(*at + 1, end - *at - 1));
      if (found == nullptr) Fail("the format's key is not in the mapping");
      value = *found;
      named = named_ = true;
      *at = end + 1;
    }
    Spec spec;
    for (; *at < format.size() && IsOneOf(format[*at], "-+ 0#"); ++*at) {
      const char flag = format[*at];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.fill = "0";
    }
    spec.width = ReadNumber(format, at, 0);
    if (*at < format.size() && format[*at] == '.') {
      ++*at;
      spec.precision = ReadNumber(format, at, 0);
    }
    if (*at >= format.size()) Fail("incomplete format");
    spec.type = format[(*at)++];
    return Convert(spec, named ? value : Next());
  }

  std::string Convert(Spec spec, const Value& value) {
    std::string text;
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      spec.type == 's' ? AppendText(value, heap_, text) : AppendRepr(value, heap_, text);
      if (spec.precision >= 0) text.resize(ByteOffset(text, spec.precision));
      spec.fill = " ";
      return Fit(spec, "", text, '>');
    }
    if (!value.is_number() || value.is(Kind::kBigInteger)) {
      Fail(std::string("%") + spec.type + " format: a real number is required, not " + value.TypeName());
    }
    if (spec.align == '<') spec.fill = " ";
    if (spec.align == 0 && spec.fill == "0") spec.align = '=';
    if (IsOneOf(spec.type, "di")) {
      const double real = value.AsDouble();
      if (value.is_float() && !(std::abs(real) < 9e18)) Fail("cannot convert float to integer");
      return FormatInteger(spec, value.is_float() ? static_cast<int64_t>(real) : value.AsInteger());
    }
    if (IsOneOf(spec.type, "xXo") && !value.is_float()) return FormatInteger(spec, value.AsInteger());
    if (IsOneOf(spec.type, "eEfFgG")) return FormatFloat(spec, value.AsDouble());
    Fail(std::string("unsupported format character '") + spec.type + "'");
  }

  const Value& values_;
  Heap& heap_;
  bool single_ = true;
  bool named_ = false;
  size_t next_ = 0;
};

}  // namespace

Value BraceFormat(Context& context, std::string_view format, const Arguments& arguments) {
  return context.heap.Text(BraceFormatter(context, arguments).Run(format, 0));
}

Value PercentFormat(std::string_view format, const Value& values, Heap& heap) {
  return heap.Text(PercentFormatter(values, heap).Run(format));
}

}  // namespace lockstep::text::jinja
