#include "backends/docker/call.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/docker/working.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "protocol/frame.h"
#include "sandbox/command.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kCall{10'000};
constexpr std::chrono::milliseconds kLook{250};

// Of what an engine tells; anything else than a number or a truth is none.
int number_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_number_integer()
             ? found->get<int>()
             : 0;
}

}  // namespace

int first_process_of(const Json& found) { return number_in(found.value("State", Json()), "Pid"); }

bool are_together(pid_t one, pid_t other, const std::string& container) {
  constexpr std::size_t kLongest = 16U << 10;
  const auto groups = [](pid_t process) {
    auto text = read_file_at(AT_FDCWD, "/proc/" + std::to_string(process) + "/cgroup", kLongest);
    return text.ok() ? std::move(text.value()) : std::string();
  };
  return groups(one).find(container) != std::string::npos &&
         groups(other).find(container) != std::string::npos;
}

Status check_apart(int process, EngineKind engine, Ids ids) {
  std::vector<const char*> kinds = {"mnt", "pid", "net", "ipc", "uts"};
  if (engine != EngineKind::kPodman) {
    kinds.push_back("cgroup");
  }
  if (ids == Ids::kOwnersRoot) {
    kinds.push_back("user");
  }
  for (const char* kind : kinds) {
    struct stat own{};
    struct stat theirs{};
    const std::string below = std::string("/ns/") + kind;
    if (::stat(("/proc/self" + below).c_str(), &own) != 0 ||
        ::stat(("/proc/" + std::to_string(process) + below).c_str(), &theirs) != 0 ||
        own.st_ino == theirs.st_ino) {
      return unsupported(std::string("Failed to create sandbox: cannot rely on these walls: the "
                                     "container shares the host's namespace '") +
                             kind + "'",
                         "run 'carrel doctor'");
    }
  }
  return {};
}

Result<Door::Caller> await_call(const Engine& engine, const std::string& container,
                                const Door& door) {
  const Clock::time_point last = Clock::now() + kCall;
  Working working(engine.socket(), engine.owner());
  for (;;) {
    auto caller = door.answer(kLook);
    if (caller.ok() || caller.error().code != Code::kTimeout || Clock::now() >= last) {
      return caller;
    }
    CARREL_ASSIGN(const Json found, engine.inspect(container));
    working.count(first_process_of(found));
    if (working.quiet() >= kQuiet) {
      return caller;
    }
    if (first_process_of(found) == 0) {
      return unsupported("Failed to create sandbox: its container ended at once, with status " +
                             std::to_string(number_in(found.value("State", Json()), "ExitCode")),
                         "run 'carrel doctor'");
    }
  }
}

pid_t pid_of(int process) {
  auto text = read_file_at(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(process), 4096);
  constexpr std::string_view kPid = "\nPid:";
  const std::size_t at = text.ok() ? text->find(kPid) : std::string::npos;
  return at == std::string::npos ? 0 : std::atoi(text->c_str() + at + kPid.size());
}

Result<UniqueFd> receive_guest(int stream) {
  const timeval patience{2, 0};
  (void)::setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::array<char, protocol::kHeaderSize> head{};
  std::vector<UniqueFd> descriptors;
  const ssize_t got = receive_with(stream, head, descriptors, MSG_WAITALL);
  protocol::FrameHeader header;
  if (got != static_cast<ssize_t>(head.size()) ||
      !protocol::parse_header(std::span<const unsigned char, protocol::kHeaderSize>(
                                  reinterpret_cast<const unsigned char*>(head.data()), head.size()),
                              protocol::kMaxGuestPayload, header)) {
    return Error{Code::kGone, 0, "Failed to create sandbox: its container ended", {}};
  }
  if (header.type == protocol::FrameType::kBootFailed) {
    std::string payload(header.size, '\0');
    const ssize_t size = ::recv(stream, payload.data(), payload.size(), MSG_WAITALL);
    payload.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return sandbox::to_boot_error(payload);
  }
  if (header.type != protocol::FrameType::kRoomChecked || descriptors.size() != 1) {
    return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
  }
  const timeval none{0, 0};
  (void)::setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
  return std::move(descriptors[0]);
}

}  // namespace carrel::docker
