#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/spec.h"

namespace carrel::manager {

// What sandboxes may use, added up. Of those that are stopped only the disk counts.
struct Weight {
  std::uint64_t sandboxes = 0;
  std::uint64_t cpu_millis = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;

  Weight& operator+=(const Weight& other);
};
Weight weight_of(const policy::Limits& limits);
Weight weight_at_rest(const policy::Limits& limits);

// The most that one client may have at a time. What is not said has no limit of its own.
struct Quota {
  std::optional<std::uint64_t> sandboxes;
  std::optional<std::uint64_t> cpu_millis;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> disk_bytes;
};

// One part of it: "sandboxes=5", "cpus=2", "memory=4g" or "disk=20g".
Status add_to_quota(std::string_view text, Quota& quota);

// kResource, with what is used and what there may be, when there is no room for `wanted`.
Status check_quota(const Quota& quota, const Weight& used, const Weight& wanted);

// What has to be left of the host for it to be well.
struct Reserve {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};
// What there is, by what is really used and not by what is allowed.
struct HostRoom {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> disk_bytes;
};
HostRoom look_at_room(const std::string& home);
// kResource when there is too little for one more sandbox.
Status check_room(const Reserve& reserve, const HostRoom& room);

}  // namespace carrel::manager
