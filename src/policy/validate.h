#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "policy/given.h"
#include "policy/spec.h"

namespace carrel::policy {

// The least and the most that makes sense for each limit, on any host.
inline constexpr std::uint64_t kLeastMemory = 6ULL << 20;
inline constexpr std::uint32_t kLeastCpuMillis = 10;
inline constexpr std::uint32_t kFewestPids = 2;
inline constexpr std::uint32_t kMostPids = 4'194'304;
inline constexpr std::uint64_t kLeastStorage = 64ULL << 10;
inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(30 * 24);
inline constexpr std::size_t kMostEnvironmentBytes = 1 << 20;

// One limit against those bounds; `given` is how it was written, for the error.
Status check_memory(const Given& given, std::uint64_t bytes);
Status check_cpus(const Given& given, std::uint32_t millis);
Status check_pids(const Given& given, std::uint64_t pids);
Status check_storage(const Given& given, std::uint64_t bytes);
Status check_timeout(const Given& given, std::chrono::milliseconds timeout);

// The time limit of a session at a terminal: only one that was given.
std::chrono::milliseconds session_timeout(const Spec& spec);

// What this host has to give.
struct HostFacts {
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpus = 0;
};

// Every field of a Spec, wherever it came from, and the limits against the host: more memory or
// cores than it has is an error. Free disk space is not looked at, it changes by the minute.
Status validate(const Spec& spec, const HostFacts& host);

}  // namespace carrel::policy
