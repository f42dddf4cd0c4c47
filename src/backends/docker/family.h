#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Which of a host's processes work for which engine.
namespace carrel::docker {

struct HostProcess {
  std::string name;
  pid_t parent = 0;
  std::string words;  // what it was started with, each followed by a NUL; only where it is needed
  std::uint64_t started = 0;  // in ticks since the host's start
};
using HostProcesses = std::map<pid_t, HostProcess>;

// All that are there now.
HostProcesses look_around();

// Whether a program of that name does an engine's work, and whether what it starts does. Those that
// look after containers start the work of others.
bool works_for_engine(const std::string& name);
bool starts_helpers(const std::string& name);

// Whether it is a part of gVisor that was started then or later. Whoever waits for a sandbox since
// then waits for its work; one that is older works for its own sandbox.
bool builds_sandbox(const HostProcess& process, std::uint64_t since);
std::uint64_t ticks_now();

// The engine that a process works for: one that is known, one of some that share it, or none, as a
// runtime that somebody else has started.
struct Employer {
  enum class Kind { kNone, kSome, kKnown };
  Kind kind = Kind::kNone;
  pid_t engine = 0;
};
Employer employer_of(const HostProcesses& all, pid_t process);

// Whoever listens at a socket; 0: unknown, or somebody who opened it for an engine.
pid_t engine_at(const std::string& socket);

// What the text of /proc/PID/stat or of one of its tasks says.
struct TaskState {
  std::string name;
  char state = '?';
  pid_t parent = 0;
  std::uint64_t ticks = 0;
  std::uint64_t started = 0;
};
TaskState parse_task(const std::string& text);

// The numbers in a directory of /proc, and a short file of it.
std::vector<std::string> numbers_in(const std::string& directory);
std::string read_proc(const std::string& path);

}  // namespace carrel::docker
