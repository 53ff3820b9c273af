// Regular expressions that cut a text into pieces (PCRE2, UTF-8). Immutable after construction; thread-safe.
#ifndef LOCKSTEP_TEXT_SPLITTER_H_
#define LOCKSTEP_TEXT_SPLITTER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::text {

class Splitter {
 public:
  // InvalidArgument names the pattern and what is wrong with it.
  static absl::StatusOr<Splitter> Make(const std::string& pattern);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // Appends the matches and what lies between them, in order ("isolated").
  void Split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  explicit Splitter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_SPLITTER_H_
