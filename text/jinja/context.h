// What builtins see of a rendering.
#ifndef LOCKSTEP_TEXT_JINJA_CONTEXT_H_
#define LOCKSTEP_TEXT_JINJA_CONTEXT_H_

#include <cstdint>
#include <ctime>
#include <optional>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

// A hostile template ends with an error, not with the machine.
struct Limits {
  int64_t max_steps = 10'000'000;          // nodes of the tree walked and items visited; under a second
  int64_t max_bytes = int64_t{512} << 20;  // of everything ever built in one rendering
  int64_t max_output_bytes = int64_t{64} << 20;
  int max_depth = 1000;  // evaluation within evaluation: macros that call each other, above all
};

class Context {
 public:
  Context(const Limits& limits, bool mutable_sandbox, std::optional<std::tm> now)
      : heap(limits.max_bytes), mutable_sandbox(mutable_sandbox), now(now), steps_left_(limits.max_steps) {}

  void Step(int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) [[unlikely]]
      Fail("the template runs for too long");
  }

  Heap heap;
  const bool mutable_sandbox;        // append, pop and their like are allowed
  const std::optional<std::tm> now;  // the clock of strftime_now; the system's if not set

 private:
  int64_t steps_left_;
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_CONTEXT_H_
