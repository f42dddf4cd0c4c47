#include "kernel/process_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/files.h"

namespace carrel::kernel {

namespace {

struct Row {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t ticks = 0;
  std::uint64_t threads = 0;
  std::uint64_t pages = 0;
};

std::uint64_t to_number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The fields of /proc/PID/stat after the name, which can hold anything.
bool parse_stat(std::string_view line, Row& row) {
  std::size_t at = line.rfind(')');
  if (at == std::string_view::npos || at + 2 > line.size()) {
    return false;
  }
  line.remove_prefix(at + 2);
  for (int field = 3; !line.empty(); ++field) {
    std::string_view word = line.substr(0, line.find(' '));
    if (field == 3 && !word.empty()) {
      row.state = word.front();
    } else if (field == 4) {
      row.parent = static_cast<pid_t>(to_number(word));
    } else if (field == 14 || field == 15) {
      row.ticks += to_number(word);
    } else if (field == 20) {
      row.threads = to_number(word);
    } else if (field == 24) {
      row.pages = to_number(word);
      return true;
    }
    line.remove_prefix(std::min(line.size(), word.size() + 1));
  }
  return false;
}

std::map<pid_t, Row> all_processes() {
  std::map<pid_t, Row> rows;
  auto proc = DirectoryEntries::open_at(AT_FDCWD, "/proc");
  while (const dirent* entry = proc.ok() ? proc.value().next() : nullptr) {
    pid_t pid = static_cast<pid_t>(to_number(entry->d_name));
    Row row;
    if (pid > 0) {
      auto line =
          read_file_at(proc.value().descriptor(), std::string(entry->d_name) + "/stat", 4096);
      if (line.ok() && parse_stat(line.value(), row)) {
        rows.emplace(pid, row);
      }
    }
  }
  return rows;
}

// Whether it runs no more; its parent has not asked for its status yet. A process whose first
// thread has ended looks dead, too, while its other threads run on.
bool is_dead(const Row& row) { return row.state == 'X' || (row.state == 'Z' && row.threads <= 1); }

bool is_below(const std::map<pid_t, Row>& rows, pid_t pid, pid_t root) {
  for (int depth = 0; depth < 4096; ++depth) {
    if (pid == root) {
      return true;
    }
    auto row = rows.find(pid);
    if (row == rows.end() || row->second.parent <= 1) {
      return false;
    }
    pid = row->second.parent;
  }
  return false;
}

}  // namespace

bool has_ended(pid_t process) {
  Row row;
  auto line = read_file_at(AT_FDCWD, "/proc/" + std::to_string(process) + "/stat", 4096);
  if (!line.ok()) {  // for another reason, such as too many descriptors, nothing is known of it
    return line.error().error_number == ENOENT || line.error().error_number == ESRCH;
  }
  return !parse_stat(line.value(), row) || is_dead(row);
}

Result<TreeUsage> usage_of_tree(pid_t root) {
  const std::map<pid_t, Row> rows = all_processes();
  const auto first = rows.find(root);
  if (first == rows.end() || is_dead(first->second)) {
    return Error{Code::kGone, 0, "process " + std::to_string(root) + " has ended", {}};
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto hertz = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  TreeUsage usage;
  for (const auto& [pid, row] : rows) {
    if (is_below(rows, pid, root)) {
      ++usage.processes;
      usage.memory_bytes += row.pages * page;
      usage.cpu_usec += row.ticks * 1'000'000 / hertz;
    }
  }
  return usage;
}

}  // namespace carrel::kernel
