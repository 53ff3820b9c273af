// Decides, once per template, where each name is to be found, so that rendering looks nothing up by text.
//
// Scopes as Jinja has them: the template's top level, every for (its targets, `loop`, and what its body sets, anew in
// each round), the blocks of set, filter, with, call and generation, and every macro. `if` opens none. A macro sees
// what encloses its definition, at the time it is called; the caller's own scopes it does not see.
#ifndef LOCKSTEP_TEXT_JINJA_RESOLVER_H_
#define LOCKSTEP_TEXT_JINJA_RESOLVER_H_

#include "text/jinja/ast.h"

namespace lockstep::text::jinja {

void Resolve(Program& program);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_RESOLVER_H_
