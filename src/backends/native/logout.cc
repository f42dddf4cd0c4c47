#include "backends/native/logout.h"

#include <unistd.h>

#include "backends/native/doctor_settings.h"

namespace carrel::native {

LogoutFacts logout_effect(const Surroundings& around) {
  if (around.uid == 0 || !around.systemd || around.lingers ||
      (!around.logind_kills && !around.in_user_manager)) {
    return {};
  }
  return {Logout::kEnds, "loginctl enable-linger " +
                             (around.user.empty() ? std::to_string(around.uid) : around.user)};
}

LogoutFacts look_at_logout() {
  Surroundings around;
  around.uid = ::geteuid();
  if (around.uid != 0) {
    look_at_login(around);
  }
  return logout_effect(around);
}

}  // namespace carrel::native
