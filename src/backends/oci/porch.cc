#include "backends/oci/porch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include "backends/oci/bundle.h"
#include "backends/oci/porter.h"
#include "base/files.h"
#include "guest/captive.h"
#include "guest/network.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

using protocol::MountStep;
using protocol::StepKind;

constexpr std::size_t kLargestPorchRequest = 8U << 20;
constexpr std::size_t kMostStrings = 4096;
constexpr std::size_t kCaptiveParts = 3;

void put(std::string& out, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::array<char, sizeof size> bytes{};
  std::memcpy(bytes.data(), &size, sizeof size);
  out.append(bytes.data(), bytes.size()).append(text);
}

// Takes one string off the front; false: there is none.
bool take(std::string_view& rest, std::string& text) {
  std::uint32_t size = 0;
  if (rest.size() < sizeof size) {
    return false;
  }
  std::memcpy(&size, rest.data(), sizeof size);
  rest.remove_prefix(sizeof size);
  if (size > rest.size()) {
    return false;
  }
  text = rest.substr(0, size);
  rest.remove_prefix(size);
  return true;
}

void put_list(std::string& out, const std::vector<std::string>& list) {
  put(out, std::to_string(list.size()));
  for (const std::string& text : list) {
    put(out, text);
  }
}

bool take_list(std::string_view& rest, std::vector<std::string>& list) {
  std::string count;
  if (!take(rest, count) || count.empty() || count.size() > 4) {
    return false;
  }
  const std::size_t size = std::stoul(count);
  if (size > kMostStrings) {
    return false;
  }
  list.resize(size);
  for (std::string& text : list) {
    if (!take(rest, text)) {
      return false;
    }
  }
  return true;
}

Status write_text(const std::string& path, std::string_view text, mode_t mode) {
  CARREL_ASSIGN(const UniqueFd file,
                open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  return write_all(file.get(), text);
}

Status write_own(const char* path, const std::string& text) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_WRONLY));
  return write_all(file.get(), text);
}

// What the runtime is given beside a user and a mount namespace. gVisor's processes are in no
// namespace of the host's: they talk over sockets that have no place in a file system, and with a
// PID namespace of their own all of them end together.
constexpr int kForGvisor = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

// Everything that is mounted from here on is seen by this process and the runtime only.
Status enter_namespaces(int more) {
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | more) != 0) {
    return system_error("make a user namespace for the runtime");
  }
  CARREL_TRY(write_own("/proc/self/setgroups", "deny"));
  CARREL_TRY(write_own("/proc/self/gid_map", "0 " + gid + " 1"));
  CARREL_TRY(write_own("/proc/self/uid_map", "0 " + uid + " 1"));
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return system_error("make the mount tree private");
  }
  return {};
}

Status mount_tmpfs(const std::string& path, const std::string& options) {
  if (::mount("tmpfs", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return system_error("mount a tmpfs at " + path);
  }
  return {};
}

Status make_directory(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return system_error("make directory " + path);
  }
  return {};
}

// The parts of the plan that are files of the root and not mounts.
class Layout {
 public:
  explicit Layout(const Places& places) : places_(places) {}

  Status follow(std::string_view part) {
    return sandbox::follow_plan(part, [this](const MountStep& step) { return take(step); });
  }

 private:
  Status take(const MountStep& step) {
    const std::string path = places_.root() + "/" + std::string(step.path);
    switch (step.kind) {
      case StepKind::kDirectory:
        return make_directory(path, step.mode);
      case StepKind::kLink:
        if (!step.path.starts_with("dev/") &&
            ::symlink(std::string(step.source).c_str(), path.c_str()) != 0) {
          return system_error("make link " + path);
        }
        return {};
      case StepKind::kFile:
        return write_text(path, step.source, step.mode);
      case StepKind::kTmpfs:
        CARREL_TRY(make_directory(places_.slot(step.slot), 0755));
        return mount_tmpfs(places_.slot(step.slot), "mode=0755,size=" + std::to_string(step.size) +
                                                        ",nr_inodes=" + std::to_string(step.count));
      case StepKind::kSubdirectory:
        return make_directory(places_.slot(step.slot) + "/" + std::string(step.source), step.mode);
      case StepKind::kAttach:
        return (step.flags & protocol::kStepNoExec) != 0 ? forbid_execution(step) : Status();
      case StepKind::kOverlay:
        return mount_overlay(step);
      default:
        return {};
    }
  }

