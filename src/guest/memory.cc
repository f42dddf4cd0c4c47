#include "guest/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <string_view>

#include "guest/gvisor.h"
#include "guest/proc.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

// What one socket can hold with the kernel's default buffer, and how many a sandbox has for free.
constexpr std::uint64_t kSocketBuffer = 208U << 10;
constexpr std::uint64_t kFewSockets = 64;
constexpr std::uint64_t kPipeBuffer = 64U << 10;
// Nobody makes a look longer than this many descriptors.
constexpr std::size_t kMostDescriptors = 64U << 10;

// The files that a look has met: one file has many descriptors. When it is full, nothing more is
// remembered and files count once for each descriptor.
class Seen {
 public:
  void clear() {
    memset(keys_, 0, sizeof keys_);
    count_ = 0;
  }
  // Whether it was not there before.
  bool add(const struct stat& info) {
    std::uint64_t key = (static_cast<std::uint64_t>(info.st_dev) << 40) ^ info.st_ino ^ 1ULL << 63;
    std::size_t at = static_cast<std::size_t>(key * 0x9e3779b97f4a7c15ULL >> 51);
    while (keys_[at] != 0 && keys_[at] != key) {
      at = (at + 1) % kSize;
    }
    if (keys_[at] == key) {
      return false;
    }
    if (count_ < kSize / 2) {
      keys_[at] = key;
      ++count_;
    }
    return true;
  }

 private:
  static constexpr std::size_t kSize = 8192;
  std::uint64_t keys_[kSize];
  std::size_t count_;
};

Seen seen;

std::uint64_t field(std::string_view status, std::string_view key) {
  std::size_t at = status.find(key);
  if (at == std::string_view::npos) {
    return 0;
  }
  status.remove_prefix(at + key.size());
  std::size_t first = status.find_first_not_of(" \t");
  status.remove_prefix(first == std::string_view::npos ? status.size() : first);
  std::uint64_t value = 0;
  to_number(status.substr(0, status.find_first_of(" \n")), value);
  return value;
}

// At most how much a pipe holds. It is opened the way that its holder has it open, so nobody else
// sees a reader or a writer that was not there.
std::uint64_t pipe_buffer(int directory, const char* name) {
  struct stat link{};
  if (fstatat(directory, name, &link, AT_SYMLINK_NOFOLLOW) != 0) {
    return 0;
  }
  int mode = (link.st_mode & S_IRUSR) != 0 ? O_RDONLY : O_WRONLY;
  int pipe = openat(directory, name, mode | O_NONBLOCK | O_CLOEXEC);
  if (pipe < 0) {
    return kPipeBuffer;
  }
  int waiting = 0;
  int capacity = fcntl(pipe, F_GETPIPE_SZ);
  bool empty = ioctl(pipe, FIONREAD, &waiting) == 0 && waiting == 0;
  close(pipe);
  return empty || capacity < 0 ? 0 : static_cast<std::uint64_t>(capacity);
}

// Memory files live where the guest's own program does.
dev_t device_of_memory_files() {
  struct stat own{};
  return stat("/proc/self/exe", &own) == 0 ? own.st_dev : 0;
}

