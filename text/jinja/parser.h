// Tokens to a syntax tree, with Jinja's precedence.
#ifndef LOCKSTEP_TEXT_JINJA_PARSER_H_
#define LOCKSTEP_TEXT_JINJA_PARSER_H_

#include <string>

#include "text/jinja/ast.h"

namespace lockstep::text::jinja {

// Throws TemplateError (line and what was expected). Nesting deeper than 200 is an error.
Body Parse(const std::string& source);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_PARSER_H_
