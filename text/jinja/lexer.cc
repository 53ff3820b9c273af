#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/python_text.h"
#include "text/jinja/value.h"

namespace lockstep::text::jinja {
namespace {

using TokenKind = Token::Kind;

// \r\n and \r become \n; one trailing newline goes.
std::string Normalise(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

class Lexer {
 public:
  Lexer(const std::string& source, std::deque<std::string>& texts) : texts_(texts) {
    texts_.push_back(Normalise(source));
    source_ = texts_.back();
  }

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      const size_t open = FindOpen(at_);
      Data(open);
      if (open >= source_.size()) break;
      at_ = open;
      if (source_[open + 1] == '#') {
        Comment();
      } else if (!Raw()) {
        Code();
      }
    }
    Add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Error(std::string message) const { throw TemplateError{std::move(message), line_}; }

  size_t FindOpen(size_t from) const {
    for (size_t i = source_.find('{', from); i != source_.npos && i + 1 < source_.size();
         i = source_.find('{', i + 1)) {
      if (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#') return i;
    }
    return source_.size();
  }

  // Text from at_ up to the tag at `open`, trimmed by the tags on both sides.
  void Data(size_t open) {
    std::string_view text = source_.substr(at_, open - at_);
    const auto newlines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    text = TrimStart(text);
    if (open < source_.size()) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
      text = TrimEnd(text, mark, /*block=*/source_[open + 1] != '{');
    }
    if (!text.empty()) Add(TokenKind::kText, text);
    line_ += newlines;
  }

  // After a tag: "-" takes all white space, a block or comment takes one newline.
  std::string_view TrimStart(std::string_view text) {
    at_line_start_ = at_ == 0;
    if (strip_next_) {
      text = Strip(text, nullptr, true, false);
    } else if (trim_newline_ && text.starts_with('\n')) {
      text.remove_prefix(1);
      at_line_start_ = true;
    }
    strip_next_ = trim_newline_ = false;
    return text;
  }

  // Before a tag: "-" takes all white space, a block or comment takes the blanks since the start of the line.
  std::string_view TrimEnd(std::string_view text, char mark, bool block) const {
    if (mark == '-') return Strip(text, nullptr, false, true);
    if (mark == '+' || !block) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 if there is none
    const bool starts_line = line > 0 || at_line_start_;
    if (starts_line && Strip(text.substr(line), nullptr, true, false).empty()) return text.substr(0, line);
    return text;
  }

  void CountLines(size_t from, size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<int64_t>(from), source_.begin() + static_cast<int64_t>(to), '\n'));
  }

