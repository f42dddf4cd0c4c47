#include "attacks/control.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace carrel::test {
namespace {

namespace fs = std::filesystem;

// In the private mount namespace, the new tree is put here.
constexpr const char* kTree = "/tmp";
// Ids that own nothing on the host.
constexpr const char* kIds = "0 1900000000 65536";

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::fflush(stderr);
  ::_exit(70);
}

void ensure(bool good, const char* what) {
  if (!good) {
    give_up(what);
  }
}

void pretend(const std::vector<long>& calls) {
  std::vector<struct sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  for (const long call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  struct sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  ensure(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0, "seccomp");
}

void write_map(pid_t child, const char* name, const std::string& text) {
  const std::string path = "/proc/" + std::to_string(child) + "/" + name;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written) {
    std::perror(path.c_str());
  }
  ::close(fd);
}

void build_tree(const World& world) {
  ensure(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private");
  ensure(::mount("none", kTree, "tmpfs", 0, "mode=0755") == 0, "tmpfs");
  const std::string tree = kTree;
  for (const char* directory :
       {"tmp", "proc", "dev", "etc", "usr/bin", "workspace", "run", "root", "home/agent", "sys",
        "bin", "sbin", "lib", "opt", "mnt", "srv", "var/tmp"}) {
    fs::create_directories(tree + "/" + directory);
  }
  for (const auto& [path, text] : world.files) {
    fs::create_directories(fs::path(tree + path).parent_path());
    std::ofstream(tree + path) << text;
  }
  if (world.devices == World::Devices::kOfTheHost) {
    ensure(::mount("/dev", (tree + "/dev").c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0,
           "dev");
  } else {
    fs::create_directories(tree + "/dev/shm");
  }
  if (world.proc == World::Proc::kOfTheHost) {
    ensure(::mount("/proc", (tree + "/proc").c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0,
           "proc of the host");
  } else if (world.proc == World::Proc::kOwn) {
    ensure(::mount("none", (tree + "/proc").c_str(), "proc", 0, nullptr) == 0, "proc");
  }
  ensure(::chroot(kTree) == 0 && ::chdir("/") == 0, "chroot");
}

[[noreturn]] void run_probe(int program, const std::string& probe, const World& world,
                            const std::string& host) {
  std::vector<std::string> words = {"probe", host, probe};
  words.insert(words.end(), world.arguments.begin(), world.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  std::array<char*, 1> environment{nullptr};
  for (const int number : world.descriptors) {
    ::dup2(0, number);
  }
  if (!world.pretend.empty()) {
    pretend(world.pretend);
  }
  ::fexecve(program, arguments.data(), environment.data());
  give_up("fexecve");
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

[[noreturn]] void live_in(const World& world, const std::string& probe, const std::string& host,
                          std::array<int, 2> ready, std::array<int, 2> mapped) {
  const int program = ::open(probe_program().c_str(), O_RDONLY | O_CLOEXEC);
  ensure(program >= 0, "open the probes");
  ensure(::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                   CLONE_NEWUTS | CLONE_NEWCGROUP) == 0,
         "unshare");
  char byte = 0;
  ensure(::write(ready[1], &byte, 1) == 1 && ::read(mapped[0], &byte, 1) == 1, "the maps");
  ensure(::setresgid(0, 0, 0) == 0 && ::setresuid(0, 0, 0) == 0, "become root");
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    build_tree(world);
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    const pid_t attacker = ::fork();
    if (attacker == 0) {
      run_probe(program, probe, world, host);
    }
    ::_exit(wait_for(attacker));
  }
  ::alarm(60);
  ::_exit(wait_for(first));
}

}  // namespace

ControlRun run_control(const std::string& probe, const World& world) {
  std::array<int, 2> output{}, ready{}, mapped{};
  ControlRun run;
  if (::pipe2(output.data(), O_CLOEXEC) != 0 || ::pipe2(ready.data(), O_CLOEXEC) != 0 ||
      ::pipe2(mapped.data(), O_CLOEXEC) != 0) {
    return run;
  }
  const std::string host = mount_namespace();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();  // a signal to its process group stays in it
    ::dup2(::open("/dev/null", O_RDWR), 0);
    ::dup2(output[1], 1);
    live_in(world, probe, host, ready, mapped);
  }
  ::close(output[1]);
  ::close(ready[1]);
  char byte = 0;
  if (::read(ready[0], &byte, 1) == 1) {
    const bool root = ::geteuid() == 0;
    write_map(child, "setgroups", root ? "allow" : "deny");
    write_map(child, "gid_map", root ? kIds : "0 " + std::to_string(::getegid()) + " 1");
    write_map(child, "uid_map", root ? kIds : "0 " + std::to_string(::geteuid()) + " 1");
    if (::write(mapped[1], &byte, 1) != 1) {
      std::perror("the maps");
    }
  }
  std::array<char, 65536> buffer{};
  for (ssize_t n = 1; n > 0;) {
    n = ::read(output[0], buffer.data(), buffer.size());
    run.out.append(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  for (const int fd : {output[0], ready[0], mapped[0], mapped[1]}) {
    ::close(fd);
  }
  run.status = wait_for(child);
  return run;
}

std::string probe_program() {
  const char* elsewhere = std::getenv("CARREL_PROBE");
  return elsewhere != nullptr ? elsewhere : CARREL_PROBE;
}

std::string mount_namespace() {
  struct stat info{};
  if (::stat("/proc/self/ns/mnt", &info) != 0) {
    std::perror("/proc/self/ns/mnt");
    std::abort();
  }
  return std::to_string(info.st_ino);
}

std::string verdict_of(const std::string& out) {
  const std::string key = "\"verdict\":\"";
  const std::size_t at = out.find(key);
  if (at == out.npos) {
    return {};
  }
  const std::size_t end = out.find('"', at + key.size());
  return out.substr(at + key.size(), end - at - key.size());
}

}  // namespace carrel::test
