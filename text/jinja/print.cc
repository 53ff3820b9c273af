#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace lockstep::text::jinja {
namespace {

// A list can be made to hold itself.
constexpr int kMaxDepth = 500;

void AppendInteger(int64_t value, std::string& out) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

class ReprWriter {
 public:
  ReprWriter(Heap& heap, std::string& out) : heap_(heap), out_(out) {}

  void Write(const Value& value) {
    if (++depth_ > kMaxDepth) Fail("a value is nested too deeply to be printed");
    const size_t before = out_.size();
    WriteKind(value);
    if (!value.is_sequence() && !value.is_dict()) heap_.Charge(out_.size() - before + 1);
    --depth_;
  }

 private:
  void WriteKind(const Value& value) {
    switch (value.kind()) {
      case Kind::kUnbound:
      case Kind::kUndefined:
        out_ += "Undefined";
        return;
      case Kind::kNone:
        out_ += "None";
        return;
      case Kind::kBool:
        out_ += value.boolean() ? "True" : "False";
        return;
      case Kind::kInteger:
        AppendInteger(value.integer(), out_);
        return;
      case Kind::kFloat:
        out_ += FloatRepr(value.real());
        return;
      case Kind::kBigInteger:
        out_ += value.text();
        return;
      case Kind::kText:
        if (value.is_markup()) out_ += "Markup(";
        AppendRepr(value.text(), out_);
        if (value.is_markup()) out_ += ')';
        return;
      case Kind::kSequence:
        return WriteSequence(value.sequence());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kNamespace:
        out_ += "<Namespace ";
        WriteDict(value.space().attributes);
        out_ += '>';
        return;
      default:
        out_ += '<';
        out_ += value.TypeName();
        out_ += '>';
    }
  }

  void WriteSequence(const Sequence& sequence) {
    const SequenceType type = sequence.type;
    const bool view = type != SequenceType::kList && type != SequenceType::kTuple;
    if (view) out_.append(Value::Of(const_cast<Sequence*>(&sequence)).TypeName()).append("(");
    const bool tuple = type == SequenceType::kTuple;
    out_ += tuple ? '(' : '[';
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      Write(sequence.items[i]);
    }
    if (tuple && sequence.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    if (view) out_ += ')';
  }

  void WriteDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      Write(key);
      out_ += ": ";
      Write(item);
    }
    out_ += '}';
  }

  Heap& heap_;
  std::string& out_;
  int depth_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap) {}

  std::string Run(const Value& value) {
    Write(value);
    return std::move(out_);
  }

 private:
  void Write(const Value& value) {
    if (depth_ > kMaxDepth) Fail("a value is nested too deeply for JSON");
    const size_t before = out_.size();
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Kind::kInteger:
        AppendInteger(value.integer(), out_);
        break;
      case Kind::kBigInteger:
        out_ += value.text();
        break;
      case Kind::kFloat:
        WriteFloat(value.real());
        break;
      case Kind::kText:
        WriteText(value.text());
        break;
      case Kind::kSequence:
        if (value.sequence().type <= SequenceType::kTuple) return WriteItems(value.sequence().items);
        [[fallthrough]];
      default:
        if (value.is_dict()) return WriteDict(value.dict());
        Fail(std::string("Object of type ") + value.TypeName() + " is not JSON serializable");
    }
    heap_.Charge(out_.size() - before + 1);
  }

  void WriteFloat(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value > 0 ? "Infinity" : "-Infinity";
    } else {
      out_ += FloatRepr(value);
    }
  }

  void WriteText(std::string_view text) {
    out_ += '"';
    for (size_t at = 0, length = 0; at < text.size(); at += length) {
      const char32_t c = DecodeAt(text, at, &length);
      WriteCharacter(c, text.substr(at, length));
    }
    out_ += '"';
  }

  void WriteCharacter(char32_t c, std::string_view raw) {
    switch (c) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\b':
        out_ += "\\b";
        return;
      case '\f':
        out_ += "\\f";
        return;
      default:
        break;
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      out_.append(raw);
    } else if (c < 0x10000) {
      WriteEscape(c);
    } else {
      WriteEscape(0xD800 + ((c - 0x10000) >> 10));
      WriteEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }
  void WriteEscape(char32_t unit) {
    char escape[16];
    std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(unit));
    out_ += escape;
  }

  void NewLine() {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += style_.indent;
    heap_.Charge(style_.indent.size() * static_cast<size_t>(depth_) + 1);
  }

  void WriteItems(const std::vector<Value>& items) {
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine();
      Write(items[i]);
    }
    --depth_;
    if (!items.empty()) NewLine();
    out_ += ']';
  }

  void WriteDict(const Dict& dict) {
    std::vector<Dict::Entry> sorted;
    if (style_.sort_keys) {
      sorted = dict.entries();
      std::stable_sort(sorted.begin(), sorted.end(),
                       [](const auto& a, const auto& b) { return Compare(a.first, b.first) < 0; });
    }
    out_ += '{';
    ++depth_;
    bool first = true;
    for (const auto& [key, item] : style_.sort_keys ? sorted : dict.entries()) {
      if (!first) out_ += style_.item_separator;
      first = false;
      NewLine();
      WriteKey(key);
      out_ += style_.key_separator;
      Write(item);
    }
    --depth_;
    if (!first) NewLine();
    out_ += '}';
  }

  void WriteKey(const Value& key) {
    if (key.is_text()) return Write(key);
    if (!key.is_number() && !key.is_none()) {
      Fail(std::string("keys must be str, int, float, bool or None, not ") + key.TypeName());
    }
    out_ += '"';
    Write(key);
    out_ += '"';
  }

  const JsonStyle& style_;
  Heap& heap_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

void AppendText(const Value& value, Heap& heap, std::string& out) {
  if (value.is_text()) {
    heap.Charge(value.text().size());
    out += value.text();
  } else if (!value.is_undefined()) {
    ReprWriter(heap, out).Write(value);
  }
}

void AppendRepr(const Value& value, Heap& heap, std::string& out) { ReprWriter(heap, out).Write(value); }

Value ToText(const Value& value, Heap& heap) {
  if (value.is_text()) return Value::Text(value.text());  // no longer markup
  std::string text;
  AppendText(value, heap, text);
  return heap.Text(text);
}

std::string ToJson(const Value& value, const JsonStyle& style, Heap& heap) {
  return JsonWriter(style, heap).Run(value);
}

}  // namespace lockstep::text::jinja
