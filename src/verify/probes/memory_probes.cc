#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "verify/probes/probe.h"

// Every way to have memory. Each takes as many MiB as its argument says; getting them all means
// that no limit holds. The end by the kernel or by Carrel, which leaves no line, is for the host
// to judge.
namespace carrel::probe {
namespace {

constexpr std::size_t kMebibyte = 1U << 20;

std::size_t wanted(Arguments arguments) {
  return arguments.empty() ? 100 : static_cast<std::size_t>(::atoi(arguments[0]));
}

// Where memory is watched and not charged, the watcher gets a moment before the verdict.
void give_time_to_notice() { ::sleep(2); }

void judge(Report& report, std::size_t got, std::size_t all) {
  if (got >= all) {
    give_time_to_notice();
  }
  report.expect("refused after " + std::to_string(got) + " of " + std::to_string(all) + " MiB",
                got < all);
}

void fill(char* at) { ::memset(at, 0x5a, kMebibyte); }

void take_mappings(Report& report, Arguments arguments, int flags) {
  const std::size_t all = wanted(arguments);
  std::size_t got = 0;
  for (; got < all; ++got) {
    void* block = ::mmap(nullptr, kMebibyte, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      break;
    }
    fill(static_cast<char*>(block));
  }
  judge(report, got, all);
}

void take_private(Report& report, Arguments arguments) {
  take_mappings(report, arguments, MAP_PRIVATE);
}

void take_shared(Report& report, Arguments arguments) {
  take_mappings(report, arguments, MAP_SHARED);
}

void take_file(Report& report, Arguments arguments, int fd) {
  const std::size_t all = wanted(arguments);
  static std::array<char, kMebibyte> block;
  fill(block.data());
  std::size_t got = 0;
  while (got < all && ::write(fd, block.data(), block.size()) == static_cast<ssize_t>(kMebibyte)) {
    ++got;
  }
  judge(report, got, all);
}

void take_memory_file(Report& report, Arguments arguments) {
  take_file(report, arguments, static_cast<int>(::syscall(SYS_memfd_create, "probe", 0)));
}

void take_shm_file(Report& report, Arguments arguments) {
  take_file(report, arguments, ::open("/dev/shm/fill", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

void take_tmp_file(Report& report, Arguments arguments) {
  take_file(report, arguments, ::open("/tmp/fill", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

void take_workspace_file(Report& report, Arguments arguments) {
  take_file(report, arguments, ::open("/workspace/fill", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

void take_system_v(Report& report, Arguments arguments) {
  const std::size_t all = wanted(arguments);
  std::size_t got = 0;
  for (; got < all; ++got) {
    const int id = ::shmget(IPC_PRIVATE, kMebibyte, IPC_CREAT | 0600);
    void* block = id < 0 ? MAP_FAILED : ::shmat(id, nullptr, 0);
    if (block == MAP_FAILED) {
      break;
    }
    fill(static_cast<char*>(block));
    ::shmctl(id, IPC_RMID, nullptr);
  }
  judge(report, got, all);
}

void raise_open_files() {
  struct rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Pipes, each as large as it may be, full.
void take_pipes(Report& report, Arguments arguments) {
  raise_open_files();
  const std::size_t all = wanted(arguments) * kMebibyte;
  static std::array<char, 65536> block;
  std::size_t got = 0;
  std::array<int, 2> pipe{};
  while (got < all && ::pipe2(pipe.data(), O_NONBLOCK) == 0) {
    ::fcntl(pipe[1], F_SETPIPE_SZ, static_cast<int>(kMebibyte));
    for (ssize_t n = 1; n > 0;) {
      n = ::write(pipe[1], block.data(), block.size());
      got += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
  }
  judge(report, got / kMebibyte, all / kMebibyte);
}

void take_sockets(Report& report, Arguments arguments) {
  raise_open_files();
  const std::size_t all = wanted(arguments) * kMebibyte;
  static std::array<char, 65536> block;
  std::size_t got = 0;
  std::array<int, 2> pair{};
  while (got < all && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()) == 0) {
    for (ssize_t n = 1; n > 0;) {
      n = ::send(pair[1], block.data(), block.size(), 0);
      got += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
  }
  judge(report, got / kMebibyte, all / kMebibyte);
}

void pin_memory(Report& report, Arguments) {
  constexpr std::size_t kHuge = 2 * kMebibyte;
  void* huge = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  report.expect("no huge page is given", huge == MAP_FAILED);
  report.must_fail("SHM_HUGETLB", ::shmget(IPC_PRIVATE, kHuge, IPC_CREAT | SHM_HUGETLB | 0600));
  void* block =
      ::mmap(nullptr, kMebibyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  report.must_fail("mlock 1 MiB", ::mlock(block, kMebibyte));
  report.must_fail("mlock2 1 MiB", ::syscall(SYS_mlock2, block, kMebibyte, 1));
  void* locked = ::mmap(nullptr, kMebibyte, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
  report.expect("MAP_LOCKED is refused", locked == MAP_FAILED);
  report.must_fail("mlockall(CURRENT)", ::mlockall(MCL_CURRENT));
  unsigned long node = 1;
  report.must_fail("mbind", ::syscall(SYS_mbind, block, kMebibyte, 2, &node, 8, 0));
  report.must_fail("set_mempolicy", ::syscall(SYS_set_mempolicy, 2, &node, 8));
  const long secret = ::syscall(SYS_memfd_secret, 0);
  if (secret >= 0 && ::ftruncate(static_cast<int>(secret), kMebibyte) == 0) {
    void* hidden =
        ::mmap(nullptr, kMebibyte, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(secret), 0);
    report.expect("secret memory counts as locked", hidden == MAP_FAILED);
  } else {
    report.not_applicable("there is no secret memory");
  }
}

constexpr Probe kProbes[] = {
    {"G03_PrivateMemoryEnds", take_private},  {"G03_SharedMemoryEnds", take_shared},
    {"G03_MemoryFilesEnd", take_memory_file}, {"G03_DevShmEnds", take_shm_file},
    {"G03_TmpEnds", take_tmp_file},           {"G03_TheWorkspaceEnds", take_workspace_file},
    {"G03_SystemVMemoryEnds", take_system_v}, {"G03_PipeBuffersEnd", take_pipes},
    {"G03_SocketBuffersEnd", take_sockets},   {"G20_MemoryCannotBePinned", pin_memory},
};

}  // namespace

std::span<const Probe> memory_probes() { return kProbes; }

}  // namespace carrel::probe
