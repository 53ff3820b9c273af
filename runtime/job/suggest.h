// "did you mean": the nearest of several words.
#ifndef LOCKSTEP_RUNTIME_JOB_SUGGEST_H_
#define LOCKSTEP_RUNTIME_JOB_SUGGEST_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::job {

// Insertions, deletions and replacements of one character, and swaps of two neighbours, that turn `a` into `b`
// (optimal string alignment).
int EditDistance(std::string_view a, std::string_view b);

// The candidate at the smallest distance if it is near enough to be meant (a third of the longer word at most), else
// "". Ties: the first.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean <x>?" or "".
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SUGGEST_H_