  // crun 1.8 forgets the option of a mount that is not read-only as well; what is so already stays
  // so.
  Status forbid_execution(const MountStep& step) const {
    const std::string path = places_.slot(step.slot) + "/" + std::string(step.source);
    constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path.c_str(), nullptr, MS_BIND | MS_REMOUNT | kFlags, nullptr) != 0) {
      return system_error("forbid to execute what is in " + path);
    }
    return {};
  }

  // Its layers are named through descriptors, so no byte of a path can be read as an option.
  Status mount_overlay(const MountStep& step) const {
    const std::string place = places_.overlay(step.path);
    const std::string upper =
        places_.slot(step.slot) + "/upper-" + place.substr(place.rfind('/') + 1);
    const std::string work =
        places_.slot(step.slot) + "/work-" + place.substr(place.rfind('/') + 1);
    for (const std::string& directory : {place, upper, work}) {
      CARREL_TRY(make_directory(directory, 0755));
    }
    constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW;
    CARREL_ASSIGN(const UniqueFd lower_fd, open_at(AT_FDCWD, std::string(step.source), kFlags));
    CARREL_ASSIGN(const UniqueFd upper_fd, open_at(AT_FDCWD, upper, kFlags));
    CARREL_ASSIGN(const UniqueFd work_fd, open_at(AT_FDCWD, work, kFlags));
    const auto by = [](const UniqueFd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); };
    const std::string options = "userxattr,index=off,metacopy=off,lowerdir=" + by(lower_fd) +
                                ",upperdir=" + by(upper_fd) + ",workdir=" + by(work_fd);
    if (::mount("overlay", place.c_str(), "overlay", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      return system_error("mount an overlay of " + std::string(step.source));
    }
    return {};
  }

  const Places& places_;
};

// CRITICAL: nobody behind gVisor can see whether the file that was judged is the one that is shown.
Result<UniqueFd> mount_of(const std::string& path, int meant) {
  CARREL_ASSIGN(const UniqueFd found, open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW));
  struct stat wanted{};
  struct stat here{};
  if (::fstat(meant, &wanted) != 0 || ::fstat(found.get(), &here) != 0 ||
      wanted.st_dev != here.st_dev || wanted.st_ino != here.st_ino) {
    return Error{Code::kConflict, 0, "'" + path + "' was replaced meanwhile", {}};
  }
  UniqueFd mount(static_cast<int>(::syscall(
      SYS_open_tree, found.get(), "",
      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | static_cast<unsigned>(AT_RECURSIVE))));
  return mount.valid() ? Result<UniqueFd>(std::move(mount)) : system_error("mount '" + path + "'");
}

// Mounts that are nowhere yet.
Status put_trees(const PorchRequest& request, const Places& places) {
  for (std::size_t i = 0; i < request.trees.size(); ++i) {
    const std::string place = places.tree(i);
    CARREL_TRY(request.trees[i] == kFile ? write_text(place, {}, 0444)
                                         : make_directory(place, 0755));
    int mount = kTrees + static_cast<int>(i);
    if (!request.meant[i].empty()) {
      CARREL_ASSIGN(UniqueFd made, mount_of(request.meant[i], mount));
      ::close(mount);
      mount = made.release();
    }
    if (::syscall(SYS_move_mount, mount, "", AT_FDCWD, place.c_str(), MOVE_MOUNT_F_EMPTY_PATH) !=
        0) {
      return system_error("put a mount at " + place);
    }
    ::close(mount);
  }
  return {};
}

// The guest's program as a file.
Status put_program(const std::string& path) {
  constexpr std::size_t kLargestProgram = 8U << 20;
  CARREL_ASSIGN(const std::string program,
                read_file_at(AT_FDCWD, "/proc/self/fd/4", kLargestProgram));
  return write_text(path, program, 0555);
}

