#include "manager/manager.h"

// Ports of sandboxes that everybody may reach.
namespace carrel::manager {

Status Manager::set_reach(const Caller& caller, const std::string& id, std::uint16_t port,
                          Reach reach) {
  CARREL_TRY(find(caller, id));
  {
    const std::lock_guard database(database_mutex_);
    CARREL_TRY(reach == Reach::kEverybody ? ledger_.add_public(id, port)
                                          : ledger_.drop_public(id, port));
  }
  const std::lock_guard lock(mutex_);
  if (reach == Reach::kEverybody) {
    public_ports_.emplace(id, port);
  } else {
    public_ports_.erase({id, port});
  }
  return {};
}

bool Manager::is_public(const std::string& id, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  return public_ports_.contains({id, port});
}

Result<std::vector<std::uint16_t>> Manager::public_ports(const Caller& caller,
                                                         const std::string& id) {
  CARREL_TRY(find(caller, id));
  std::vector<std::uint16_t> ports;
  const std::lock_guard lock(mutex_);
  for (const auto& [whose, port] : public_ports_) {
    if (whose == id) {
      ports.push_back(port);
    }
  }
  return ports;
}

}  // namespace carrel::manager
