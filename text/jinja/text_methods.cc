// Methods of str.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/context.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"
#include "text/jinja/str_format.h"

namespace lockstep::text::jinja {
namespace {

// Most methods read the text once.
std::string_view Read(Context& context, const Value& self) {
  context.heap.Charge(self.text().size() / 16);
  return self.text();
}

Value New(Context& context, const std::string& text) { return context.heap.Text(text); }

Value StripSides(Context& context, const Value& self, const Arguments& arguments, bool left, bool right) {
  TakesAtMost(arguments, 1, "strip");
  const Value* characters = arguments.Get(0, "chars");
  if (characters == nullptr || characters->is_none()) {
    return Value::Text(Strip(Read(context, self), nullptr, left, right));
  }
  const std::string_view set = TextOf(*characters, "strip");
  return Value::Text(Strip(Read(context, self), &set, left, right));
}
Value StripBoth(Context& c, const Value& self, const Arguments& a) { return StripSides(c, self, a, true, true); }
Value StripLeft(Context& c, const Value& self, const Arguments& a) { return StripSides(c, self, a, true, false); }
Value StripRight(Context& c, const Value& self, const Arguments& a) { return StripSides(c, self, a, false, true); }

Value ListOfTexts(Context& context, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(Value::Text(part));
  return context.heap.List(std::move(items));
}

Value SplitText(Context& context, const Value& self, const Arguments& arguments, bool from_right) {
  TakesAtMost(arguments, 2, "split");
  const Value* given = arguments.Get(0, "sep");
  const int64_t limit = IntegerArgument(arguments, 1, "maxsplit", -1);
  std::string_view separator;
  const bool by_space = given == nullptr || given->is_none();
  if (!by_space) {
    separator = TextOf(*given, "split");
    if (separator.empty()) Fail("empty separator");
  }
  const std::string_view text = Read(context, self);
  const std::string_view* by = by_space ? nullptr : &separator;
  return ListOfTexts(context, from_right ? SplitFromRight(text, by, limit) : Split(text, by, limit));
}
Value SplitLeft(Context& c, const Value& self, const Arguments& a) { return SplitText(c, self, a, false); }
Value SplitRight(Context& c, const Value& self, const Arguments& a) { return SplitText(c, self, a, true); }

Value Lines(Context& context, const Value& self, const Arguments& arguments) {
  return ListOfTexts(context, SplitLines(Read(context, self), FlagArgument(arguments, 0, "keepends", false)));
}

// startswith and endswith take one text or a tuple of them, and bounds.
Value Affix(Context& context, const Value& self, const Arguments& arguments, bool at_start) {
  const char* name = at_start ? "startswith" : "endswith";
  if (arguments.positional.empty()) Fail(std::string(name) + ": an argument is missing");
  std::string_view text = self.text();
  if (arguments.positional.size() > 1) {
    const Value none = Value::None();
    const Value end = arguments.positional.size() > 2 ? arguments.positional[2] : none;
    text = Slice(self, arguments.positional[1], end, none, context.heap).text();
  }
  const auto matches = [&](const Value& affix) {
    const std::string_view part = TextOf(affix, name);
    return at_start ? text.starts_with(part) : text.ends_with(part);
  };
  const Value& given = arguments.positional[0];
  if (!given.is_sequence() || given.sequence().type != SequenceType::kTuple) return Value::Bool(matches(given));
  const std::vector<Value>& options = given.sequence().items;
  return Value::Bool(std::any_of(options.begin(), options.end(), matches));
}
Value StartsWith(Context& c, const Value& self, const Arguments& a) { return Affix(c, self, a, true); }
Value EndsWith(Context& c, const Value& self, const Arguments& a) { return Affix(c, self, a, false); }

template <std::string (*kChange)(std::string_view)>
Value Change(Context& context, const Value& self, const Arguments& arguments) {
  TakesAtMost(arguments, 0, "a change of case");
  return New(context, kChange(Read(context, self)));
}

Value ReplaceText(Context& context, const Value& self, const Arguments& arguments) {
  const std::string_view from = TextArgument(arguments, 0, "old", "replace");
  const std::string_view to = TextArgument(arguments, 1, "new", "replace");
  const std::string_view text = Read(context, self);
  // The result is charged before it is built: it can be far longer than the text.
  size_t matches = 0;
  for (size_t at = text.find(from); !from.empty() && at != text.npos; at = text.find(from, at + from.size())) ++matches;
  context.heap.Charge((from.empty() ? text.size() + 1 : matches) * to.size());
  return New(context, Replace(text, from, to, IntegerArgument(arguments, 2, "count", -1)));
}

int64_t FindIn(Context& context, const Value& self, const Arguments& arguments, bool last) {
  const std::string_view text = Read(context, self);
  const std::string_view part = TextArgument(arguments, 0, "sub", "find");
  if (arguments.positional.size() > 1) {
    const Value none = Value::None();
    const Value end = arguments.positional.size() > 2 ? arguments.positional[2] : none;
    const std::string_view slice = Slice(self, arguments.positional[1], end, none, context.heap).text();
    const size_t at = last ? slice.rfind(part) : slice.find(part);
    return at == slice.npos ? -1 : CountCodePoints({text.data(), static_cast<size_t>(slice.data() + at - text.data())});
  }
  const size_t at = last ? text.rfind(part) : text.find(part);
  return at == text.npos ? -1 : CountCodePoints(text.substr(0, at));
}
Value FindFirst(Context& c, const Value& self, const Arguments& a) { return Value::Integer(FindIn(c, self, a, false)); }
Value FindLast(Context& c, const Value& self, const Arguments& a) { return Value::Integer(FindIn(c, self, a, true)); }
Value IndexFirst(Context& c, const Value& self, const Arguments& a) {
  const int64_t at = FindIn(c, self, a, false);
  if (at < 0) Fail("substring not found");
  return Value::Integer(at);
}

Value CountText(Context& context, const Value& self, const Arguments& arguments) {
  const std::string_view text = Read(context, self), part = TextArgument(arguments, 0, "sub", "count");
  if (part.empty()) return Value::Integer(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return Value::Integer(count);
}

Value JoinTexts(Context& context, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("join: an argument is missing");
  std::vector<Value> storage;
  std::string out;
  bool first = true;
  for (const Value& item : Iterate(arguments.positional[0], context.heap, storage)) {
    if (!first) out += self.text();
    first = false;
    out += TextOf(item, "join");
    context.heap.Charge(self.text().size() + item.text().size());
  }
  return New(context, out);
}

Value FormatText(Context& context, const Value& self, const Arguments& arguments) {
  return BraceFormat(context, self.text(), arguments);
}

Value Partition(Context& context, const Value& self, const Arguments& arguments, bool last) {
  const std::string_view text = Read(context, self), part = TextArgument(arguments, 0, "sep", "partition");
  if (part.empty()) Fail("empty separator");
  const size_t at = last ? text.rfind(part) : text.find(part);
  const Value empty = Value::Text({});
  if (at == text.npos)
    return context.heap.Tuple(last ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty});
  return context.heap.Tuple({Value::Text(text.substr(0, at)), Value::Text(text.substr(at, part.size())),
                             Value::Text(text.substr(at + part.size()))});
}
Value PartitionFirst(Context& c, const Value& self, const Arguments& a) { return Partition(c, self, a, false); }
Value PartitionLast(Context& c, const Value& self, const Arguments& a) { return Partition(c, self, a, true); }

Value RemovePrefix(Context&, const Value& self, const Arguments& arguments) {
  const std::string_view prefix = TextArgument(arguments, 0, "prefix", "removeprefix");
  return Value::Text(self.text().starts_with(prefix) ? self.text().substr(prefix.size()) : self.text());
}
Value RemoveSuffix(Context&, const Value& self, const Arguments& arguments) {
  const std::string_view suffix = TextArgument(arguments, 0, "suffix", "removesuffix");
  const std::string_view text = self.text();
  return Value::Text(!suffix.empty() && text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text);
}

// ljust, rjust, center and zfill: `left` and `right` say which side grows.
Value Pad(Context& context, const Value& self, const Arguments& arguments, bool left, bool right) {
  const std::string_view text = Read(context, self);
  const std::string_view fill = TextArgumentOr(arguments, 1, "fillchar", " ", "padding");
  if (CountCodePoints(fill) != 1) Fail("the fill character must be one character");
  const int64_t missing = IntegerArgument(arguments, 0, "width", 0) - CountCodePoints(text);
  if (missing <= 0) return self;
  context.heap.Charge(static_cast<size_t>(missing) * fill.size());
  // Python's center leans left for even widths and right for odd ones.
  const int64_t before = !left    ? 0
                         : !right ? missing
                                  : missing / 2 + (missing & IntegerArgument(arguments, 0, "width", 0) & 1);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (int64_t i = before; i < missing; ++i) out += fill;
  return New(context, out);
}
Value LeftJustified(Context& c, const Value& self, const Arguments& a) { return Pad(c, self, a, false, true); }
Value RightJustified(Context& c, const Value& self, const Arguments& a) { return Pad(c, self, a, true, false); }
Value Centred(Context& c, const Value& self, const Arguments& a) { return Pad(c, self, a, true, true); }

Value ZeroFilled(Context& context, const Value& self, const Arguments& arguments) {
  std::string text(self.text());
  const int64_t missing = IntegerArgument(arguments, 0, "width", 0) - CountCodePoints(text);
  if (missing <= 0) return self;
  context.heap.Charge(static_cast<size_t>(missing));
  text.insert(!text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0, static_cast<size_t>(missing), '0');
  return New(context, text);
}

template <bool (*kTest)(char32_t)>
Value AllAre(Context& context, const Value& self, const Arguments&) {
  const std::string_view text = Read(context, self);
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    if (!kTest(DecodeAt(text, at, &length))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}
bool IsAlphanumeric(char32_t c) { return IsAlphabetic(c) || IsNumeric(c); }

// isupper and islower: at least one letter with case, and none of the other case.
template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
Value HasCase(Context& context, const Value& self, const Arguments&) {
  const std::string_view text = Read(context, self);
  bool any = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = DecodeAt(text, at, &length);
    if (kOther(c)) return Value::Bool(false);
    any = any || kWanted(c);
  }
  return Value::Bool(any);
}

}  // namespace

const MethodTable& TextMethods() {
  static const auto* table = new MethodTable{
      {"strip", {StripBoth}},
      {"lstrip", {StripLeft}},
      {"rstrip", {StripRight}},
      {"split", {SplitLeft}},
      {"rsplit", {SplitRight}},
      {"splitlines", {Lines}},
      {"startswith", {StartsWith}},
      {"endswith", {EndsWith}},
      {"upper", {Change<Upper>}},
      {"lower", {Change<Lower>}},
      {"casefold", {Change<Lower>}},
      {"title", {Change<TitleCase>}},
      {"capitalize", {Change<Capitalize>}},
      {"swapcase", {Change<SwapCase>}},
      {"replace", {ReplaceText}},
      {"find", {FindFirst}},
      {"rfind", {FindLast}},
      {"index", {IndexFirst}},
      {"count", {CountText}},
      {"join", {JoinTexts}},
      {"format", {FormatText}},
      {"partition", {PartitionFirst}},
      {"rpartition", {PartitionLast}},
      {"removeprefix", {RemovePrefix}},
      {"removesuffix", {RemoveSuffix}},
      {"ljust", {LeftJustified}},
      {"rjust", {RightJustified}},
      {"center", {Centred}},
      {"zfill", {ZeroFilled}},
      {"isspace", {AllAre<IsPythonSpace>}},
      {"isalpha", {AllAre<IsAlphabetic>}},
      {"isalnum", {AllAre<IsAlphanumeric>}},
      {"isdigit", {AllAre<IsDecimal>}},
      {"isdecimal", {AllAre<IsDecimal>}},
      {"isnumeric", {AllAre<IsNumeric>}},
      {"isupper", {HasCase<IsUpper, IsLower>}},
      {"islower", {HasCase<IsLower, IsUpper>}},
  };
  return *table;
}

}  // namespace lockstep::text::jinja