void add_descriptors(pid_t pid, dev_t memory_files, std::size_t& budget, MemoryUse& use) {
  Text<64> path;
  path.add("/proc/").add_number(static_cast<std::uint64_t>(pid)).add("/fd");
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) {
    return;
  }
  while (struct dirent* entry = readdir(directory)) {
    struct stat info{};
    if (entry->d_name[0] == '.' || fstatat(dirfd(directory), entry->d_name, &info, 0) != 0) {
      continue;
    }
    if (budget == 0) {
      break;
    }
    --budget;
    if (S_ISFIFO(info.st_mode) && seen.add(info)) {
      use.buffers += pipe_buffer(dirfd(directory), entry->d_name);
    } else if (S_ISREG(info.st_mode) && info.st_dev == memory_files && seen.add(info)) {
      use.held += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  closedir(directory);
}

// What the process has of memory that it may share with others; false when it does not tell.
bool add_shares(pid_t pid, MemoryUse& use) {
  char buffer[4096];
  std::string_view rollup(buffer, read_proc(pid, "smaps_rollup", buffer, sizeof buffer));
  if (rollup.find("\nPss_Anon:") == std::string_view::npos) {
    return false;
  }
  use.anonymous += field(rollup, "\nPss_Anon:") << 10;
  use.mapped += field(rollup, "\nPss_Shmem:") << 10;
  return true;
}

void add_processes(Look look, MemoryUse& use) {
  dev_t memory_files = device_of_memory_files();
  std::size_t budget = kMostDescriptors;
  seen.clear();
  each_pid([&](pid_t pid) {
    char buffer[4096];
    std::string_view status(buffer, read_proc(pid, "status", buffer, sizeof buffer));
    use.tasks += static_cast<std::size_t>(field(status, "\nThreads:"));
    if (pid == 1) {
      return;
    }
    use.anonymous += field(status, "\nVmPTE:") << 10;
    if (look == Look::kQuick || !add_shares(pid, use)) {
      use.anonymous += field(status, "\nRssAnon:") << 10;
      use.mapped += field(status, "\nRssShmem:") << 10;
    }
    if (budget > 0) {
      add_descriptors(pid, memory_files, budget, use);
    }
  });
}

// All that the kernel has given out, less what the guest has itself.
void add_kernels_count(MemoryUse& use) {
  std::uint64_t own = 0;
  each_pid([&](pid_t pid) {
    char buffer[4096];
    std::string_view status(buffer, read_proc(pid, "status", buffer, sizeof buffer));
    use.tasks += static_cast<std::size_t>(field(status, "\nThreads:"));
    own = pid == 1 ? field(status, "\nVmRSS:") << 10 : own;
  });
  const std::uint64_t whole = gvisors_memory();
  use.anonymous = whole > own ? whole - own : 0;
}

void add_mounts(const BuiltRoot& root, MemoryUse& use) {
  auto add = [&](int mount) {
    struct statfs info{};
    if (mount >= 0 && fstatfs(mount, &info) == 0) {
      use.lasting += (info.f_blocks - info.f_bfree) * static_cast<std::uint64_t>(info.f_bsize);
      // Empty files take memory, too, and not everybody who mounts one says how many it may have.
      constexpr std::uint64_t kFileBytes = 1024;
      use.lasting += (info.f_files - info.f_ffree) * kFileBytes;
    }
  };
  for (int mount : root.tmpfs) {
    add(mount);
  }
  for (int mount : root.further) {
    add(mount);
  }
}

// The sum of a column (the first is 0) of a table of /proc/sysvipc, below its heading.
std::uint64_t sum_column(std::string_view table, unsigned column) {
  std::uint64_t sum = 0;
  for (std::size_t end = table.find('\n'); end != std::string_view::npos; end = table.find('\n')) {
    table.remove_prefix(end + 1);
    std::string_view line = table.substr(0, table.find('\n'));
    for (unsigned i = 0; !line.empty(); ++i) {
      std::size_t first = line.find_first_not_of(' ');
      line.remove_prefix(first == std::string_view::npos ? line.size() : first);
      std::string_view word = line.substr(0, line.find(' '));
      std::uint64_t value = 0;
      if (i == column && to_number(word, value)) {
        sum += value;
      }
      line.remove_prefix(word.size());
    }
  }
  return sum;
}

void add_system_v(MemoryUse& use) {
  static char table[64U << 10];
  use.lasting += sum_column({table, read_proc("/proc/sysvipc/shm", table, sizeof table)}, 14);
  use.lasting += sum_column({table, read_proc("/proc/sysvipc/msg", table, sizeof table)}, 3);
}

void add_sockets(MemoryUse& use) {
  char buffer[512];
  std::string_view text(buffer, read_proc("/proc/net/sockstat", buffer, sizeof buffer));
  std::uint64_t sockets = field(text, "sockets: used");
  use.buffers += sockets > kFewSockets ? (sockets - kFewSockets) * kSocketBuffer : 0;
}

bool is_full(int mount) {
  struct statfs info{};
  return mount >= 0 && fstatfs(mount, &info) == 0 && info.f_blocks != 0 &&
         (info.f_bavail == 0 || (info.f_files != 0 && info.f_ffree == 0));
}

}  // namespace

bool is_full(const BuiltRoot& root) {
  for (std::size_t slot = 0; slot < kGuestSlot; ++slot) {
    if (is_full(root.tmpfs[slot])) {
      return true;
    }
  }
  return is_full(root.further[0]) || is_full(root.further[1]);
}

MemoryUse look_at_memory(const BuiltRoot& root, Look look) {
  MemoryUse use;
  if (look == Look::kKernels) {
    add_kernels_count(use);
    add_mounts(root, use);
    use.anonymous -= use.lasting < use.anonymous ? use.lasting : use.anonymous;
    return use;
  }
  add_processes(look, use);
  add_mounts(root, use);
  add_system_v(use);
  add_sockets(use);
  return use;
}

}  // namespace carrel::guest
