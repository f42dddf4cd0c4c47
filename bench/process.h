#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::bench {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

// A program to start, with nothing of the benchmark's own environment.
struct Launch {
  std::vector<std::string> arguments;    // the first is the program's absolute path
  std::vector<std::string> environment;  // NAME=VALUE; PATH is always set
  std::optional<User> user;              // absent: root
  std::string group;                     // a file to write "0" to first; empty: no group
};

// Where its three standard descriptors go. -1 is /dev/null.
struct Descriptors {
  int input = -1;
  int output = -1;
  int error = -1;
};

enum class Tracing { kNo, kYes };

// Starts it without copying the benchmark's memory, so that every contender pays the same little.
// Any number of threads may do so at once.
Result<pid_t> start(const Launch& launch, const Descriptors& descriptors,
                    Tracing tracing = Tracing::kNo);

// How many milliseconds it takes from the start until it is reaped. Anything but exit status 0 is
// an error, here and below, with the last line of its stderr.
Result<double> time_run(const Launch& launch);

// Runs it and returns its output without the last newline.
Result<std::string> output_of(const Launch& launch);

// Milliseconds of a clock that only goes forward.
double now_ms();

// The absolute path of a program on the PATH; empty if there is none.
std::string find_program(const std::string& name);

// A program on two pipes. The destructor ends it and waits for it.
class PipedProcess {
 public:
  static Result<PipedProcess> start(const Launch& launch);
  PipedProcess() = default;
  PipedProcess(PipedProcess&& other) noexcept;
  PipedProcess& operator=(PipedProcess&& other) noexcept;
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;
  ~PipedProcess() { end(); }

  // Sends the text and reads until the output ends with `mark`; returns what came, mark included.
  Result<std::string> ask(const std::string& text, const std::string& mark);
  // Closes its input, gives it a moment to leave and ends it if it does not.
  void end();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
};

}  // namespace carrel::bench
