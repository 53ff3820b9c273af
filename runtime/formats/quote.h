// Names out of files, as they may appear in a message.
#ifndef LOCKSTEP_RUNTIME_FORMATS_QUOTE_H_
#define LOCKSTEP_RUNTIME_FORMATS_QUOTE_H_

#include <string>

namespace lockstep::formats {

// In quotes; long names are cut, bytes that a terminal might obey or that are not ASCII become '?'.
inline std::string Quote(const std::string& text) {
  constexpr size_t kMaxShown = 120;
  std::string shown = "'";
  for (const char c : text.substr(0, kMaxShown)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return shown + (text.size() > kMaxShown ? "...'" : "'");
}

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_QUOTE_H_
