#include "manager/ledger.h"

#include <utility>

#include "storage/state.h"

namespace carrel::manager {
namespace {

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS owners (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS orders (
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  id TEXT NOT NULL,
  done INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT;
CREATE TABLE IF NOT EXISTS public_ports (
  id TEXT NOT NULL,
  port INTEGER NOT NULL,
  PRIMARY KEY (id, port)
) STRICT;
)";

}  // namespace

Result<Ledger> Ledger::open(const storage::Home& home) {
  // The sandboxes' own table comes first.
  CARREL_ASSIGN(const storage::State state, storage::State::open(home));
  CARREL_ASSIGN(storage::Database database, storage::Database::open(home.path() + "/state.db"));
  return open(std::move(database));
}

Result<Ledger> Ledger::open(storage::Database database) {
  CARREL_TRY(database.execute(kSchema));
  return Ledger(std::move(database));
}

Result<std::string> Ledger::owner_of(const std::string& id) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT owner FROM owners WHERE id = ?"));
  CARREL_ASSIGN(const bool known, statement.bind(id).step());
  return known ? statement.text(0) : std::string();
}

Status Ledger::note_owner(const std::string& id, const std::string& owner) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT OR REPLACE INTO owners (id, owner) VALUES (?, ?)"));
  CARREL_TRY(statement.bind(id).bind(owner).step());
  return {};
}

Result<std::map<std::string, std::string>> Ledger::owners() {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT id, owner FROM owners"));
  std::map<std::string, std::string> owners;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return owners;
    }
    owners.emplace(statement.text(0), statement.text(1));
  }
}

Result<std::optional<Ledger::Order>> Ledger::find_order(const std::string& owner,
                                                        const std::string& key) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT digest, id, done FROM orders "
                                                  "WHERE owner = ? AND key = ?"));
  CARREL_ASSIGN(const bool found, statement.bind(owner).bind(key).step());
  if (!found) {
    return std::optional<Order>();
  }
  return std::optional<Order>(
      Order{statement.text(0), statement.text(1), statement.number(2) != 0});
}

Status Ledger::put_order(const std::string& owner, const std::string& key, const Order& order) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT OR REPLACE INTO orders (owner, key, digest, id, done, "
                                  "created_ms) VALUES (?, ?, ?, ?, ?, ?)"));
  CARREL_TRY(statement.bind(owner)
                 .bind(key)
                 .bind(order.digest)
                 .bind(order.id)
                 .bind(std::int64_t{order.done ? 1 : 0})
                 .bind(storage::wall_clock_ms())
                 .step());
  return {};
}

Status Ledger::drop_order(const std::string& owner, const std::string& key) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("DELETE FROM orders WHERE owner = ? AND key = ?"));
  CARREL_TRY(statement.bind(owner).bind(key).step());
  return {};
}

Result<std::set<std::pair<std::string, std::uint16_t>>> Ledger::public_ports() {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT id, port FROM public_ports"));
  std::set<std::pair<std::string, std::uint16_t>> ports;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return ports;
    }
    ports.emplace(statement.text(0), static_cast<std::uint16_t>(statement.number(1)));
  }
}

Status Ledger::add_public(const std::string& id, std::uint16_t port) {
  CARREL_ASSIGN(auto statement, database_.prepare("INSERT OR REPLACE INTO public_ports (id, port) "
                                                  "VALUES (?, ?)"));
  CARREL_TRY(statement.bind(id).bind(std::int64_t{port}).step());
  return {};
}

Status Ledger::drop_public(const std::string& id, std::uint16_t port) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("DELETE FROM public_ports WHERE id = ? AND port = ?"));
  CARREL_TRY(statement.bind(id).bind(std::int64_t{port}).step());
  return {};
}

Result<std::vector<std::string>> Ledger::live_ids() {
  CARREL_ASSIGN(
      auto statement,
      database_.prepare("SELECT id FROM sandboxes WHERE state IN ('creating', 'running')"));
  std::vector<std::string> ids;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return ids;
    }
    ids.push_back(statement.text(0));
  }
}

Status Ledger::forget_old(std::int64_t before_ms) {
  CARREL_ASSIGN(auto orders, database_.prepare("DELETE FROM orders WHERE created_ms < ?"));
  CARREL_TRY(orders.bind(before_ms).step());
  return database_.execute(
      "DELETE FROM owners WHERE id NOT IN (SELECT id FROM sandboxes);"
      "DELETE FROM public_ports WHERE id NOT IN (SELECT id FROM sandboxes)");
}

}  // namespace carrel::manager
