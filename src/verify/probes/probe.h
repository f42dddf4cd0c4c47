#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

// The program that attacks from inside. Each probe is one function that tries one class of escape
// in as many spellings as it knows and reports what happened to each. It refuses to run in the
// mount namespace of the host: see main.cc.
namespace carrel::probe {

class Report {
 public:
  void held(std::string what);
  void open(std::string what);
  void not_applicable(std::string reason);

  // `result` is what a call that must fail returned; errno is still its own.
  void must_fail(std::string what, long result);
  // As must_fail, and only these reasons count as a refusal.
  void must_fail_with(std::string what, long result, std::span<const int> reasons);
  // Says that something is as it should be, or is not.
  using Fact = bool;
  void expect(std::string what, Fact holds);

  [[nodiscard]] bool is_open() const { return !open_.empty(); }
  // One line of JSON: the verdict is "open" if any attempt was, else "held", else "n/a".
  [[nodiscard]] std::string line(std::string_view probe) const;

 private:
  std::vector<std::string> held_;
  std::vector<std::string> open_;
  std::vector<std::string> not_applicable_;
};

using Arguments = std::span<char* const>;

struct Probe {
  const char* name;
  void (*run)(Report& report, Arguments arguments);
};

// The probes by subject; main.cc puts them together.
std::span<const Probe> file_probes();
std::span<const Probe> proc_probes();
std::span<const Probe> process_probes();
std::span<const Probe> privilege_probes();
std::span<const Probe> surface_probes();
std::span<const Probe> sharing_probes();
std::span<const Probe> limit_probes();
std::span<const Probe> memory_probes();
std::span<const Probe> network_probes();
std::span<const Probe> lasting_probes();

// What a process does that was left behind: nothing, for two minutes at most, whatever it is sent.
[[noreturn]] void stay();
inline constexpr char kStay[] = "--stay";

// Helpers.
std::string error_name(int number);
// Up to `limit` bytes of a file; empty when it cannot be read.
std::string read_some(const std::string& path, std::size_t limit);
bool can_read(const std::string& path);
std::vector<std::string> names_in(const std::string& directory);
// Runs `body` in a child and returns its wait status; a child that takes more than `seconds` is
// killed, and then the status is that of SIGALRM.
int in_child(void (*body)(void*), void* context, unsigned seconds);
bool has_argument(Arguments arguments, std::string_view name);

}  // namespace carrel::probe
