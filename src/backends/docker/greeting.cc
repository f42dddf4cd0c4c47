#include "backends/docker/greeting.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "backends/docker/attach_frames.h"
#include "backends/docker/call.h"
#include "base/files.h"
#include "guest/contained.h"
#include "guest/machine.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{15};  // a machine boots meanwhile
constexpr int kLookMs = 500;
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";

Error not_greeted(std::string message) {
  return Error{Code::kUnsupported, 0, "Failed to create sandbox: " + std::move(message),
               "run 'carrel doctor'"};
}

Error ended() { return not_greeted("its container ended before its first process said anything"); }

// The line is at its end: with the container, or with the engine.
Error why_ended(const Engine& engine, const std::string& container) {
  const auto found = engine.inspect(container);
  return found.ok() || found.error().code == Code::kNotFound ? ended() : found.error();
}

}  // namespace

Result<protocol::Greeting> await_greeting(const Engine& engine, const std::string& container,
                                          int line) {
  const Clock::time_point last = Clock::now() + kPatience;
  AttachFrames frames;
  std::array<unsigned char, protocol::kGreetingSize> data{};
  std::size_t have = 0;
  while (have < data.size()) {
    pollfd look{line, POLLIN, 0};
    if (::poll(&look, 1, kLookMs) > 0) {
      // No more than is still to come: nobody speaks further before it is told anything.
      const auto rest = std::span(data).subspan(have);
      const long n = frames.read(line, {reinterpret_cast<char*>(rest.data()), rest.size()});
      if (n < 0 && errno == EBADMSG) {
        return not_greeted("the Docker engine sent a malformed frame");
      }
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        return why_ended(engine, container);
      }
      have += n > 0 ? static_cast<std::size_t>(n) : 0;
      continue;
    }
    if (Clock::now() >= last) {
      return Error{Code::kTimeout, 0,
                   "Failed to create sandbox: its container did not begin in time",
                   "run 'carrel doctor'"};
    }
    CARREL_ASSIGN(const Json found, engine.inspect(container));
    if (first_process_of(found) == 0) {
      return ended();
    }
  }
  protocol::Greeting greeting;
  if (!frames.between() || !protocol::parse_greeting(data.data(), greeting)) {
    return not_greeted("what its container runs is not the guest");
  }
  return greeting;
}

Result<sandbox::SeenKernel> judge_kernel(const protocol::Greeting& greeting) {
  constexpr std::size_t kMost = 256;
  CARREL_ASSIGN(const std::string own, read_file_at(AT_FDCWD, kBootId, kMost));
  using Whose = sandbox::SeenKernel::Whose;
  return sandbox::SeenKernel{own.starts_with(greeting.boot()) ? Whose::kHosts : Whose::kAnothers,
                             static_cast<int>(greeting.landlock)};
}

Result<std::string> contained_terms(const sandbox::RoomRequest& request,
                                    const sandbox::SeenKernel& seen) {
  std::string terms = request.listener >= 0 ? guest::kTermListens : guest::kTermOnce;
  terms += "\n";
  if (request.network >= 0) {
    terms += guest::kTermNetwork + request.id + "\n";
  }
  if (seen.whose == sandbox::SeenKernel::Whose::kAnothers) {
    terms += std::string(guest::kTermMachine) + "\n";
  } else {
    for (const char* kind : {"mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
      std::array<char, 64> own{};
      const ssize_t size =
          ::readlink((std::string("/proc/self/ns/") + kind).c_str(), own.data(), own.size());
      if (size <= 0 || size == static_cast<ssize_t>(own.size())) {
        return system_error(std::string("look at the host's namespace ") + kind);
      }
      terms += guest::kTermApart + std::string(own.data(), static_cast<std::size_t>(size)) + "\n";
    }
  }
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    if (tree.path.find('\n') != std::string::npos) {
      return not_greeted("a path with a line feed cannot be given to it");
    }
    terms += guest::kTermTree + tree.path + "\n";
  }
  if (terms.size() > protocol::kMaxContainedTerms) {
    return not_greeted("the paths that it is given are too long");
  }
  return terms;
}

Status send_terms(int line, const std::string& terms) {
  std::string all = {static_cast<char>(terms.size() & 0xff), static_cast<char>(terms.size() >> 8)};
  all += terms;
  const timeval patience{.tv_sec = 3, .tv_usec = 0};
  if (::fcntl(line, F_SETFL, 0) != 0 ||
      ::setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
    return system_error("prepare the line");
  }
  for (std::size_t at = 0; at < all.size();) {
    const ssize_t n = ::send(line, all.data() + at, all.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) {
      return ended();
    }
    at += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  return {};
}

}  // namespace carrel::docker
