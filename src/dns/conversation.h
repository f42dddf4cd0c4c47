#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "dns/configuration.h"
#include "dns/exchange.h"
#include "policy/host.h"

namespace carrel::dns {

using Clock = std::chrono::steady_clock;

// How long somebody waits for a lookup.
struct Patience {
  std::optional<Clock::time_point> deadline = {};  // none: as long as the configuration says
  int cancel = -1;                                 // borrowed; once it is readable, waiting ends
};

// What the servers say about one name.
struct Finding {
  enum class Kind { kAddresses, kNoAddress, kNoSuchName, kServerFailure };
  Kind kind = Kind::kServerFailure;
  std::vector<Address> addresses = {};
  std::string failure = {};  // of the servers: a sentence that names one
};

// Asks the servers of a configuration for both families of addresses of one name, as it is. Each
// server is listened to for as long as the configuration says; the next one is asked after a second
// without an answer, or at once where a server fails, and a late answer still counts. Once there is
// an address with a route, or no such name, the other family has half a second more. What one
// family has found by the deadline is the finding.
class Conversation {
 public:
  Conversation(const Configuration& configuration, const policy::Host& name);

  // kTimeout: no server answers; kGone: cancelled; kUnavailable: no server can be reached.
  Result<Finding> run(const Patience& patience);

 private:
  struct Family {
    RecordType type = RecordType::kA;
    std::optional<ResponseCode> answered = {};  // kNoError or kNoSuchName
    std::vector<policy::IpAddress> addresses = {};
  };
  struct Running {
    Exchange exchange;
    std::size_t family;
    std::size_t server;
    Clock::time_point until;
  };

  void begin(std::size_t family, std::size_t server, Lookup lookup, Transport transport);
  void ask_next_server();
  [[nodiscard]] bool next_is_due() const;
  Status wait(const Patience& patience) const;
  [[nodiscard]] Clock::time_point next_event(const Patience& patience) const;
  void advance();
  void end(const Running& running, Exchange::State state);
  void take_answer(const Running& running);
  void take_final_answer(const Running& running);
  void note_failure(std::size_t server, std::string what);
  [[nodiscard]] bool is_open(std::size_t family) const;
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] bool has_usable_address() const;
  // Whether there is something to say though a family is silent.
  [[nodiscard]] bool has_found() const;
  [[nodiscard]] Result<Finding> finding() const;
  [[nodiscard]] Error silence() const;

  const Configuration* configuration_;
  policy::Host name_;
  std::vector<Family> families_;
  std::vector<Running> running_;
  std::size_t first_server_ = 0;
  std::size_t asked_ = 0;  // how many times a server was asked
  Clock::time_point next_ask_;
  std::optional<Clock::time_point> other_until_;  // for the family that is left
  std::string answered_failure_;                  // by a server that failed
  std::string unreachable_;                       // by a server that could not be asked
};

}  // namespace carrel::dns
