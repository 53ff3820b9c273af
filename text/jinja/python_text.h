// Python's str in UTF-8: code points, white space, case, repr, str.format and the % operator.
//
// Indices and lengths are in code points; invalid UTF-8 counts one for each byte.
#ifndef LOCKSTEP_TEXT_JINJA_PYTHON_TEXT_H_
#define LOCKSTEP_TEXT_JINJA_PYTHON_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text::jinja {

// The code point at byte `at` and its length in bytes (1 for an invalid byte, whose value is then returned).
char32_t DecodeAt(std::string_view text, size_t at, size_t* length);
void AppendUtf8(char32_t code_point, std::string& out);
int64_t CountCodePoints(std::string_view text);
// Byte offset of code point `index`; text.size() behind the end.
size_t ByteOffset(std::string_view text, int64_t index);

bool IsPythonSpace(char32_t c);  // str.isspace
bool IsAlphabetic(char32_t c);   // str.isalpha
bool IsNumeric(char32_t c);      // str.isnumeric, nearly: general category N
bool IsDecimal(char32_t c);      // str.isdecimal: general category Nd
bool IsUpper(char32_t c);
bool IsLower(char32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string TitleCase(std::string_view text);
std::string SwapCase(std::string_view text);

// strip(characters); `characters` null: white space.
std::string_view Strip(std::string_view text, const std::string_view* characters, bool left, bool right);
// split(separator, limit); `separator` null: runs of white space. limit < 0: none.
std::vector<std::string_view> Split(std::string_view text, const std::string_view* separator, int64_t limit);
std::vector<std::string_view> SplitFromRight(std::string_view text, const std::string_view* separator, int64_t limit);
// \n, \r, \r\n and the other line ends of Python; kept or not.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);
// At most `limit` replacements (< 0: all). An empty `from` stands before every character and at the end.
std::string Replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit);

// repr(text): Python's choice of quotes and escapes.
void AppendRepr(std::string_view text, std::string& out);
// repr(value): the shortest digits that read back the same.
std::string FloatRepr(double value);
// & < > ' " as HTML entities, as MarkupSafe writes them.
std::string EscapeHtml(std::string_view text);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_PYTHON_TEXT_H_
