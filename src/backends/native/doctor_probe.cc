#include "backends/native/doctor_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "backends/native/doctor_disk.h"
#include "backends/native/doctor_settings.h"
#include "backends/native/doctor_trial.h"
#include "backends/native/id_ranges.h"
#include "backends/native/launch.h"
#include "backends/native/one_shot.h"
#include "backends/native/scope.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "guest/image.h"
#include "kernel/captive_network.h"

namespace carrel::native {

namespace {

constexpr int kTrialMs = 5000;

// The map that a launch would write: 0, or the errno.
int write_maps(pid_t pid, Groups groups) {
  auto directory = open_at(AT_FDCWD, "/proc/" + std::to_string(pid), O_PATH | O_DIRECTORY);
  if (!directory.ok()) {
    return directory.error().error_number;
  }
  auto write = [&](const char* file, const std::string& text) {
    Status written = write_value_at(directory.value().get(), file, text);
    return written.ok() ? 0 : written.error().error_number;
  };
  const bool root = groups == Groups::kDrop;
  const std::string gid = std::to_string(root ? kFirstSandboxId : ::getegid());
  const std::string uid = std::to_string(root ? kFirstSandboxId : ::geteuid());
  int failed = root ? 0 : write("setgroups", "deny");
  failed = failed != 0 ? failed : write("gid_map", "0 " + gid + " 1");
  return failed != 0 ? failed : write("uid_map", "0 " + uid + " 1");
}

void try_plain(SharedBoard& shared) {
  TrialBoard& board = *shared.get();
  auto image = guest::open_image();
  if (!image.ok()) {
    board.finish(Feature::kMemfdExec, image.error().error_number);
  }
  const pid_t pid = start_trial(board);
  if (pid == 0) {
    try_plain_calls(board, image.ok() ? image.value().get() : -1);
  }
  if (pid > 0) {
    end_trial(pid, kTrialMs);
  }
}

void try_sandbox_parts(SharedBoard& shared) {
  TrialBoard& board = *shared.get();
  std::array<int, 2> ready{};
  std::array<int, 2> go{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) {
    return;
  }
  UniqueFd ready_read(ready[0]);
  UniqueFd ready_write(ready[1]);
  if (::pipe2(go.data(), O_CLOEXEC) != 0) {
    return;
  }
  UniqueFd go_read(go[0]);
  UniqueFd go_write(go[1]);
  const Groups groups = ::geteuid() == 0 ? Groups::kDrop : Groups::kKeep;
  const kernel::CaptiveNetwork network = kernel::captive_network();
  const pid_t pid = start_trial(board);
  if (pid == 0) {
    ::close(ready_read.get());
    ::close(go_write.get());
    try_namespaces(board, {ready_write.get(), go_read.get(), network.routes, network.rules},
                   groups);
  }
  if (pid < 0) {
    return;
  }
  ready_write.reset();
  go_read.reset();
  pollfd wait{ready_read.get(), POLLIN, 0};
  if (::poll(&wait, 1, kTrialMs) == 1 && (wait.revents & POLLIN) != 0) {
    const int failed = write_maps(pid, groups);
    // The child ends when it gets no byte, and it is still waiting for one: the note stays.
    if (failed != 0) {
      board.finish(Feature::kIdMap, failed);
    } else if (::write(go_write.get(), "g", 1) != 1) {
      board.finish(Feature::kIdMap, errno);
    }
  }
  go_write.reset();
  end_trial(pid, kTrialMs);
}

KeeperState look_for_keeper(const storage::Home& home) {
  auto run = open_at(home.directory(), "run", O_PATH | O_DIRECTORY);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!run.ok() || !socket.valid()) {
    return KeeperState::kUnreachable;
  }
  const sockaddr_un address = socket_address(run.value().get(), "keeper");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return KeeperState::kRunning;
  }
  return errno == ENOENT || errno == ECONNREFUSED ? KeeperState::kNotRunning
                                                  : KeeperState::kUnreachable;
}

