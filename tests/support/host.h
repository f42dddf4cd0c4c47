#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/patience.h"

namespace carrel::test {

// What the tests read from the host: processes, files, control groups.

struct HostProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

// Every live process below this one, however often they forked: the tests are a child subreaper, so
// that an orphan of a sandbox stays theirs. Zombies are not live.
std::vector<HostProcess> descendants();

// Of those, the ones that are `carrel COMMAND`: a keeper, or what serves the networks of sandboxes,
// where the one that works has one above it.
std::vector<HostProcess> processes_of(const std::string& command);

// Whether it is the nursery of a keeper, or waits there for a sandbox: it belongs to the
// installation and to no sandbox.
bool is_nursery(const HostProcess& process);

// A line of /proc/PID/status without its name; empty if the process or the line is missing.
std::string status_field(pid_t pid, const std::string& name);

std::optional<std::string> read_text(const std::string& path);
// Aborts when it cannot: a test without its files means nothing.
void write_text(const std::string& path, const std::string& text, mode_t mode = 0644);

// The lines of mountinfo in this process's own mount namespace, into which no neighbour mounts.
std::set<std::string> mounts_here();
// The lines that are new, and those that are gone although what they were mounted on is there. A
// neighbour that removes its own folder takes a mount away that was on it, in every namespace.
std::string harm_to_mounts(const std::set<std::string>& before, const std::set<std::string>& after);

// What a bind mount of an absolute path has as its root in mountinfo, spelled as it is there: the
// path itself where / is a whole disk, "/@/usr" where it is the subvolume "@".
std::string path_in_its_file_system(const std::string& path);

// Where each hierarchy of control groups is mounted.
std::vector<std::string> group_mounts();
// The mount of a v1 controller; empty if there is none.
std::string v1_mount(const std::string& controller);

// The control groups of an installation's sandboxes, each with what is below it, in all
// hierarchies.
std::vector<std::string> groups_of(const std::string& label);
// Removes them, innermost first, and everything else that is named after the installation.
void remove_groups(const std::string& label);
// One that a one-shot left for the next, with nobody in it.
bool is_idle_place(const std::string& group);

// A number from the environment, for a test that can be made longer.
unsigned long number_from(const char* variable, unsigned long otherwise);

}  // namespace carrel::test
