#pragma once

#include <cstdint>
#include <string_view>

namespace carrel::kernel {

// Where connections and lookups of a captive network arrive, at 127.0.0.1 and ::1.
inline constexpr std::uint16_t kCaptiveTcpPort = 61001;
inline constexpr std::uint16_t kCaptiveDnsPort = 61053;
// Where a program finds a proxy if it insists on one, at 127.0.0.1.
inline constexpr std::uint16_t kCaptiveProxyPort = 3128;

// An address of such a namespace's own, without which libraries would believe that there is no
// network.
inline constexpr std::string_view kCaptiveAddress = "10.255.0.2";

}  // namespace carrel::kernel
