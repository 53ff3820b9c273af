// Filters on sequences and of all kinds, as jinja2 has them; those on texts and numbers are in text_filters.cc.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/python_text.h"

namespace lockstep::text::jinja {
namespace {

using Items = std::vector<Value>;

const Items& Walk(Context& context, const Value& value, Items& storage) {
  const Items& items = Iterate(value, context.heap, storage);
  context.Step(static_cast<int64_t>(items.size()));
  return items;
}

// The value of a dotted path; integer parts are indices.
Value Dotted(Context& context, Value value, const Value& path) {
  if (!path.is_text()) return GetItem(context, value, path);
  const std::string_view dot = ".";
  for (std::string_view part : Split(path.text(), &dot, -1)) {
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    value = GetItem(context, value, is_index ? Value::Integer(index) : Value::Text(part));
  }
  return value;
}

// ----- sequences

Value Join(Context& context, const Value& value, const Arguments& arguments) {
  TakesAtMost(arguments, 2, "join");
  const Value* separator = arguments.Get(0, "d");
  const std::string_view between = separator == nullptr ? std::string_view() : ToText(*separator, context.heap).text();
  const Value* attribute = arguments.Get(1, "attribute");
  Items storage;
  std::string out;
  bool first = true;
  for (const Value& item : Walk(context, value, storage)) {
    if (!first) out += between;
    first = false;
    context.heap.Charge(between.size());
    AppendText(attribute == nullptr ? item : Dotted(context, item, *attribute), context.heap, out);
  }
  return context.heap.Text(out);
}

Value Sum(Context& context, const Value& value, const Arguments& arguments) {
  const Value* attribute = arguments.Get(0, "attribute");
  const Value* start = arguments.Get(1, "start");
  Value sum = start == nullptr ? Value::Integer(0) : *start;
  Items storage;
  for (const Value& item : Walk(context, value, storage)) {
    const bool whole = attribute == nullptr || attribute->is_none();
    sum = Add(sum, whole ? item : Dotted(context, item, *attribute), context.heap);
  }
  return sum;
}

Value LengthFilter(Context& context, const Value& value, const Arguments&) {
  if (value.is_text()) context.heap.Charge(value.text().size() / 16);
  return Value::Integer(Length(value));
}

Value ListFilter(Context& context, const Value& value, const Arguments&) {
  Items storage;
  return context.heap.List(Walk(context, value, storage));
}

Value First(Context& context, const Value& value, const Arguments&) {
  if (value.is(Kind::kGenerator)) {
    Generator& generator = value.generator();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
  } else {
    Items storage;
    const Items& items = Iterate(value, context.heap, storage);
    if (!items.empty()) return items.front();
  }
  return Value::UndefinedBecause("No first item, sequence was empty.");
}

Value Last(Context& context, const Value& value, const Arguments&) {
  Items storage;
  const Items& items = Walk(context, value, storage);
  return items.empty() ? Value::UndefinedBecause("No last item, sequence was empty.") : items.back();
}

Value Reverse(Context& context, const Value& value, const Arguments&) {
  if (value.is_text()) return Slice(value, Value::None(), Value::None(), Value::Integer(-1), context.heap);
  Items storage;
  Items items = Walk(context, value, storage);
  std::reverse(items.begin(), items.end());
  return context.heap.NewGenerator(std::move(items));
}

Value ItemsFilter(Context& context, const Value& value, const Arguments&) {
  if (value.is_undefined()) return context.heap.NewGenerator({});
  if (!value.is_dict()) Fail("Can only get item pairs from a mapping.");
  Items items;
  for (const auto& [key, item] : value.dict().entries()) items.push_back(context.heap.Tuple({key, item}));
  return context.heap.NewGenerator(std::move(items));
}

// What sorting looks at: texts without case, unless asked otherwise.
Value SortKey(Context& context, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  return context.heap.Text(Lower(value.text()));
}

// Sorts items by their keys, stably; `descending` keeps the order of equal ones, as Python does.
Items SortBy(Context& context, const Items& items, const Items& keys, bool descending) {
  context.Step(static_cast<int64_t>(items.size()) * 20);
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return descending ? Compare(keys[b], keys[a], &context.heap) < 0 : Compare(keys[a], keys[b], &context.heap) < 0;
  });
  Items sorted;
  sorted.reserve(items.size());
  for (size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value DictSort(Context& context, const Value& value, const Arguments& arguments) {
  if (!value.is_dict()) Fail("dictsort needs a mapping");
  const bool case_sensitive = FlagArgument(arguments, 0, "case_sensitive", false);
  const std::string_view by = TextArgumentOr(arguments, 1, "by", "key", "dictsort");
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  Items items, keys;
  for (const auto& [key, item] : value.dict().entries()) {
    items.push_back(context.heap.Tuple({key, item}));
    keys.push_back(SortKey(context, by == "key" ? key : item, case_sensitive));
  }
  return context.heap.List(SortBy(context, items, keys, FlagArgument(arguments, 2, "reverse", false)));
}

Value Sort(Context& context, const Value& value, const Arguments& arguments) {
  const bool case_sensitive = FlagArgument(arguments, 1, "case_sensitive", false);
  const Value* attribute = arguments.Get(2, "attribute");
  Items storage, keys;
  const Items& items = Walk(context, value, storage);
  const std::string_view comma = ",";
  for (const Value& item : items) {
    if (attribute == nullptr || attribute->is_none()) {
      keys.push_back(SortKey(context, item, case_sensitive));
    } else if (!attribute->is_text()) {
      keys.push_back(SortKey(context, GetItem(context, item, *attribute), case_sensitive));
    } else {  // several attributes may be given, with commas
      Items parts;
      for (std::string_view part : Split(attribute->text(), &comma, -1))
        parts.push_back(SortKey(context, Dotted(context, item, Value::Text(part)), case_sensitive));
      keys.push_back(context.heap.List(std::move(parts)));
    }
  }
  return context.heap.List(SortBy(context, items, keys, FlagArgument(arguments, 0, "reverse", false)));
}

Value Unique(Context& context, const Value& value, const Arguments& arguments) {
  const bool case_sensitive = FlagArgument(arguments, 0, "case_sensitive", false);
  const Value* attribute = arguments.Get(1, "attribute");
  Items storage, kept;
  Dict seen;
  for (const Value& item : Walk(context, value, storage)) {
    const bool whole = attribute == nullptr || attribute->is_none();
    const Value key = SortKey(context, whole ? item : Dotted(context, item, *attribute), case_sensitive);
    if (seen.Find(key) != nullptr) continue;
    context.heap.Charge(sizeof(Dict::Entry));
    seen.Set(key, Value::None());
    kept.push_back(item);
  }
  return context.heap.NewGenerator(std::move(kept));
}

Value Extreme(Context& context, const Value& value, const Arguments& arguments, int sign) {
  const bool case_sensitive = FlagArgument(arguments, 0, "case_sensitive", false);
  const Value* attribute = arguments.Get(1, "attribute");
  Items storage;
  const Items& items = Walk(context, value, storage);
  if (items.empty()) return Value::UndefinedBecause("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    const bool whole = attribute == nullptr || attribute->is_none();
    const Value key = SortKey(context, whole ? items[i] : Dotted(context, items[i], *attribute), case_sensitive);
    if (i == 0 || sign * Compare(key, best_key, &context.heap) < 0) {
      best = i;
      best_key = key;
    }
  }
  return items[best];
}
Value Min(Context& c, const Value& value, const Arguments& a) { return Extreme(c, value, a, 1); }
Value Max(Context& c, const Value& value, const Arguments& a) { return Extreme(c, value, a, -1); }

Value Batch(Context& context, const Value& value, const Arguments& arguments) {
  const auto size = static_cast<size_t>(std::max<int64_t>(IntegerArgument(arguments, 0, "linecount", 0), 1));
  const Value* fill = arguments.Get(1, "fill_with");
  Items storage, batches, batch;
  for (const Value& item : Walk(context, value, storage)) {
    if (batch.size() == size) batches.push_back(context.heap.List(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (fill != nullptr && !fill->is_none()) {
      context.heap.Charge(size * sizeof(Value));
      batch.resize(size, *fill);
    }
    batches.push_back(context.heap.List(std::move(batch)));
  }
  return context.heap.NewGenerator(std::move(batches));
}

Value SliceFilter(Context& context, const Value& value, const Arguments& arguments) {
  const int64_t count = IntegerArgument(arguments, 0, "slices", 0);
  if (count < 1 || count > 100'000) Fail("slice needs a number of slices");
  const Value* fill = arguments.Get(1, "fill_with");
  Items storage, slices;
  const Items& items = Walk(context, value, storage);
  const size_t each = items.size() / static_cast<size_t>(count), longer = items.size() % static_cast<size_t>(count);
  size_t at = 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    Items slice(items.begin() + static_cast<int64_t>(at), items.begin() + static_cast<int64_t>(at + size));
    at += size;
    if (fill != nullptr && !fill->is_none() && i >= longer) slice.push_back(*fill);
    slices.push_back(context.heap.List(std::move(slice)));
  }
  return context.heap.NewGenerator(std::move(slices));
}

Value GroupBy(Context& context, const Value& value, const Arguments& arguments) {
  const Value* attribute = arguments.Get(0, "attribute");
  if (attribute == nullptr) Fail("groupby needs an attribute");
  const Value* fallback = arguments.Get(1, "default");
  const bool case_sensitive = FlagArgument(arguments, 2, "case_sensitive", false);
  Items storage, values, keys, groups, group;
  const Items& items = Walk(context, value, storage);
  for (const Value& item : items) {
    Value key = Dotted(context, item, *attribute);
    if (key.is_undefined() && fallback != nullptr) key = *fallback;
    keys.push_back(SortKey(context, key, case_sensitive));
    values.push_back(context.heap.Tuple({key, keys.back(), item}));
  }
  const Items sorted = SortBy(context, values, keys, false);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Items& entry = sorted[i].sequence().items;
    group.push_back(entry[2]);
    if (i + 1 < sorted.size() && Equal(sorted[i + 1].sequence().items[1], entry[1], &context.heap)) continue;
    const size_t first = i + 1 - group.size();
    const Value members = context.heap.List(std::exchange(group, {}));
    groups.push_back(context.heap.Tuple({sorted[first].sequence().items[0], members}));
  }
  return context.heap.List(std::move(groups));
}

// ----- by name of a test or filter

// select, reject: items whose test holds, or does not. selectattr, rejectattr: those of their attribute.
Value Select(Context& context, const Value& value, const Arguments& arguments, bool by_attribute, bool keep) {
  const size_t name_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < name_at) Fail("Missing parameter for attribute name");
  TestFunction test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > name_at) {
    const std::string_view name = TextOf(arguments.positional[name_at], "a test's name");
    test = FindTest(name);
    if (test == nullptr) Fail("No test named '" + std::string(name) + "' found.");
    rest.positional.assign(arguments.positional.begin() + static_cast<int64_t>(name_at) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  Items storage, kept;
  if (!value.Truthy()) return context.heap.NewGenerator({});  // none is as good as an empty list here
  for (const Value& item : Walk(context, value, storage)) {
    const Value subject = by_attribute ? Dotted(context, item, arguments.positional[0]) : item;
    if ((test == nullptr ? subject.Truthy() : test(context, subject, rest)) == keep) kept.push_back(item);
  }
  return context.heap.NewGenerator(std::move(kept));
}
template <bool kByAttribute, bool kKeep>
Value SelectFilter(Context& context, const Value& value, const Arguments& arguments) {
  return Select(context, value, arguments, kByAttribute, kKeep);
}

Value Map(Context& context, const Value& value, const Arguments& arguments) {
  Items storage, mapped;
  if (!value.Truthy()) return context.heap.NewGenerator({});
  const Value* attribute = arguments.positional.empty() ? arguments.Named("attribute") : nullptr;
  if (attribute != nullptr) {
    const Value* fallback = arguments.Named("default");
    for (const Value& item : Walk(context, value, storage)) {
      const Value found = Dotted(context, item, *attribute);
      mapped.push_back(found.is_undefined() && fallback != nullptr ? *fallback : found);
    }
    return context.heap.NewGenerator(std::move(mapped));
  }
  if (arguments.positional.empty()) Fail("map requires a filter argument");
  const std::string_view name = TextOf(arguments.positional[0], "map");
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) Fail("No filter named '" + std::string(name) + "'.");
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.named = arguments.named;
  for (const Value& item : Walk(context, value, storage)) mapped.push_back(filter(context, item, rest));
  return context.heap.NewGenerator(std::move(mapped));
}

// ----- others

Value Default(Context&, const Value& value, const Arguments& arguments) {
  TakesAtMost(arguments, 2, "default");
  const bool also_false = FlagArgument(arguments, 1, "boolean", false);
  if (!value.is_undefined() && !(also_false && !value.Truthy())) return value;
  const Value* fallback = arguments.Get(0, "default_value");
  return fallback == nullptr ? Value::Text({}) : *fallback;
}

Value Attribute(Context& context, const Value& value, const Arguments& arguments) {
  const std::string_view name = TextArgument(arguments, 0, "name", "attr");
  // Attributes only: an item of that name does not count.
  if (value.is_dict() && FindFilter(name) == nullptr && value.dict().Find(name) != nullptr) {
    return Value::UndefinedBecause("the object has no such attribute");
  }
  return GetAttribute(context, value, name);
}

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  static const auto* filters = new std::unordered_map<std::string_view, FilterFunction>{
      {"attr", Attribute},
      {"batch", Batch},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", ItemsFilter},
      {"join", Join},
      {"last", Last},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"map", Map},
      {"max", Max},
      {"min", Min},
      {"reject", SelectFilter<false, false>},
      {"rejectattr", SelectFilter<true, false>},
      {"reverse", Reverse},
      {"select", SelectFilter<false, true>},
      {"selectattr", SelectFilter<true, true>},
      {"slice", SliceFilter},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  const auto it = filters->find(name);
  return it == filters->end() ? FindTextFilter(name) : it->second;
}

}  // namespace lockstep::text::jinja
