#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/given.h"

namespace carrel::policy {

inline constexpr std::size_t kMostServices = 8;
inline constexpr std::size_t kLongestService = 32 << 10;  // bytes of its words together

// A program that runs as long as its sandbox does: it is started with it, every time, and again
// when it ends. It has to stay in the foreground.
struct Service {
  std::string name;
  std::vector<std::string> arguments;
  // When others may count on it: when somebody listens on the port, or the command succeeds. With
  // neither, as soon as it runs.
  std::uint16_t ready_port = 0;
  std::vector<std::string> ready_command = {};
};

// `NAME=COMMAND` or `NAME:PORT=COMMAND`, where COMMAND is for sh and PORT says when it is ready; or
// all of it as a JSON object: {"name": …, "command": … or ["word", …], "ready": {"port": …} or
// {"command": …}}.
Result<Service> parse_service(const Given& given);
// "NAME=COMMAND", for people.
std::string service_text(const Service& service);

}  // namespace carrel::policy
