#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "egress/decision_log.h"
#include "egress/loop.h"
#include "egress/resolver.h"
#include "egress/synthetic_names.h"
#include "egress/tls_authority.h"
#include "egress/tls_servers.h"
#include "egress/upstream.h"
#include "egress/usage.h"
#include "policy/decide.h"
#include "policy/network.h"
#include "protocol/message.h"
#include "storage/secrets.h"

namespace carrel::egress {

// What all sandboxes that this process serves have together.
struct Service {
  Loop loop;
  Resolver resolver{loop};
  DecisionLog log;
  TlsServers servers;
  std::optional<storage::Secrets> secrets;
  Upstream upstream;

  // As the user's store has it now: what was removed there is gone here.
  [[nodiscard]] Result<std::string> secret(const std::string& name) const;
  // The addresses of this machine, looked at every now and then.
  const std::vector<policy::IpAddress>& own_addresses();

 private:
  std::vector<policy::IpAddress> own_;
  Deadline looked_{};
};

// The sockets that were born in a sandbox's network, in the order of protocol::NetworkSocket; those
// that its kernel lacks are not open.
using RoomSockets = std::array<UniqueFd, protocol::kNetworkSockets>;

// A connection of a sandbox, as long as it lasts.
struct LiveFlow {
  policy::Flow flow;
  policy::IpAddress address;  // what was dialled
  Watched* client = nullptr;
  Watched* server = nullptr;
  bool dialled = false;
  bool reads_requests = false;  // each one is decided on
  std::string ended_by;         // why it was cut off; empty: it was not
};

// One sandbox's network: its policy, the names it knows, its connections and what it has used.
class Room : public std::enable_shared_from_this<Room> {
 public:
  Room(Service& service, std::string id, policy::NetworkPolicy policy, SyntheticNames names,
       KeptUsage usage);

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] Service& service() { return *service_; }
  [[nodiscard]] const policy::NetworkPolicy& policy() const { return policy_; }
  [[nodiscard]] SyntheticNames& names() { return names_; }
  [[nodiscard]] bool closed() const { return closed_; }
  // Null: the sandbox does not trust us with its TLS.
  [[nodiscard]] TlsAuthority* authority() { return authority_.get(); }
  void set_authority(std::unique_ptr<TlsAuthority> authority) { authority_ = std::move(authority); }

  // Whether no command has run in the sandbox, and that from now on some may.
  [[nodiscard]] bool is_new() const { return usage_.is_new(); }
  void settle() { usage_.settle(); }
  // While it is tried whether the network holds nothing is counted or logged, and one more name is
  // allowed.
  enum class Proving { kNo, kYes };
  void set_proving(Proving proving) {
    proving_ = proving == Proving::kYes;
    canary_.reset();
  }
  void set_canary(policy::Host name) { canary_ = std::move(name); }
  [[nodiscard]] bool is_canary(const policy::Host& name) const { return canary_ == name; }

  // Serves the sockets until close().
  void open(RoomSockets sockets);
  // Connections that the new policy does not allow end.
  void set_policy(policy::NetworkPolicy policy);
  void close();

  // Counts the connection, or says why there can be none more.
  Status enter(LiveFlow& flow);
  void leave(LiveFlow& flow);
  // Which budget of bytes is used up, as a sentence; empty: none.
  [[nodiscard]] std::string used_up() const;
  // Count bytes. False: the budget is used up, and these go nowhere.
  bool spend_out(std::uint64_t bytes);
  bool spend_in(std::uint64_t bytes);
  // Where a name led a moment ago; empty: nobody asked. Each sandbox has its own: what one looks up
  // says nothing to another.
  [[nodiscard]] std::vector<policy::IpAddress> remembered(const policy::Host& name) const;
  void remember(const policy::Host& name, std::vector<policy::IpAddress> addresses);
  // Whether one more lookup fits into this minute.
  bool spend_lookup();

  [[nodiscard]] const Usage& usage() const { return usage_.now(); }
  [[nodiscard]] std::size_t live() const { return flows_.size(); }
  void log(DecisionRecord record);

 private:
  void cut(LiveFlow& flow, std::string why);

  Service* service_;
  std::string id_;
  policy::NetworkPolicy policy_;
  SyntheticNames names_;
  std::unique_ptr<TlsAuthority> authority_;
  std::list<LiveFlow*> flows_;
  std::vector<std::shared_ptr<Watched>> sockets_;
  struct Remembered {
    std::vector<policy::IpAddress> addresses;
    Deadline until{};
  };
  std::map<std::string, Remembered> remembered_;
  KeptUsage usage_;
  Deadline minute_{};
  std::uint32_t lookups_ = 0;
  bool closed_ = false;
  bool proving_ = false;
  std::optional<policy::Host> canary_;
};

}  // namespace carrel::egress
