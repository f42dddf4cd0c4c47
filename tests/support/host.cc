#include "support/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "support/patience.h"

namespace carrel::test {

namespace {

std::optional<HostProcess> look_at(const std::string& pid) {
  auto text = read_text("/proc/" + pid + "/stat");
  if (!text.has_value()) {
    return std::nullopt;
  }
  const std::size_t open = text->find('(');
  const std::size_t close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos) {
    return std::nullopt;
  }
  HostProcess process;
  process.pid = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
  process.name = text->substr(open + 1, close - open - 1);
  std::istringstream rest(text->substr(close + 1));
  rest >> process.state >> process.parent;
  return process;
}

bool is_number(const std::string& text) {
  for (char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
      return false;
    }
  }
  return !text.empty();
}

std::string mount_point_of(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  for (int column = 0; column < 5; ++column) {
    words >> word;
  }
  return word;
}

}  // namespace

bool is_nursery(const HostProcess& process) { return process.name == "carrel-nursery"; }

std::vector<HostProcess> descendants() {
  std::map<pid_t, HostProcess> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (is_number(name)) {
      if (auto process = look_at(name)) {
        all[process->pid] = *process;
      }
    }
  }
  std::vector<HostProcess> found;
  for (const auto& [pid, process] : all) {
    pid_t above = process.parent;
    for (int depth = 0; above > 1 && above != ::getpid() && depth < 1000; ++depth) {
      auto next = all.find(above);
      above = next == all.end() ? 0 : next->second.parent;
    }
    if (above == ::getpid() && process.state != 'Z' && process.state != 'X') {
      found.push_back(process);
    }
  }
  return found;
}

std::vector<HostProcess> processes_of(const std::string& command) {
  std::vector<HostProcess> found = descendants();
  const std::string word = std::string(1, '\0') + command + std::string(1, '\0');
  std::erase_if(found, [&](const HostProcess& process) {
    const auto words = read_text("/proc/" + std::to_string(process.pid) + "/cmdline");
    return !words.has_value() || words->find(word) == std::string::npos;
  });
  return found;
}

std::string status_field(pid_t pid, const std::string& name) {
  std::istringstream lines(read_text("/proc/" + std::to_string(pid) + "/status").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(name + ":")) {
      const std::size_t start = line.find_first_not_of(" \t", name.size() + 1);
      return start == std::string::npos ? "" : line.substr(start);
    }
  }
  return "";
}

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file || ::chmod(path.c_str(), mode) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
}

std::string path_in_its_file_system(const std::string& path) {
  const int fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  std::istringstream about(read_text("/proc/self/fdinfo/" + std::to_string(fd)).value_or(""));
  ::close(fd);
  std::string wanted;
  for (std::string key, value; about >> key >> value;) {
    if (key == "mnt_id:") {
      wanted = value;
    }
  }
  std::istringstream lines(read_text("/proc/self/mountinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, parent, device, root, place;
    fields >> number >> parent >> device >> root >> place;
    if (number == wanted) {
      const std::string below = path.substr(place == "/" ? 0 : place.size());
      return root == "/" && !below.empty() ? below : root + below;
    }
  }
  return path;
}

std::vector<std::string> group_mounts() {
  std::istringstream lines(read_text("/proc/self/mounts").value_or(""));
  std::set<std::string> found;
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string source;
    std::string point;
    std::string type;
    words >> source >> point >> type;
    if (type == "cgroup" || type == "cgroup2") {
      found.insert(point);
    }
  }
  return {found.begin(), found.end()};
}

std::string v1_mount(const std::string& controller) {
  std::istringstream lines(read_text("/proc/self/mounts").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string source;
    std::string point;
    std::string type;
    std::string options;
    words >> source >> point >> type >> options;
    if (type == "cgroup" &&
        ("," + options + ",").find("," + controller + ",") != std::string::npos) {
      return point;
    }
  }
  return "";
}

std::vector<std::string> groups_of(const std::string& label) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  if (label.empty()) {
    return found;
  }
  // Anywhere: they are made at the top, in a group of carrel's, or in one that a user was given.
  const std::string name = "/carrel-" + label;
  for (const std::string& mount : group_mounts()) {
    std::error_code failed;
    auto it = fs::recursive_directory_iterator(mount, failed);
    for (; !failed && it != fs::recursive_directory_iterator(); it.increment(failed)) {
      std::error_code ignored;
      if (it->path().string().find(name) != std::string::npos && it->is_directory(ignored)) {
        found.push_back(it->path());
      }
    }
  }
  return found;
}

void remove_groups(const std::string& label) {
  const std::vector<std::string> all = groups_of(label);
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    ::rmdir(one->c_str());
  }
}

bool is_idle_place(const std::string& group) {
  return group.find("-place-") != std::string::npos &&
         read_text(group + "/cgroup.procs").value_or("?").empty();
}

unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

std::set<std::string> mounts_here() {
  std::istringstream all(read_text("/proc/self/mountinfo").value_or("missing"));
  std::set<std::string> lines;
  for (std::string line; std::getline(all, line);) {
    lines.insert(line);
  }
  return lines;
}

std::string harm_to_mounts(const std::set<std::string>& before,
                           const std::set<std::string>& after) {
  std::string harm;
  for (const std::string& line : after) {
    harm += before.contains(line) ? "" : "new: " + line + "\n";
  }
  for (const std::string& line : before) {
    struct stat info{};
    const bool is_there = ::lstat(mount_point_of(line).c_str(), &info) == 0;
    harm += after.contains(line) || !is_there ? "" : "gone: " + line + "\n";
  }
  return harm;
}

}  // namespace carrel::test