void look_at_state(Result<storage::Home>& home, StateFacts& state) {
  if (!home.ok()) {
    state.hint = home.error().hint;
    home.error().hint.clear();
    state.error = home.error().to_string();
    home.error().hint = state.hint;
    return;
  }
  state.path = home.value().path();
  const int directory = home.value().directory();
  const std::string name = "doctor." + storage::random_hex(8);
  Status written = replace_file_at(directory, name, "x", 0600);
  ::unlinkat(directory, name.c_str(), 0);
  if (!written.ok()) {
    state.error = "the state directory '" + state.path + "': " + written.error().to_string();
    state.hint = "set CARREL_HOME to a directory that you can write to";
  }
  struct statvfs space{};
  if (::fstatvfs(directory, &space) == 0) {
    state.free_bytes = space.f_bavail * space.f_frsize;
    // Some file systems have no fixed number of files and say 0 of 0.
    state.free_files = space.f_files == 0 ? ~0ULL : space.f_favail;
  }
  state.keeper = look_for_keeper(home.value());
}

bool has_program(const std::string& name) {
  for (const char* directory : {"/usr/local/bin/", "/usr/bin/", "/bin/"}) {
    if (::access((directory + name).c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

void try_sandbox(storage::Home& home, SandboxFacts& sandbox) {
  OneShot job;
  job.command.arguments = {"/bin/true"};
  job.command.timeout = std::chrono::seconds(5);
  sandbox::CommandIo io;
  io.output = [](protocol::Stream, std::string_view) { return Status(); };
  const auto begin = std::chrono::steady_clock::now();
  auto result = OneShots(home, sandbox::find_no_walls).run(job, io);
  const auto taken = std::chrono::steady_clock::now() - begin;
  if (!result.ok()) {
    sandbox.error = result.error().message;
    if (result.error().error_number != 0) {
      sandbox.error += std::string(": ") + std::strerror(result.error().error_number);
    }
    return;
  }
  sandbox.ran = true;
  sandbox.exit_code = result.value().exit_code;
  sandbox.duration_ms = std::chrono::duration_cast<std::chrono::milliseconds>(taken).count();
}

// Goes where the user's sandboxes can have limits, as the keeper does, so that everything after
// this is tried there.
DelegationFacts look_for_delegation(const storage::Home& home) {
  DelegationFacts found;
  if (::geteuid() == 0) {
    return found;
  }
  auto setup = look_at_setup(home, policy::Spec{});
  if (setup.ok() &&
      setup.value().cgroups.source(kernel::Controller::kMemory) != kernel::CgroupSource::kNone) {
    found.state = DelegationFacts::State::kOwnGroup;
    return found;
  }
  OwnScope scope = enter_scope(home, ScopeUse::kDoctor);
  found.state =
      scope.group.empty() ? DelegationFacts::State::kNone : DelegationFacts::State::kScope;
  found.why_not = scope.why_not;
  return found;
}

}  // namespace

void try_features(DoctorFacts& facts) {
  SharedBoard shared;
  if (shared.get() == nullptr) {
    return;
  }
  try_plain(shared);
  try_sandbox_parts(shared);
  shared.report(facts.features);
  facts.landlock_abi = shared.get()->landlock_abi;
}

DoctorFacts examine_host(Result<storage::Home>& home) {
  DoctorFacts facts;
  if (home.ok()) {
    facts.delegation = look_for_delegation(home.value());
  }
  facts.settings = read_kernel_settings();
  facts.around = look_around();
  try_features(facts);
  look_at_state(home, facts.state);
  facts.has_bash = has_program("bash");
  facts.has_python = has_program("python3");
  if (!home.ok()) {
    facts.sandbox.error = "there is no state directory";
    return facts;
  }
  auto setup = look_at_setup(home.value(), policy::Spec{});
  if (setup.ok()) {
    try_groups(setup.value().cgroups, facts);
  } else {
    facts.groups.tried = true;
    facts.groups.error = setup.error().to_string();
  }
  if (facts.state.error.empty()) {
    facts.disk = try_disk(home.value());
  }
  try_sandbox(home.value(), facts.sandbox);
  return facts;
}

}  // namespace carrel::native