  void Comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == source_.npos) Error("Missing end of comment tag");
    CountLines(at_, close);
    EndTag(close > at_ + 2 ? source_[close - 1] : '\0', /*block=*/true);
    at_ = close + 2;
  }

  void EndTag(char mark, bool block) {
    strip_next_ = mark == '-';
    trim_newline_ = block && mark != '+';
  }

  // The position behind `{% name %}` at `at`, or 0; the marks before its ends.
  size_t MatchBareBlock(size_t at, std::string_view name, char* begin_mark, char* end_mark) const {
    if (source_.substr(at, 2) != "{%") return 0;
    at += 2;
    *begin_mark = *end_mark = '\0';
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) *begin_mark = source_[at++];
    at = SkipSpaceFrom(at);
    if (source_.substr(at, name.size()) != name) return 0;
    at = SkipSpaceFrom(at + name.size());
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) *end_mark = source_[at++];
    return source_.substr(at, 2) == "%}" ? at + 2 : 0;
  }

  // {% raw %} ... {% endraw %}: true if there was one at at_.
  bool Raw() {
    char begin = 0, end = 0;
    const size_t inside = MatchBareBlock(at_, "raw", &begin, &end);
    if (inside == 0) return false;
    CountLines(at_, inside);
    const bool strip = end == '-';
    for (size_t close = source_.find("{%", inside); close != source_.npos; close = source_.find("{%", close + 2)) {
      const size_t behind = MatchBareBlock(close, "endraw", &begin, &end);
      if (behind == 0) continue;
      std::string_view text = source_.substr(inside, close - inside);
      if (strip) text = Strip(text, nullptr, true, false);
      at_line_start_ = false;
      text = TrimEnd(text, begin, /*block=*/true);
      if (!text.empty()) Add(TokenKind::kText, text);
      CountLines(inside, behind);
      EndTag(end, /*block=*/true);
      at_ = behind;
      return true;
    }
    Error("Missing end of raw directive");
  }

  void Code() {
    const bool print = source_[at_ + 1] == '{';
    Add(print ? TokenKind::kBeginPrint : TokenKind::kBeginBlock, {});
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    const std::string_view close = print ? "}}" : "%}";
    std::string open_brackets;  // a dict may end in }}
    while (true) {
      const size_t from = at_;
      at_ = SkipSpaceFrom(at_);
      CountLines(from, at_);
      if (at_ >= source_.size()) Error("unexpected end of template: a tag is not closed");
      const std::string_view rest = source_.substr(at_);
      const char mark = rest[0] == '-' || (rest[0] == '+' && !print) ? rest[0] : '\0';
      if (open_brackets.empty() && rest.substr(mark != '\0' ? 1 : 0, 2) == close) {
        at_ += mark != '\0' ? 3 : 2;
        Add(print ? TokenKind::kEndPrint : TokenKind::kEndBlock, {});
        EndTag(mark, !print);
        return;
      }
      Balance(rest[0], open_brackets);
      One();
    }
  }

  void Balance(char c, std::string& open) const {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(c) != kOpen.npos) open += kClose[kOpen.find(c)];
    if (kClose.find(c) == kClose.npos) return;
    if (open.empty()) Error(std::string("unexpected '") + c + "'");
    if (open.back() != c) Error(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
    open.pop_back();
  }

  size_t SkipSpaceFrom(size_t at) const {
    for (size_t length = 0; at < source_.size() && IsPythonSpace(DecodeAt(source_, at, &length)); at += length) {
    }
    return at;
  }

  void One() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return String(c);
    if (IsDigit(c)) return Number();
    if (!IsNameStart(c)) return Symbol();
    const size_t begin = at_;
    while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
    Add(TokenKind::kName, source_.substr(begin, at_ - begin));
  }

  void String(char quote) {
    const size_t begin = ++at_;
    bool escaped = false;
    for (; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] != '\\') continue;
      escaped = true;
      if (++at_ >= source_.size()) break;
    }
    if (at_ >= source_.size()) Error("a string is not closed");
    const std::string_view text = source_.substr(begin, at_ - begin);
    ++at_;
    if (escaped) texts_.push_back(Unescape(text));
    Add(TokenKind::kString, escaped ? std::string_view(texts_.back()) : text);
    CountLines(begin, at_);
  }

  std::string Unescape(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '\\' || at + 1 >= text.size()) {
        out += text[at++];
        continue;
      }
      at = Escape(text, at + 1, out);
    }
    return out;
  }

  // The escape whose letter is at `at`; returns the position behind it. Unknown ones keep their backslash, as in
  // Python.
  size_t Escape(std::string_view text, size_t at, std::string& out) const {
    static constexpr std::string_view kLetters = "ntr\\'\"abfv", kMeanings = "\n\t\r\\'\"\a\b\f\v";
    const char letter = text[at];
    if (const size_t known = kLetters.find(letter); known != kLetters.npos) {
      out += kMeanings[known];
      return at + 1;
    }
    if (letter == '\n') return at + 1;
    if (letter >= '0' && letter <= '7') {
      char32_t code = 0;
      size_t end = at;
      for (; end < text.size() && end < at + 3 && text[end] >= '0' && text[end] <= '7'; ++end)
        code = code * 8 + static_cast<char32_t>(text[end] - '0');
      AppendUtf8(code, out);
      return end;
    }
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits == 0) {
      out += '\\';
      out += letter;
      return at + 1;
    }
    char32_t code = 0;
    for (size_t i = 1; i <= digits; ++i) {
      const char c = at + i < text.size() ? text[at + i] : '\0';
      const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      if (c == '\0' || digit == std::string_view::npos) Error("truncated escape in a string");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) Error("an escape in a string is no character");
    AppendUtf8(code, out);
    return at + digits + 1;
  }

  void Number() {
    const size_t begin = at_;
    const auto digits = [&] {
      while (at_ < source_.size() && (IsDigit(source_[at_]) || source_[at_] == '_')) ++at_;
    };
    if (source_[at_] == '0' && at_ + 1 < source_.size() &&
        std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos) {
      at_ += 2;
      while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
      return Add(TokenKind::kInteger, source_.substr(begin, at_ - begin));
    }
    digits();
    bool is_float = false;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && IsDigit(source_[at_ + 1])) {
      is_float = true;
      ++at_;
      digits();
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      const size_t sign = at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-') ? 1 : 0;
      if (at_ + 1 + sign < source_.size() && IsDigit(source_[at_ + 1 + sign])) {
        is_float = true;
        at_ += 1 + sign;
        digits();
      }
    }
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, source_.substr(begin, at_ - begin));
  }

  void Symbol() {
    static constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
    const std::string_view two = source_.substr(at_, 2);
    const size_t size = std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo) ? 2 : 1;
    static constexpr std::string_view kOne = "+-*/%~<>=()[]{}.,:|";
    if (size == 1 && kOne.find(source_[at_]) == kOne.npos) {
      Error(std::string("unexpected char '") + source_[at_] + "'");
    }
    Add(TokenKind::kOperator, source_.substr(at_, size));
    at_ += size;
  }

  void Add(TokenKind kind, std::string_view text) { tokens_.push_back({kind, line_, text}); }

  std::deque<std::string>& texts_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool strip_next_ = false;     // the last tag ended in "-"
  bool trim_newline_ = false;   // the last tag was a block or comment
  bool at_line_start_ = false;  // the text at hand begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(const std::string& source, std::deque<std::string>& texts) {
  return Lexer(source, texts).Run();
}

}  // namespace lockstep::text::jinja
