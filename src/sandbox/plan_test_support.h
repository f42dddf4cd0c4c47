#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/boot.h"

// Plans for tests of those who follow them.
namespace carrel::sandbox {

inline std::string plan_of(const std::vector<protocol::MountStep>& steps) {
  std::string plan(64U << 10, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(plan.data()), plan.size()});
  for (const protocol::MountStep& step : steps) {
    protocol::write_step(writer, step);
  }
  plan.resize(writer.size());
  return plan;
}

inline protocol::MountStep step(protocol::StepKind kind, std::string_view path,
                                std::string_view source = {}, std::uint32_t flags = 0) {
  protocol::MountStep made;
  made.kind = kind;
  made.path = path;
  made.source = source;
  made.flags = flags;
  return made;
}

inline bool everything_exists(const std::string&) { return true; }
inline bool nothing_exists(const std::string&) { return false; }

}  // namespace carrel::sandbox
