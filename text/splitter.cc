#include "text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"

namespace lockstep::text {

struct Splitter::Impl {
  pcre2_code* code = nullptr;
  ~Impl() { pcre2_code_free(code); }
};

Splitter::Splitter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

absl::StatusOr<Splitter> Splitter::Make(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (impl->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(absl::StrCat(
        "the splitting pattern '", pattern, "' is not usable: ", reinterpret_cast<char*>(message), " at ", offset));
  }
  pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);
  return Splitter(std::move(impl));
}

void Splitter::Split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(impl_->code, nullptr), pcre2_match_data_free);
  size_t done = 0, at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0, match.get(), nullptr);
    if (found < 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    if (ends[1] == ends[0]) {  // an empty match cuts nothing
      at = ends[1] + 1;
      continue;
    }
    if (ends[0] > done) pieces.push_back(text.substr(done, ends[0] - done));
    pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = at = ends[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace lockstep::text
