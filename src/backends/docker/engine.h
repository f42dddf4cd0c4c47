#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/client.h"

// An engine that speaks Docker's API over a socket of this host.
namespace carrel::docker {

// How long an engine may take at most for what it can answer from memory, and for what it has to
// work for. One that is not seen working meanwhile is given up long before: see working.h.
inline constexpr std::chrono::milliseconds kQuestion{3'000};
inline constexpr std::chrono::milliseconds kWork{10'000};

// "unix:///path": of DOCKER_HOST, or where an engine usually is.
std::string usual_address();

struct Answer {
  int status = 0;
  std::string body;

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
};

// Who speaks the interface, each with a few words of its own.
enum class EngineKind { kDocker, kPodman };

struct LimitsHeld {
  bool memory = true;
  bool cpu = true;
  bool pids = true;
};

// What an engine says about itself.
struct Facts {
  EngineKind kind = EngineKind::kDocker;
  std::string version;
  std::string runc;  // the version of its runc; empty: it does not tell
  std::vector<std::string> runtimes;
  std::string usual_runtime;
  std::vector<std::string> security;  // "name=apparmor" and the like
  unsigned cpus = 0;
  std::string groups;  // the version of its control groups
  uid_t owner = 0;     // of its socket
  // What it says that its control groups can hold of a container.
  LimitsHeld holds;

  [[nodiscard]] bool rootless() const;
  // An engine of root's is asked for every limit, and has them or refuses. A rootless one has what
  // somebody gave it: often nothing.
  [[nodiscard]] LimitsHeld limits() const;
};

// One object is for one thread.
class Engine {
 public:
  // kUnsupported: an address that is not a socket of this host.
  static Result<Engine> at(const std::string& address);

  // kUnavailable: it is not there, or went away; kTimeout; kDenied: the caller may not use it.
  Result<Answer> ask(http::Method method, const std::string& target, std::string body,
                     std::chrono::milliseconds patience) const;

  // The same for answers of any size, which `take` gets piece by piece with their status; the end
  // is the status. It may take as long as something comes, and the engine answers others meanwhile.
  using Take = std::function<Status(int status, std::string_view bytes)>;
  Result<int> stream(http::Method method, const std::string& target, std::chrono::milliseconds idle,
                     const Take& take) const;

  // The standard input and output of a container that is not started yet, as one connection that
  // does not block: what is written goes in as it is, what comes out is in frames (AttachFrames).
  Result<UniqueFd> attach(const std::string& container) const;

  // Whether it did not answer the last question.
  [[nodiscard]] bool silent() const { return silent_; }
  // Who owns its socket.
  [[nodiscard]] uid_t owner() const;
  [[nodiscard]] const std::string& socket() const { return socket_; }

  Result<Facts> facts() const;
  // A container by its id or name, as the engine has it. kNotFound.
  Result<nlohmann::json> inspect(const std::string& container) const;
  // Ends and removes it; one that is not there is fine. A silent engine is not waited for again.
  Status remove(const std::string& container) const;
  // All that have these labels, with the value of one of their labels.
  struct Listed {
    std::string id;
    std::string state;
    std::string value;
  };
  Result<std::vector<Listed>> labelled(const std::vector<std::string>& labels,
                                       const std::string& told) const;
  // Makes an image of an archive.
  Status import_image(const std::string& name, const std::string& tag, const std::string& label,
                      std::string archive) const;

 private:
  [[nodiscard]] Error explain(Error error) const;
  // What an answer that did not come means; `cancel` tells whether it was given up.
  [[nodiscard]] Error judge(Error error, int cancel) const;
  [[nodiscard]] Error hung() const;
  explicit Engine(std::string socket) : socket_(std::move(socket)) {}
  std::string socket_;
  mutable bool silent_ = false;
};

// What an engine said instead of doing what it was asked for.
Error refusal(const std::string& what, const Answer& answer);

}  // namespace carrel::docker
