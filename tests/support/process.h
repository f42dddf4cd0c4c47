#pragma once

#include <sys/types.h>

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

namespace carrel::test {

// Who starts the program: root, or the ordinary user of the tests (see place.h).
enum class As { kRoot, kUser };

std::string name_of(As as);
void PrintTo(As as, std::ostream* out);  // for GoogleTest

struct Options {
  std::string input = {};                     // the standard input, closed after it
  std::vector<std::string> environment = {};  // NAME=VALUE, over the few that are always set
  int timeout_seconds = 60;                   // then it is killed: Run::timed_out
  std::string directory = {};                 // the working directory; empty: an empty one
};

struct Run {
  int status = -1;  // the exit status; -1 after a signal
  int signal = 0;
  std::string out;
  std::string err;
  bool timed_out = false;
  std::chrono::milliseconds duration{0};
  long max_rss_kib = 0;  // of it and everything that it waited for
};

// Everything that a program needs to start.
struct Launch {
  std::string program;
  std::vector<std::string> arguments;  // without the program's own name
  std::vector<std::string> environment;
  std::string directory;
  bool switch_user = false;
  uid_t uid = 0;
  gid_t gid = 0;
  bool terminal = false;  // a pseudo-terminal, its own, as all three streams
};

// A program that this test started. The destructor kills it and waits for it.
class Process {
 public:
  explicit Process(const Launch& launch);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& out() const { return run_.out; }
  [[nodiscard]] const std::string& err() const { return run_.err; }

  // Writes all of it; reads output meanwhile, so that neither side waits for the other.
  void write(const std::string& text);
  void close_input();
  // Of a terminal: types until nobody takes any more of it. Returns how much that was.
  std::size_t type_until_full(const std::string& text);
  void send(int signal) const;
  // Reads output until `text` is in it; false when a Deadline of that length (see patience.h) is
  // over or the program ended first.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds patience);
  // The same for its standard error.
  bool wait_for_error(const std::string& text, std::chrono::milliseconds patience);
  // Reads output for exactly this long, or until `text` is in it: for what must not be said.
  bool says_within(std::chrono::milliseconds length, const std::string& text);
  // Closes its input, reads everything and waits for the end. After a Deadline of that length it
  // is killed.
  Run wait(std::chrono::milliseconds patience);
  // Closes this side's end of its standard output.
  void close_output();

 private:
  // Serves the pipes once, for at most `patience`; what is left of `input` is sent.
  void serve(std::chrono::milliseconds patience, std::string_view* input);
  bool reap(int flags);
  [[nodiscard]] bool has_said(const std::string& text) const {
    return run_.out.find(text) != std::string::npos;
  }

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  int error_ = -1;
  bool ended_ = false;
  std::chrono::steady_clock::time_point started_;
  Run run_;
};

}  // namespace carrel::test
