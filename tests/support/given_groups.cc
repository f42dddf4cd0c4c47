#include "support/given_groups.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> groups_below(const std::string& path) {
  std::vector<std::string> found;
  std::error_code failed;
  auto it = fs::recursive_directory_iterator(path, failed);
  while (!failed && it != fs::recursive_directory_iterator()) {
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      found.push_back(it->path());
    }
    it.increment(failed);
  }
  return found;
}

}  // namespace

GivenGroups::GivenGroups() : path_("/carrel-e2e-" + std::to_string(::getpid())) {
  for (const std::string& mount : group_mounts()) {
    // A v2 group has the controllers that the one above passes on.
    if (::access((mount + "/cgroup.subtree_control").c_str(), F_OK) == 0) {
      for (const char* controller : {"+memory", "+pids", "+cpu"}) {
        std::ofstream(mount + "/cgroup.subtree_control") << controller;
      }
    }
    const std::string group = mount + path_;
    if (::mkdir(group.c_str(), 0755) != 0) {
      std::perror(group.c_str());
      std::abort();
    }
    place().give(group, As::kUser);
    for (const char* file : {"cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.threads"}) {
      const std::string name = group + "/" + file;
      if (::access(name.c_str(), F_OK) == 0) {
        place().give(name, As::kUser);
      }
    }
    // A new cpuset has no processors, and nothing can be moved into it before it has some.
    for (const char* file : {"cpuset.cpus", "cpuset.mems"}) {
      if (auto above = read_text(mount + "/" + file);
          above.has_value() && ::access((group + "/" + file).c_str(), F_OK) == 0) {
        write_text(group + "/" + file, *above);
      }
    }
  }
}

GivenGroups::~GivenGroups() {
  for (const std::string& mount : group_mounts()) {
    const std::string group = mount + path_;
    const std::vector<std::string> below = groups_below(group);
    for (auto one = below.rbegin(); one != below.rend(); ++one) {
      ::rmdir(one->c_str());
    }
    eventually(std::chrono::seconds(2),
               [&] { return ::rmdir(group.c_str()) == 0 || errno == ENOENT; });
  }
}

Run GivenGroups::carrel(std::vector<std::string> arguments, const Options& options) const {
  // A shell of root's goes into the groups, becomes the user and then the program.
  Launch inner = place().launch(As::kUser, std::move(arguments), options);
  std::string script;
  for (const std::string& mount : group_mounts()) {
    script += "echo $$ > " + mount + path_ + "/cgroup.procs || exit 254\n";
  }
  script += "exec setpriv --reuid " + std::to_string(inner.uid) + " --regid " +
            std::to_string(inner.gid) + " --clear-groups -- \"$0\" \"$@\"\n";
  Launch outer = inner;
  outer.switch_user = false;
  outer.program = "/bin/sh";
  outer.arguments = {"-c", script, inner.program};
  outer.arguments.insert(outer.arguments.end(), inner.arguments.begin(), inner.arguments.end());
  Process process(outer);
  process.write(options.input);
  return process.wait(std::chrono::seconds(options.timeout_seconds));
}

std::string GivenGroups::left() const {
  std::string text;
  for (const std::string& mount : group_mounts()) {
    for (const std::string& group : groups_below(mount + path_)) {
      // A leaf of that name is for the program itself.
      if (!group.ends_with("/carrel-self")) {
        text += group + "\n";
      }
    }
  }
  return text;
}

}  // namespace carrel::test
