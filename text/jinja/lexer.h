// Tokens of a template, with Jinja's white space rules as chat templates use them: trim_blocks and lstrip_blocks on,
// one trailing newline of the template dropped, "-" and "+" marks honoured.
#ifndef LOCKSTEP_TEXT_JINJA_LEXER_H_
#define LOCKSTEP_TEXT_JINJA_LEXER_H_

#include <string>
#include <vector>

namespace lockstep::text::jinja {

struct Token {
  enum class Kind {
    kText,
    kBeginPrint,
    kEndPrint,
    kBeginBlock,
    kEndBlock,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// Throws TemplateError.
std::vector<Token> Tokenize(const std::string& source);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_LEXER_H_
