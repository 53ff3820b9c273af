// A command that runs beside the test.
#ifndef LOCKSTEP_TESTS_INTEGRATION_RUNNING_H_
#define LOCKSTEP_TESTS_INTEGRATION_RUNNING_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "tests/integration/tiny_run.h"

namespace lockstep {

class Running {
 public:
  // `exec`s the command line in a shell of its own; what it prints goes to `output_path`.
  Running(const std::string& command, const std::string& output_path);
  ~Running();  // kills it
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  // Waits for the end, at most two minutes.
  Outcome Wait();

 private:
  const std::string output_path_;
  pid_t pid_ = -1;  // -1: reaped
};

// Looks again and again, for at most a minute; false if `condition` stayed false.
bool Eventually(const std::function<bool()>& condition);

bool ProcessExists(pid_t pid);  // a zombie does not
pid_t ParentOf(pid_t pid);      // -1 if there is no such process

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_INTEGRATION_RUNNING_H_
