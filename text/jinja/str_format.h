// Python's two ways of filling a text: "{:>4}".format(x) and "%d" % x.
#ifndef LOCKSTEP_TEXT_JINJA_STR_FORMAT_H_
#define LOCKSTEP_TEXT_JINJA_STR_FORMAT_H_

#include <string_view>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

// Fields by position, number or keyword, with attributes and items ({0.name[key]}), !r and !s, and format specs.
Value BraceFormat(Context& context, std::string_view format, const Arguments& arguments);
// `values`: a tuple for several fields, a dict for named ones, else the one value.
Value PercentFormat(std::string_view format, const Value& values, Heap& heap);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_STR_FORMAT_H_
