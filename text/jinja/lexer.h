// Tokens of a template, with Jinja's white space rules as chat templates set them: trim_blocks and lstrip_blocks on,
// one trailing newline of the template dropped, "-" and "+" marks honoured, {% raw %} copied.
#ifndef LOCKSTEP_TEXT_JINJA_LEXER_H_
#define LOCKSTEP_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,
    kBeginPrint,
    kEndPrint,
    kBeginBlock,
    kEndBlock,
    kName,
    kString,  // text: the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string_view text;
};

// `texts` keeps what tokens point to. Throws TemplateError.
std::vector<Token> Tokenize(const std::string& source, std::deque<std::string>& texts);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_LEXER_H_