Status lay_out(const PorchRequest& request, const Places& places) {
  CARREL_TRY(mount_tmpfs(request.stage, "mode=0755,size=16m"));
  for (const std::string& directory : request.covered) {
    CARREL_TRY(mount_tmpfs(directory, "mode=0555,size=4k"));
  }
  for (const std::string& directory :
       {places.bundle(), places.root(), places.state(), places.empty_directory()}) {
    CARREL_TRY(make_directory(directory, 0755));
  }
  CARREL_TRY(write_text(places.bundle() + "/config.json", request.config, 0444));
  for (std::size_t i = 0; i < request.data.size(); ++i) {
    CARREL_TRY(write_text(places.data(i), request.data[i], 0444));
  }
  CARREL_TRY(put_trees(request, places));
  Layout layout(places);
  CARREL_TRY(layout.follow(request.own));  // the tmpfs first
  CARREL_TRY(layout.follow(request.shared));
  CARREL_TRY(layout.follow(request.alike));
  return request.program.empty() ? Status() : put_program(places.root() + "/" + request.program);
}

// Where no group holds their number, everything keeps to so many of the processors.
Status keep_to_processors(const std::string& text) {
  std::uint32_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  cpu_set_t usable;
  if (text.empty() || ::sched_getaffinity(0, sizeof usable, &usable) != 0) {
    return {};  // a host with more of them than fit
  }
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &usable) && count > 0) {
      --count;
    } else {
      CPU_CLR(i, &usable);
    }
  }
  return ::sched_setaffinity(0, sizeof usable, &usable) == 0 ? Status()
                                                             : system_error("keep to processors");
}

// Nobody who comes after can change what the captive network's rules are, or write packets.
bool give_up_network() {
  return ::prctl(PR_CAPBSET_DROP, CAP_NET_ADMIN, 0, 0, 0) == 0 &&
         ::prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0) == 0;
}

Status run_runtime(const PorchRequest& request) {
  std::vector<char*> words;
  for (const std::string& word : request.runtime) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  const pid_t porch = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    // A runtime that hangs ends with the porch, which is ended by whoever waits for both.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != porch || (!request.captive.empty() && !give_up_network())) {
      ::_exit(127);
    }
    if (!request.program.empty()) {
      // CRITICAL: what is open here could be found open in gVisor's processes.
      ::dup2(kControl, STDIN_FILENO);
      ::syscall(SYS_close_range, kControl, ~0U, 0);
    } else {
      ::close(kRequest);
      ::close(kTell);
    }
    std::array<char*, 1> environment = {nullptr};
    ::execve(words[0], words.data(), environment.data());
    ::_exit(127);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || status != 0) {
    return Error{
        Code::kUnsupported, 0, "(exit status " + std::to_string(WEXITSTATUS(status)) + ")", {}};
  }
  return {};
}

Result<pid_t> read_pid(const Places& places) {
  CARREL_ASSIGN(const std::string text,
                read_file_at(AT_FDCWD, places.state() + "/pid", sizeof "4294967296"));
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return pid > 0 ? Result<pid_t>(pid) : Error{Code::kInvalid, 0, "a malformed number", {}};
}

// CRITICAL: before gVisor's kernel is there, whose sockets are in this network.
Status make_captive(const std::vector<std::string>& parts) {
  guest::Failure failure;
  if (!guest::bring_up_loopback()) {
    return system_error("bring up the loopback interface of the sandbox's network");
  }
  if (!guest::make_captive({parts[0], parts[1], parts[2]}, failure)) {
    return system_error(failure.error_number, failure.step + (" " + std::string(failure.object)));
  }
  return {};
}

