#include "storage/images/builder_room.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "base/unique_fd.h"
#include "kernel/descriptors_child.h"
#include "kernel/detached_mount.h"
#include "kernel/uapi/mount.h"

namespace carrel::storage {

namespace {

constexpr int kFailed = 127;
constexpr const char* kSystem[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"};
constexpr const char* kSettings[] = {"etc/alternatives", "etc/apt",           "etc/ca-certificates",
                                     "etc/gai.conf",     "etc/host.conf",     "etc/hosts",
                                     "etc/ld.so.cache",  "etc/nsswitch.conf", "etc/resolv.conf",
                                     "etc/ssl/certs"};
constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};
struct Link {
  const char* name;
  const char* target;
};
constexpr Link kLinks[] = {{"dev/ptmx", "pts/ptmx"},
                           {"dev/fd", "/proc/self/fd"},
                           {"dev/stdin", "/proc/self/fd/0"},
                           {"dev/stdout", "/proc/self/fd/1"},
                           {"dev/stderr", "/proc/self/fd/2"}};
constexpr const char* kUsers = "root:x:0:0:root:/root:/bin/sh\n_apt:x:42:65534::/:/bin/false\n";
constexpr const char* kGroups = "root:x:0:\nnogroup:x:65534:\n";

volatile sig_atomic_t g_room = 0;  // the room's first process

void end_room(int /*signal*/) {
  if (g_room > 0) {
    ::kill(static_cast<pid_t>(g_room), SIGKILL);
  }
}

// The new root while it is built, and what is to be seen in it.
class Root {
 public:
  explicit Root(std::string path) : path_(std::move(path)) {}

  Status make() {
    // Only here: who waits for the room's end must keep the host's root.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("carrel", path_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") != 0) {
      return system_error("make a root for the builder");
    }
    for (const char* name : {"dev", "dev/shm", "etc", "proc", "root", "run", "sys", "tmp", "var",
                             "var/lib", "var/cache", "var/tmp"}) {
      CARREL_TRY(directory(name));
    }
    return {};
  }

  Status directory(const std::string& name) {
    for (std::size_t slash = name.find('/', 1);; slash = name.find('/', slash + 1)) {
      if (::mkdir(at(name.substr(0, slash)).c_str(), 0755) != 0 && errno != EEXIST) {
        return system_error("make '" + name + "' for the builder");
      }
      if (slash == std::string::npos) {
        return {};
      }
    }
  }

  Status file(const std::string& name, std::string_view text) {
    CARREL_ASSIGN(const UniqueFd fd, open_at(AT_FDCWD, at(name), O_WRONLY | O_CREAT, 0644));
    return write_all(fd.get(), text);
  }

  Status link(const std::string& name, const std::string& target) {
    return ::symlink(target.c_str(), at(name).c_str()) == 0
               ? Status()
               : system_error("make '" + name + "' for the builder");
  }

  // Shows something of the host's at the same place, if the host has it. A link stays one.
  Status show(const std::string& name, std::uint64_t attributes) {
    struct stat info{};
    const std::string source = "/" + name;
    if (::lstat(source.c_str(), &info) != 0) {
      return {};
    }
    if (S_ISLNK(info.st_mode) && name.find('/') == std::string::npos) {
      std::string target(4096, '\0');
      const ssize_t size = ::readlink(source.c_str(), target.data(), target.size());
      target.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
      return link(name, target);
    }
    if (::stat(source.c_str(), &info) != 0) {
      return {};
    }
    if (name.find('/') != std::string::npos) {
      CARREL_TRY(directory(name.substr(0, name.rfind('/'))));
    }
    CARREL_TRY(S_ISDIR(info.st_mode) ? directory(name) : file(name, ""));
    return bind(source, name, attributes);
  }

