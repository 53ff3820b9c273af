#include "text/jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {
namespace {

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      const size_t open = FindOpen();
      Text(open);
      if (open == std::string::npos) break;
      at_ = open;
      if (source_[open + 1] == '#') {
        Comment();
      } else {
        Code();
      }
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  static bool IsBlank(char c) { return c == ' ' || c == '\t'; }

  size_t FindOpen() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  // Text from at_ up to the tag at `open`, trimmed by the tags on both sides.
  void Text(size_t open) {
    const size_t end = open == std::string::npos ? source_.size() : open;
    std::string text = source_.substr(at_, end - at_);
    const size_t newlines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    if (strip_next_) {
      text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    } else if (trim_newline_ && !text.empty() && text[0] == '\n') {
      text.erase(0, 1);
    }
    if (open != std::string::npos) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (mark == '-') {
        while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
      } else if (mark != '+' && source_[open + 1] != '{') {
        StripLine(text);
      }
    }
    if (!text.empty()) Add(Token::Kind::kText, text);
    line_ += static_cast<int>(newlines);
    strip_next_ = trim_newline_ = false;
  }

  // lstrip_blocks: blanks between the start of the line and a block go.
  void StripLine(std::string& text) {
    size_t keep = text.size();
    while (keep > 0 && IsBlank(text[keep - 1])) --keep;
    const bool at_line_start = keep > 0 ? text[keep - 1] == '\n' : (tokens_.empty() || after_newline_);
    if (at_line_start) text.resize(keep);
  }

  void Comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == std::string::npos) throw TemplateError{"a comment is not closed with #}", line_};
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + close, '\n'));
    strip_next_ = close > at_ + 2 && source_[close - 1] == '-';
    trim_newline_ = true;
    at_ = close + 2;
    NoteNewline();
  }

  void NoteNewline() { after_newline_ = at_ > 0 && at_ < source_.size() && source_[at_] == '\n'; }

  void Code() {
    const bool print = source_[at_ + 1] == '{';
    Add(print ? Token::Kind::kBeginPrint : Token::Kind::kBeginBlock, "");
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    const std::string_view close = print ? "}}" : "%}";
    int depth = 0;  // a dict may end in }}
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) throw TemplateError{"a tag is not closed", line_};
      const std::string_view rest = std::string_view(source_).substr(at_);
      const bool strip = rest[0] == '-' && rest.substr(1, 2) == close;
      const bool keep = rest[0] == '+' && rest.substr(1, 2) == close;
      if (depth == 0 && (strip || keep || rest.substr(0, 2) == close)) {
        at_ += strip || keep ? 3 : 2;
        Add(print ? Token::Kind::kEndPrint : Token::Kind::kEndBlock, "");
        strip_next_ = strip;
        trim_newline_ = !print && !keep;
        NoteNewline();
        return;
      }
      if (rest[0] == '{' || rest[0] == '[' || rest[0] == '(') ++depth;
      if (rest[0] == '}' || rest[0] == ']' || rest[0] == ')') --depth;
      One();
    }
  }

  void SkipSpace() {
    while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_]))) {
      if (source_[at_] == '\n') ++line_;
      ++at_;
    }
  }

  void One() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') {
      String(c);
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      Number();
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      const size_t begin = at_;
      while (at_ < source_.size() && (std::isalnum(static_cast<unsigned char>(source_[at_])) || source_[at_] == '_'))
        ++at_;
      Add(Token::Kind::kName, source_.substr(begin, at_ - begin));
    } else {
      Operator();
    }
  }

  void String(char quote) {
    std::string text;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      char c = source_[at_];
      if (c == '\n') ++line_;
      if (c == '\\' && at_ + 1 < source_.size()) {
        const char escaped = source_[++at_];
        switch (escaped) {
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'r':
            c = '\r';
            break;
          case '\\':
          case '\'':
          case '"':
            c = escaped;
            break;
          default:
            text += '\\';
            c = escaped;
        }
      }
      text += c;
    }
    if (at_ >= source_.size()) throw TemplateError{"a string is not closed", line_};
    ++at_;
    Add(Token::Kind::kString, text);
  }

  void Number() {
    const size_t begin = at_;
    bool is_float = false;
    while (at_ < source_.size() && std::isdigit(static_cast<unsigned char>(source_[at_]))) ++at_;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && std::isdigit(static_cast<unsigned char>(source_[at_ + 1]))) {
      is_float = true;
      for (++at_; at_ < source_.size() && std::isdigit(static_cast<unsigned char>(source_[at_])); ++at_) {
      }
    }
    if (at_ - begin > 18) throw TemplateError{"a number is too long", line_};
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, source_.substr(begin, at_ - begin));
  }

  void Operator() {
    static constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
    const std::string_view two = std::string_view(source_).substr(at_, 2);
    for (std::string_view candidate : kTwo) {
      if (two == candidate) {
        Add(Token::Kind::kOperator, std::string(two));
        at_ += 2;
        return;
      }
    }
    static constexpr std::string_view kOne = "+-*/%~<>=()[]{}.,:|";
    if (kOne.find(source_[at_]) == std::string_view::npos) {
      throw TemplateError{std::string("unexpected character '") + source_[at_] + "'", line_};
    }
    Add(Token::Kind::kOperator, std::string(1, source_[at_]));
    ++at_;
  }

  void Add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool strip_next_ = false;     // the last tag ended in "-"
  bool trim_newline_ = false;   // the last tag was a block or comment
  bool after_newline_ = false;  // what follows the last tag is a newline that will be trimmed
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(const std::string& source) { return Lexer(source).Run(); }

}  // namespace lockstep::text::jinja
