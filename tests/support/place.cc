#include "support/place.h"

#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "support/host.h"
#include "support/walls.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;

constexpr const char* kUserName = "carrel-test";

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

[[noreturn]] void give_up(const std::string& what) {
  std::perror(what.c_str());
  std::abort();
}

void ensure(bool good, const std::string& what) {
  if (!good) {
    give_up(what);
  }
}

int run_quietly(const std::string& program, std::vector<std::string> arguments) {
  Launch launch;
  launch.program = program;
  launch.arguments = std::move(arguments);
  launch.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  Process process(launch);
  return process.wait(std::chrono::seconds(30)).status;
}

User find_user() {
  if (::geteuid() != 0) {
    return {::geteuid(), ::getegid()};
  }
  // Tests run side by side; useradd itself gives up when another one holds its lock.
  int lock = ::open("/run/lock/carrel-test-user", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock >= 0) {
    ::flock(lock, LOCK_EX);
  }
  passwd* entry = ::getpwnam(kUserName);
  if (entry == nullptr) {
    run_quietly("/usr/sbin/useradd",
                {"--user-group", "--no-create-home", "--shell", "/bin/sh", kUserName});
    entry = ::getpwnam(kUserName);
  }
  if (lock >= 0) {
    ::close(lock);
  }
  ensure(entry != nullptr, "make the user carrel-test");
  return {entry->pw_uid, entry->pw_gid};
}

const User& user() {
  static const User found = find_user();
  return found;
}

// What a program of this test does to mounts is seen by this test only, and is not mixed up with
// what others do on this machine.
void settle_process() {
  static const bool once = [] {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (::geteuid() == 0) {
      ensure(::unshare(CLONE_NEWNS) == 0, "unshare");
      ensure(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "make / private");
    }
    return true;
  }();
  static_cast<void>(once);
}

std::string binary() {
  const char* path = std::getenv("CARREL_BINARY");
  if (path == nullptr || ::access(path, X_OK) != 0) {
    std::fprintf(stderr, "CARREL_BINARY must be the path of the program that is tested\n");
    std::exit(2);
  }
  return path;
}

void end_descendants() {
  eventually(std::chrono::seconds(5), [] {
    bool none = true;
    for (const HostProcess& process : descendants()) {
      ::kill(process.pid, SIGKILL);
      none = false;
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return none;
  });
}

std::unique_ptr<Place>& current() {
  static std::unique_ptr<Place> place;
  return place;
}

}  // namespace

Place::Place() {
  settle_process();
  std::string name = "/tmp/carrel-e2e-XXXXXX";
  ensure(::mkdtemp(name.data()) != nullptr, name);
  root_ = name;
  ensure(::chmod(root_.c_str(), 0755) == 0, root_);
  program_ = root_ + "/carrel";
  std::error_code failed;
  if (!fs::copy_file(binary(), program_, failed)) {
    ::rmdir(root_.c_str());
    give_up("copy " + binary() + ": " + failed.message());
  }
  ensure(::chmod(program_.c_str(), 0755) == 0, program_);
  for (As as : {As::kRoot, As::kUser}) {
    for (const std::string& path : {directory(as), home(as), work(as), temporary(as)}) {
      ensure(::mkdir(path.c_str(), 0755) == 0, path);
      give(path, as);
    }
    ensure(::chmod(home(as).c_str(), 0700) == 0, home(as));
  }
}

Place::~Place() {
  end_descendants();
  for (As as : {As::kRoot, As::kUser}) {
    remove_groups(label(as));
  }
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string Place::label(As as) const {
  return read_text(home(as) + "/installation").value_or("").substr(0, 8);
}

uid_t Place::user_id() { return user().uid; }

bool Place::user_has_service_manager() {
  const std::string socket = "/run/user/" + std::to_string(user().uid) + "/systemd/private";
  return ::access(socket.c_str(), F_OK) == 0 &&
         ::access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
}

void Place::give(const std::string& path, As as) const {
  if (as == As::kUser && ::geteuid() == 0) {
    ensure(::lchown(path.c_str(), user().uid, user().gid) == 0, path);
  }
}

namespace {

// The same tests are run with each backend: it is named where a sandbox is made.
std::vector<std::string> with_backend(std::vector<std::string> arguments) {
  const Walls tested = walls();
  const bool makes =
      !arguments.empty() &&
      (arguments.front() == "run" || arguments.front() == "code" || arguments.front() == "create");
  if (tested.named && makes &&
      std::find(arguments.begin(), arguments.end(), "--backend") == arguments.end()) {
    arguments.insert(arguments.begin() + 1, {"--backend", tested.backend});
    if (!tested.runtime.empty()) {
      arguments.insert(arguments.begin() + 3, {"--runtime", tested.runtime});
    }
  }
  return arguments;
}

}  // namespace

Launch Place::launch(As as, std::vector<std::string> arguments, const Options& options) const {
  Launch launch;
  launch.program = program_;
  launch.arguments = with_backend(std::move(arguments));
  launch.environment = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                        "HOME=" + directory(as), "CARREL_HOME=" + home(as),
                        "TMPDIR=" + temporary(as)};
  if (const char* const engine = std::getenv("DOCKER_HOST"); engine != nullptr) {
    launch.environment.push_back(std::string("DOCKER_HOST=") + engine);
  }
  // A place lasts for one test, and a snapshot is for those that come after.
  const char* const snapshots = std::getenv("CARREL_VM_SNAPSHOTS");
  launch.environment.push_back(std::string("CARREL_VM_SNAPSHOTS=") +
                               (snapshots == nullptr ? "off" : snapshots));
  for (const std::string& variable : options.environment) {
    const std::string prefix = variable.substr(0, variable.find('=') + 1);
    std::erase_if(launch.environment,
                  [&](const std::string& known) { return known.starts_with(prefix); });
    launch.environment.push_back(variable);
  }
  launch.directory = options.directory.empty() ? work(as) : options.directory;
  if (as == As::kUser && ::geteuid() == 0) {
    launch.switch_user = true;
    launch.uid = user().uid;
    launch.gid = user().gid;
  }
  return launch;
}

Place& place() {
  if (!current()) {
    current() = std::make_unique<Place>();
  }
  return *current();
}

void renew_place() {
  current().reset();
  current() = std::make_unique<Place>();
}

void leave_place() { current().reset(); }

Run carrel(As as, std::vector<std::string> arguments, const Options& options) {
  Process process(place().launch(as, std::move(arguments), options));
  process.write(options.input);
  return process.wait(std::chrono::seconds(options.timeout_seconds));
}

}  // namespace carrel::test