  Status bind(const std::string& source, const std::string& name, std::uint64_t attributes) {
    if (::mount(source.c_str(), at(name).c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
      return system_error("show '" + source + "' to the builder");
    }
    CARREL_ASSIGN(const UniqueFd mount, open_at(AT_FDCWD, at(name), O_PATH));
    return kernel::seal_mounts(mount.get(), attributes);
  }

  Status mount_new(const char* type, const std::string& name, const char* options) {
    if (::mount(type, at(name).c_str(), type, MS_NOSUID | MS_NOEXEC, options) != 0) {
      return system_error("mount a " + std::string(type) + " for the builder");
    }
    return {};
  }

  // CRITICAL: afterwards nothing of the host's tree is left to be reached.
  Status enter() {
    if (::chdir(path_.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
        ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
      return system_error("enter the builder's root");
    }
    return {};
  }

  [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Status furnish(const BuilderRoomPlan& plan) {
  using namespace kernel::uapi;
  constexpr std::uint64_t kSealed = kAttrReadOnly | kAttrNoSuid | kAttrNoDev;
  Root root(plan.place + "/root");
  CARREL_TRY(root.make());
  for (const char* name : kSystem) {
    CARREL_TRY(root.show(name, kSealed));
  }
  for (const char* name : kSettings) {
    CARREL_TRY(root.show(name, kSealed));
  }
  for (const std::string& tree : plan.trees) {
    CARREL_TRY(root.show(tree.substr(1), kSealed));
  }
  for (const char* name : kDevices) {
    CARREL_TRY(root.show(std::string("dev/") + name, kAttrNoSuid | kAttrNoExec));
  }
  CARREL_TRY(root.file("etc/passwd", kUsers));
  CARREL_TRY(root.file("etc/group", kGroups));
  CARREL_TRY(root.directory("dev/pts"));
  CARREL_TRY(root.mount_new("devpts", "dev/pts", "newinstance,ptmxmode=0666,mode=0620"));
  CARREL_TRY(root.mount_new("proc", "proc", nullptr));
  for (const Link& link : kLinks) {
    CARREL_TRY(root.link(link.name, link.target));
  }
  CARREL_TRY(root.bind(plan.place + "/build", kBuilderDirectory + 1, kAttrNoSuid | kAttrNoDev));
  return root.enter();
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  list.reserve(words.size() + 1);
  for (const std::string& word : words) {
    list.push_back(const_cast<char*>(word.c_str()));
  }
  list.push_back(nullptr);
  return list;
}

// The room's first process: everything in it ends with this one.
[[noreturn]] void be_builder(const BuilderRoomPlan& plan) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGTERM, SIG_DFL);
  if (Status furnished = furnish(plan); !furnished.ok()) {
    (void)write_all(plan.errors, "E: " + furnished.error().to_string() + "\n");
    ::_exit(kFailed);
  }
  const std::vector<char*> arguments = pointers(plan.arguments);
  const std::vector<char*> environment = pointers(plan.environment);
  if (::dup2(plan.input, 0) == 0 && ::dup2(plan.output, 1) == 1 && ::dup2(plan.errors, 2) == 2 &&
      kernel::close_descriptors(3, ~0U) >= 0) {
    ::execve(plan.program.c_str(), arguments.data(), environment.data());
  }
  ::_exit(kFailed);
}

// CRITICAL: a failure ends the process. Without its own ids the builder would be the host's root.
Status become_root_of_nothing(const BuilderRoomPlan& plan) {
  char byte = 0;
  if (::unshare(CLONE_NEWUSER) != 0 || ::write(plan.handshake, &byte, 1) != 1 ||
      ::read(plan.handshake, &byte, 1) != 1) {
    return system_error("enter a user namespace");
  }
  if (::chown((plan.place + "/build").c_str(), 0, 0) != 0 ||
      ::chown((plan.place + "/root").c_str(), 0, 0) != 0 || ::setgroups(0, nullptr) != 0 ||
      ::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0) {
    return system_error("become the root of a user namespace");
  }
  return {};
}

}  // namespace

void run_in_builder_room(const BuilderRoomPlan& plan) {
  Status ready = become_root_of_nothing(plan);
  // A change of ids takes this away, so it comes after them.
  struct sigaction action{};
  action.sa_handler = end_room;
  ::sigaction(SIGTERM, &action, nullptr);
  (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
  pollfd parent{plan.handshake, 0, 0};
  if (::poll(&parent, 1, 0) == 1) {
    ::_exit(kFailed);  // it was gone before
  }
  if (ready.ok() && ::unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
    ready = system_error("enter the builder's namespaces");
  }
  if (!ready.ok()) {
    (void)write_all(plan.errors, "E: " + ready.error().to_string() + "\n");
    ::_exit(kFailed);
  }
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, nullptr);  // until it is known whom to end
  const pid_t room = ::fork();
  if (room == 0) {
    ::sigprocmask(SIG_UNBLOCK, &term, nullptr);
    be_builder(plan);
  }
  g_room = room;
  ::sigprocmask(SIG_UNBLOCK, &term, nullptr);
  int status = -1;
  while (room > 0 && ::waitpid(room, &status, 0) < 0 && errno == EINTR) {
  }
  // Here are the rights to remove what ids have made that this user does not have.
  if (const auto place = open_at(AT_FDCWD, plan.place, O_RDONLY | O_DIRECTORY); place.ok()) {
    (void)remove_tree_at(place.value().get(), "build");
    (void)remove_tree_at(place.value().get(), "root");
    ::rmdir(plan.place.c_str());
  }
  ::_exit(status == 0 ? 0 : 1);
}

}  // namespace carrel::storage
