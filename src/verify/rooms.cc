#include "verify/rooms.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "backends/native/given_tree.h"
#include "base/files.h"
#include "sandbox/builder.h"
#include "sandbox/capture.h"
#include "verify/probe_image.h"

namespace carrel::verify {

namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20;
constexpr std::uint64_t kLeastMemory = 48 * kMebibyte;
constexpr std::uint64_t kLeastTmp = 16 * kMebibyte;
constexpr std::uint32_t kLeastProcesses = 12;

// CRITICAL: a probe refuses to run where this is its own mount namespace.
Result<std::string> own_mount_namespace() {
  struct stat info{};
  if (::stat("/proc/self/ns/mnt", &info) != 0) {
    return system_error("look at /proc/self/ns/mnt");
  }
  return std::to_string(info.st_ino);
}

// Where a sandbox can write and execute, and nothing of the host's is.
std::string place_for_probe(const policy::Spec& spec) {
  for (const std::string place : {"/tmp", "/workspace", "/home/"}) {
    const std::string path = place == "/home/" ? place + spec.user : place;
    const bool covered = std::any_of(
        spec.mounts.begin(), spec.mounts.end(),
        [&](const policy::Mount& mount) { return (path + "/").starts_with(mount.target + "/"); });
    if (!covered) {
      return path;
    }
  }
  return {};
}

}  // namespace

Rooms::Rooms(storage::Home& home, Subject subject)
    : home_(&home), subject_(std::move(subject)), shots_(home, subject_.find_walls) {}

Status Rooms::open() {
  native::OneShot job;
  job.spec = subject_.spec;
  job.command.arguments = {"true"};
  CARREL_TRY(manager::prepare_once(*home_, subject_.chosen, [](const std::string&) {}, job, held_));
  spec_ = std::move(job.spec);
  place_ = place_for_probe(spec_);
  if (place_.empty()) {
    return Error{Code::kUnsupported, 0,
                 "the mounts of the policy leave no folder to write the probes to",
                 "leave /tmp free"};
  }
  CARREL_ASSIGN(program_, sandbox::memory_file(probe_program()));
  CARREL_ASSIGN(const sandbox::ExecResult tried,
                visit({.probe = "none", .limits = usual_limits()}));
  constexpr int kNoSuchProbe = 2;  // what the probes say to that
  if (tried.exit_code != kNoSuchProbe) {
    return Error{Code::kUnsupported, 0,
                 "the probes do not run in the sandbox: " +
                     (tried.standard_error.empty() ? tried.reason : tried.standard_error),
                 "the image needs /bin/sh, cat and chmod"};
  }
  return {};
}

policy::Limits Rooms::usual_limits() const {
  policy::Limits limits = spec_.limits;
  limits.memory_bytes = std::max(limits.memory_bytes, kLeastMemory);
  limits.tmp_bytes = std::max(limits.tmp_bytes, kLeastTmp);
  limits.disk_bytes = std::max(limits.disk_bytes, kLeastTmp);
  limits.pids = std::max(limits.pids, kLeastProcesses);
  return limits;
}

bool Rooms::interrupted() const {
  pollfd told{subject_.interrupt, POLLIN, 0};
  return subject_.interrupt >= 0 && ::poll(&told, 1, 0) == 1;
}

Result<sandbox::ExecResult> Rooms::visit(const Visit& visit) {
  if (interrupted()) {
    return Error{Code::kSystem, EINTR, "interrupted", {}};
  }
  CARREL_ASSIGN(const std::string host, own_mount_namespace());
  native::OneShot job;
  job.spec = spec_;
  job.spec.limits = visit.limits;
  CARREL_ASSIGN(job.trees, native::duplicate(subject_.trees));
  const std::string path = place_ + "/carrel-probe";
  job.command.arguments = {
      "/bin/sh", "-c", "cat > \"$0\" && chmod 755 \"$0\" && exec \"$0\" \"$@\" < /dev/null",
      path,      host, std::string(visit.probe)};
  job.command.arguments.insert(job.command.arguments.end(), visit.arguments.begin(),
                               visit.arguments.end());
  job.command.timeout = visit.timeout;
  // Each has its own, because each reads it from its beginning.
  CARREL_ASSIGN(const UniqueFd program,
                open_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(program_.get()), O_RDONLY));
  sandbox::Capture output;
  sandbox::Capture error;
  std::string said;
  UniqueFd enough;
  sandbox::CommandIo io;
  io.input = program.get();
  std::array<int, 2> pipe{};
  if (visit.on_output) {
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      return system_error("make a pipe");
    }
    enough.reset(pipe[1]);
  }
  const UniqueFd ended(visit.on_output ? pipe[0] : -1);
  io.wake = visit.on_output ? ended.get() : subject_.interrupt;
  io.on_wake = [told = false]() mutable {  // it stays readable
    return sandbox::CommandIo::Wish{.kill = !std::exchange(told, true)};
  };
  io.output = [&](protocol::Stream stream, std::string_view data) -> Status {
    (stream == protocol::Stream::kStdout ? output : error).add(data);
    if (visit.on_output && stream == protocol::Stream::kStdout && enough.valid()) {
      said.append(data.substr(0, 4096));
      if (visit.on_output(said)) {
        enough.reset();
      }
    }
    return {};
  };
  auto listener = [&](const native::Enforcement& enforcement) {
    if (enforcement_.rows.empty()) {
      enforcement_ = enforcement;
    }
  };
  CARREL_ASSIGN(sandbox::ExecResult result, shots_.run(job, io, listener));
  if (interrupted()) {
    return Error{Code::kSystem, EINTR, "interrupted", {}};
  }
  result.standard_output = output.text();
  result.standard_error = error.text();
  return result;
}

}  // namespace carrel::verify
