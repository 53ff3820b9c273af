#include "text/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace lockstep::text::jinja {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

template <typename F>
std::string MapCodePoints(std::string_view text, F&& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = DecodeAt(text, at, &length);
    if (length == 1 && c >= 0x80) {
      out += text[at];  // invalid
    } else {
      append(c, out);
    }
  }
  return out;
}

void AppendUpper(char32_t c, std::string& out) {
  if (c == 0xDF) {
    out += "SS";  // the one letter of common texts that grows
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}
void AppendLower(char32_t c, std::string& out) {
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}
void AppendTitle(char32_t c, std::string& out) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool Contains(std::string_view characters, std::string_view one) { return characters.find(one) != characters.npos; }

// Start of the last code point of text[0, end).
size_t LastStart(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  size_t length = 0;
  DecodeAt(text, at, &length);
  return at + length == end ? at : end - 1;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

char32_t DecodeAt(std::string_view text, size_t at, size_t* length) {
  const auto lead = static_cast<uint8_t>(text[at]);
  *length = 1;
  if (lead < 0x80) return lead;
  utf8proc_int32_t c = 0;
  const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                                 static_cast<utf8proc_ssize_t>(text.size() - at), &c);
  if (size <= 0) return lead;
  *length = static_cast<size_t>(size);
  return static_cast<char32_t>(c);
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max<utf8proc_ssize_t>(size, 0)));
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0, length = 0; at < text.size(); at += length, ++count) DecodeAt(text, at, &length);
  return count;
}

size_t ByteOffset(std::string_view text, int64_t index) {
  size_t at = 0, length = 0;
  for (; index > 0 && at < text.size(); --index, at += length) DecodeAt(text, at, &length);
  return at;
}

bool IsPythonSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}
bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }

std::string Upper(std::string_view text) { return MapCodePoints(text, AppendUpper); }
std::string Lower(std::string_view text) { return MapCodePoints(text, AppendLower); }
std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapCodePoints(text, [&](char32_t c, std::string& out) {
    first ? AppendTitle(c, out) : AppendLower(c, out);
    first = false;
  });
}
std::string TitleCase(std::string_view text) {
  bool in_word = false;
  return MapCodePoints(text, [&](char32_t c, std::string& out) {
    in_word ? AppendLower(c, out) : AppendTitle(c, out);
    in_word = IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT;
  });
}
std::string SwapCase(std::string_view text) {
  return MapCodePoints(text,
                       [](char32_t c, std::string& out) { IsUpper(c) ? AppendLower(c, out) : AppendUpper(c, out); });
}

std::string_view Strip(std::string_view text, const std::string_view* characters, bool left, bool right) {
  const auto drops = [&](size_t at, size_t length, char32_t c) {
    return characters == nullptr ? IsPythonSpace(c) : Contains(*characters, text.substr(at, length));
  };
  size_t begin = 0, end = text.size(), length = 0;
  while (left && begin < end) {
    const char32_t c = DecodeAt(text, begin, &length);
    if (!drops(begin, length, c)) break;
    begin += length;
  }
  while (right && end > begin) {
    const size_t at = LastStart(text, end);
    const char32_t c = DecodeAt(text, at, &length);
    if (!drops(at, end - at, c)) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> Split(std::string_view text, const std::string_view* separator, int64_t limit) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  if (separator != nullptr) {
    for (size_t found = text.find(*separator);
         found != text.npos && (limit < 0 || static_cast<int64_t>(parts.size()) < limit);
         found = text.find(*separator, at)) {
      parts.push_back(text.substr(at, found - at));
      at = found + separator->size();
    }
    parts.push_back(text.substr(at));
    return parts;
  }
  size_t length = 0;
  while (true) {
    while (at < text.size() && IsPythonSpace(DecodeAt(text, at, &length))) at += length;
    if (at == text.size()) return parts;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Strip(text.substr(at), nullptr, false, true));
      return parts;
    }
    const size_t begin = at;
    while (at < text.size() && !IsPythonSpace(DecodeAt(text, at, &length))) at += length;
    parts.push_back(text.substr(begin, at - begin));
  }
}

std::vector<std::string_view> SplitFromRight(std::string_view text, const std::string_view* separator, int64_t limit) {
  if (limit < 0) return Split(text, separator, -1);
  std::vector<std::string_view> parts;
  if (separator != nullptr) {
    while (static_cast<int64_t>(parts.size()) < limit) {
      const size_t found = text.rfind(*separator);
      if (found == text.npos) break;
      parts.push_back(text.substr(found + separator->size()));
      text = text.substr(0, found);
    }
    parts.push_back(text);
  } else {
    while (true) {
      text = Strip(text, nullptr, false, true);
      if (text.empty()) break;
      if (static_cast<int64_t>(parts.size()) == limit) {
        parts.push_back(Strip(text, nullptr, true, false));
        break;
      }
      size_t begin = text.size(), length = 0;
      while (begin > 0) {
        const size_t last = LastStart(text, begin);
        if (IsPythonSpace(DecodeAt(text, last, &length))) break;
        begin = last;
      }
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0, length = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = DecodeAt(text, at, &length);
    if (!IsLineEnd(c)) {
      at += length;
      continue;
    }
    const size_t end = c == '\r' && at + 1 < text.size() && text[at + 1] == '\n' ? at + 2 : at + length;
    lines.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
    begin = at = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  size_t at = 0, length = 0;
  if (from.empty()) {
    for (; at < text.size() && limit != 0; at += length, --limit) {
      DecodeAt(text, at, &length);
      out.append(to).append(text.substr(at, length));
    }
    out.append(text.substr(at));
    return limit == 0 ? out : out.append(to);
  }
  for (size_t found = text.find(from); found != text.npos && limit != 0; found = text.find(from, at), --limit) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

void AppendRepr(std::string_view text, std::string& out) {
  const char quote = Contains(text, "'") && !Contains(text, "\"") ? '"' : '\'';
  out += quote;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = DecodeAt(text, at, &length);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if ((c >= 0x20 && c < 0x7F) || (c >= 0x80 && length > 1 && IsPrintable(c))) {
      out.append(text.substr(at, length));
    } else {
      char escape[12];
      std::snprintf(escape, sizeof(escape),
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += escape;
    }
  }
  out += quote;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  // d.ddde+XX
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    char suffix[16];
    std::snprintf(suffix, sizeof(suffix), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + suffix;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out.append(digits, 0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace lockstep::text::jinja
