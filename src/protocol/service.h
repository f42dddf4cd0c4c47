#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/message.h"
#include "protocol/wire.h"

// Programs that run as long as their sandbox does. Whoever makes a guest gives them to it, one
// frame for each, before he lets go of it; the guest starts them, watches them and starts them
// again.
namespace carrel::protocol {

inline constexpr std::uint32_t kMaxServices = 8;
inline constexpr std::size_t kMaxServiceStart = 128U << 10;

struct Service {
  std::string_view name;
  std::uint16_t port = 0;    // it is ready when somebody listens there; 0: that is not asked
  std::string_view program;  // a Start message, of an exec
  std::string_view probe;    // another: it is ready when this succeeds; empty: that is not asked
};

void write_service(Writer& writer, const Service& service);
bool parse_service(std::string_view payload, Service& service);

enum class ServiceState : std::uint8_t {
  kWaiting = 1,   // it ended, and is started again soon
  kStarting = 2,  // it runs
  kReady = 3,
};

// One row of the answer to kServices.
struct ServiceRow {
  std::string_view name;
  ServiceState state = ServiceState::kWaiting;
  std::uint32_t starts = 0;
  std::uint64_t command = 0;   // the number of the one that runs, or ran last; 0: none did
  std::uint8_t ended = 0;      // whether it ended before
  std::uint32_t status = 0;    // then: its exit status, 128 + n after signal n
  std::uint64_t ready_ms = 0;  // how long it took from its last start to being ready
};

void write_service_row(Writer& writer, const ServiceRow& row);
bool parse_service_row(std::string_view payload, ServiceRow& row);

}  // namespace carrel::protocol
