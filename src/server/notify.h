#pragma once

#include <string_view>

namespace carrel::server {

// Tells the service manager (sd_notify), if there is one.
void notify(std::string_view state);
// That this process is alive, as often as it wants to hear that.
void notify_watchdog();

}  // namespace carrel::server
