// Builds a Program's tree from a template's source: the grammar of Jinja 3.1 with loop controls and transformers'
// {% generation %}; without inheritance, includes and recursive loops, which chat templates cannot use.
#ifndef LOCKSTEP_TEXT_JINJA_PARSER_H_
#define LOCKSTEP_TEXT_JINJA_PARSER_H_

#include <string>

#include "text/jinja/ast.h"

namespace lockstep::text::jinja {

// Fills everything but what resolver.h adds. Throws TemplateError.
void Parse(const std::string& source, Program& program);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_PARSER_H_
