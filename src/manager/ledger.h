#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "storage/database.h"
#include "storage/home.h"

namespace carrel::manager {

// What the daemon adds to the state database: whose a sandbox is, and under which key it was asked
// for. One connection for one thread.
class Ledger {
 public:
  static Result<Ledger> open(const storage::Home& home);
  // Over a connection that somebody has already.
  static Result<Ledger> open(storage::Database database);

  Status note_owner(const std::string& id, const std::string& owner);
  // Empty: the operator.
  Result<std::string> owner_of(const std::string& id);
  // By the id of the sandbox. Those that nobody noted belong to the operator.
  Result<std::map<std::string, std::string>> owners();

  // A creation that somebody asked for under a key of his own.
  struct Order {
    std::string digest;  // of what was asked for
    std::string id;      // that the sandbox has, or would have had
    bool done = false;   // it was made
  };
  Result<std::optional<Order>> find_order(const std::string& owner, const std::string& key);
  Status put_order(const std::string& owner, const std::string& key, const Order& order);
  Status drop_order(const std::string& owner, const std::string& key);

  // Ports that everybody may reach.
  Result<std::set<std::pair<std::string, std::uint16_t>>> public_ports();
  Status add_public(const std::string& id, std::uint16_t port);
  Status drop_public(const std::string& id, std::uint16_t port);

  // The ids of all sandboxes that run, or are about to.
  Result<std::vector<std::string>> live_ids();
  // Drops orders older than that, and owners of sandboxes that the database has forgotten.
  Status forget_old(std::int64_t before_ms);

 private:
  explicit Ledger(storage::Database database) : database_(std::move(database)) {}
  storage::Database database_;
};

}  // namespace carrel::manager
