#pragma once

#include <cstdint>

namespace carrel::kernel {

// Where connections and lookups of a captive network arrive, at 127.0.0.1 and ::1.
inline constexpr std::uint16_t kCaptiveTcpPort = 61001;
inline constexpr std::uint16_t kCaptiveDnsPort = 61053;
// Where a program finds a proxy if it insists on one, at 127.0.0.1.
inline constexpr std::uint16_t kCaptiveProxyPort = 3128;

}  // namespace carrel::kernel
