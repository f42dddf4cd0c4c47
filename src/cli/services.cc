#include "cli/services.h"

#include <vector>

#include "manager/box_command.h"
#include "manager/services.h"
#include "policy/size.h"
#include "storage/box.h"

namespace carrel::cli {

Status wait_for_services(const Context& context, const storage::Home& home, const std::string& id) {
  const auto given = context.arguments.value(OptionId::kWaitReady);
  if (!given.has_value()) {
    return {};
  }
  CARREL_ASSIGN(const auto patience, policy::parse_duration({"--wait-ready", *given}));
  CARREL_ASSIGN(const storage::BoxRecord record, storage::read_record(home, id));
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home, record));
  CARREL_ASSIGN(const auto services, manager::await_ready(stream, patience));
  std::string missing;
  for (const manager::ServiceLife& service : services) {
    if (service.state != protocol::ServiceState::kReady) {
      missing += (missing.empty() ? "" : ", ") + service.name + " (" +
                 std::string(manager::name_of(service.state)) + ")";
    }
  }
  if (missing.empty()) {
    return {};
  }
  return Error{Code::kTimeout, 0, "sandbox " + id + " runs, but not ready: " + missing,
               "'carrel info' says more, 'carrel logs --command' what they printed"};
}

}  // namespace carrel::cli