// The room behind gVisor, by the first process of its PID namespace, which stays in it. `ready` is
// told when the kernel runs.
Status keep_room(const PorchRequest& request, const Places& places, UniqueFd ready) {
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return system_error("mount a proc for the runtime");
  }
  CARREL_TRY(keep_to_processors(request.cpus));
  if (!request.captive.empty()) {
    CARREL_TRY(make_captive(request.captive));
  }
  CARREL_TRY(lay_out(request, places));
  CARREL_TRY(run_runtime(request));
  CARREL_ASSIGN(const pid_t kernel, read_pid(places));
  Porter porter;
  int next = kTrees + static_cast<int>(request.trees.size());
  if (!request.stays.empty()) {
    CARREL_ASSIGN(porter, Porter::at(UniqueFd(next), UniqueFd(next + 1)));
    next += 2;
  }
  if (!request.captive.empty()) {
    CARREL_TRY(porter.attend_network(UniqueFd(next)));
  }
  // CRITICAL: whoever looks for the sandbox's files at its first process finds none of the host's.
  if (::chroot(places.empty_directory().c_str()) != 0 || ::chdir("/") != 0) {
    return system_error("leave the host's root");
  }
  ::prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
  CARREL_TRY(write_all(ready.get(), "r"));
  ready.reset();
  porter.serve(kernel);
}

// The number of that process.
Result<pid_t> start_keeping(const PorchRequest& request, const Places& places) {
  int ends[2] = {-1, -1};
  if (::pipe2(&ends[0], O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd is_ready(ends[0]);
  UniqueFd ready(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const Status kept = keep_room(request, places, std::move(ready));
    (void)write_all(STDERR_FILENO, kept.error().to_string() + "\n");
    ::_exit(1);
  }
  ready.reset();
  char byte = 0;
  ssize_t n = 0;
  do {
    n = ::read(is_ready.get(), &byte, 1);
  } while (n < 0 && errno == EINTR);
  if (child < 0 || n != 1) {
    ::_exit(1);  // it has said why
  }
  return child;
}

Status open_room() {
  CARREL_ASSIGN(const std::string text,
                read_file_at(AT_FDCWD, "/proc/self/fd/5", kLargestPorchRequest));
  CARREL_ASSIGN(const PorchRequest request, decode_porch(text));
  ::umask(0);
  const bool gvisor = !request.program.empty();
  CARREL_TRY(enter_namespaces(gvisor ? kForGvisor : 0));
  const Places places{request.stage, {}};
  if (gvisor) {
    CARREL_ASSIGN(const pid_t first, start_keeping(request, places));
    return write_all(kTell, std::to_string(first) + "\n");
  }
  CARREL_TRY(lay_out(request, places));
  CARREL_TRY(run_runtime(request));
  CARREL_ASSIGN(const pid_t first, read_pid(places));
  return write_all(kTell, std::to_string(first) + "\n");
}

}  // namespace

std::string encode_porch(const PorchRequest& request) {
  std::string text;
  for (const std::string* part : {&request.stage, &request.config, &request.shared, &request.alike,
                                  &request.own, &request.program, &request.cpus, &request.stays}) {
    put(text, *part);
  }
  put_list(text, request.data);
  put_list(text, request.runtime);
  put_list(text, request.covered);
  put_list(text, request.trees);
  put_list(text, request.meant);
  put_list(text, request.captive);
  return text;
}

Result<PorchRequest> decode_porch(std::string_view text) {
  PorchRequest request;
  for (std::string* part : {&request.stage, &request.config, &request.shared, &request.alike,
                            &request.own, &request.program, &request.cpus, &request.stays}) {
    if (!take(text, *part)) {
      return Error{Code::kInvalid, 0, "a malformed request", {}};
    }
  }
  if (!take_list(text, request.data) || !take_list(text, request.runtime) ||
      !take_list(text, request.covered) || !take_list(text, request.trees) ||
      !take_list(text, request.meant) || !take_list(text, request.captive) || !text.empty() ||
      request.runtime.empty() || request.meant.size() != request.trees.size() ||
      (!request.captive.empty() && request.captive.size() != kCaptiveParts)) {
    return Error{Code::kInvalid, 0, "a malformed request", {}};
  }
  return request;
}

int run_porch() {
  const Status opened = open_room();
  if (!opened.ok()) {
    (void)write_all(STDERR_FILENO, opened.error().to_string() + "\n");
  }
  return opened.ok() ? 0 : 1;
}

}  // namespace carrel::oci
