#include "dns/conversation.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dns/dial_order.h"

namespace carrel::dns {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPace{1'000};
constexpr milliseconds kForTheOtherFamily{500};

std::string_view name_of(ResponseCode code) {
  switch (code) {
    case ResponseCode::kNoError:
      return "NOERROR";
    case ResponseCode::kFormatError:
      return "FORMERR";
    case ResponseCode::kServerFailure:
      return "SERVFAIL";
    case ResponseCode::kNoSuchName:
      return "NXDOMAIN";
    case ResponseCode::kNotImplemented:
      return "NOTIMP";
    case ResponseCode::kRefused:
      return "REFUSED";
  }
  return "an unknown code";
}

bool is_final(const Answer& answer) {
  return answer.code == ResponseCode::kNoError || answer.code == ResponseCode::kNoSuchName;
}

int milliseconds_until(Clock::time_point when) {
  const auto left = std::chrono::ceil<milliseconds>(when - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(static_cast<long>(left), 0, 1 << 30));
}

}  // namespace

Conversation::Conversation(const Configuration& configuration, const policy::Host& name)
    : configuration_(&configuration), name_(name) {
  families_.push_back({RecordType::kA});
  if (!configuration.no_aaaa) {
    families_.push_back({RecordType::kAaaa});
  }
  first_server_ = configuration.rotate ? random_id() % configuration.servers.size() : 0;
}

Result<Finding> Conversation::run(const Patience& patience) {
  while (!is_settled()) {
    if (next_is_due()) {
      ask_next_server();
    } else if (running_.empty()) {
      break;
    } else if (patience.deadline.has_value() && Clock::now() >= *patience.deadline) {
      return has_found() ? finding() : Result<Finding>(silence());
    } else {
      CARREL_TRY(wait(patience));
    }
    advance();
  }
  return finding();
}

bool Conversation::next_is_due() const {
  return asked_ < configuration_->servers.size() * configuration_->attempts &&
         (running_.empty() || Clock::now() >= next_ask_);
}

void Conversation::ask_next_server() {
  const std::size_t servers = configuration_->servers.size();
  const std::size_t server = (first_server_ + asked_) % servers;
  const bool first_attempt = asked_ < servers;
  ++asked_;
  next_ask_ = Clock::now() + std::min(configuration_->timeout, kPace);
  for (std::size_t family = 0; family < families_.size(); ++family) {
    if (!is_open(family)) {
      continue;
    }
    Lookup lookup{random_id(), name_, families_[family].type};
    // A server that drops what it does not know is asked without EDNS0 the next time.
    lookup.edns_size = first_attempt ? std::optional(kSafeDatagram) : std::nullopt;
    begin(family, server, std::move(lookup),
          configuration_->use_tcp ? Transport::kTcp : Transport::kUdp);
  }
}

void Conversation::begin(std::size_t family, std::size_t server, Lookup lookup,
                         Transport transport) {
  const Configuration::Server& place = configuration_->servers[server];
  running_.push_back(
      {Exchange(SocketAddress::of(place.address, place.port), std::move(lookup), transport), family,
       server, Clock::now() + configuration_->timeout});
}

Clock::time_point Conversation::next_event(const Patience& patience) const {
  Clock::time_point when = Clock::time_point::max();
  for (const Running& running : running_) {
    // One that could not even begin has nothing to wait for.
    when = std::min(when, running.exchange.has_failed() ? Clock::now() : running.until);
  }
  if (asked_ < configuration_->servers.size() * configuration_->attempts) {
    when = std::min(when, next_ask_);
  }
  when = std::min(when, other_until_.value_or(when));
  return std::min(when, patience.deadline.value_or(when));
}

Status Conversation::wait(const Patience& patience) const {
  std::vector<pollfd> awaited{{patience.cancel, POLLIN, 0}};
  for (const Running& running : running_) {
    awaited.push_back(running.exchange.awaited());
  }
  const int ready =
      ::poll(awaited.data(), awaited.size(), milliseconds_until(next_event(patience)));
  if (ready < 0 && errno != EINTR) {
    return system_error("wait for the name server");
  }
  if (ready > 0 && awaited.front().revents != 0) {
    return Error{Code::kGone, 0, "it was cancelled", {}};
  }
  return {};
}

void Conversation::advance() {
  for (std::vector<Running> all = std::exchange(running_, {}); Running & one : all) {
    const Exchange::State state =
        is_open(one.family) ? one.exchange.advance() : Exchange::State::kAnswered;
    if (state == Exchange::State::kWaiting && Clock::now() < one.until) {
      running_.push_back(std::move(one));
    } else if (is_open(one.family)) {
      end(one, state);
    }
  }
}

void Conversation::end(const Running& running, Exchange::State state) {
  if (state == Exchange::State::kAnswered) {
    take_answer(running);
  } else if (state == Exchange::State::kFailed) {
    const bool nonsense = running.exchange.failure() == EBADMSG;
    const std::string reason = std::strerror(running.exchange.failure());
    note_failure(running.server, nonsense ? " gives an answer that makes no sense"
                                          : " cannot be reached: " + reason);
  }
}

// What a server cannot say in this way, it is asked for in another.
void Conversation::take_answer(const Running& running) {
  const Answer& answer = running.exchange.answer();
  Lookup again = running.exchange.lookup();
  again.id = random_id();
  if (answer.truncated && running.exchange.transport() == Transport::kUdp) {
    begin(running.family, running.server, std::move(again), Transport::kTcp);
  } else if (answer.refuses_format() && again.edns_size.has_value()) {
    again.edns_size.reset();
    begin(running.family, running.server, std::move(again), running.exchange.transport());
  } else if (!is_final(answer)) {
    answered_failure_ = "the name server " + configuration_->servers[running.server].text() +
                        " failed (" + std::string(name_of(answer.code)) + ")";
  } else {
    take_final_answer(running);
  }
}

void Conversation::take_final_answer(const Running& running) {
  Family& family = families_[running.family];
  family.answered = running.exchange.answer().code;
  family.addresses = running.exchange.answer().addresses;
  // A name that does not exist has addresses of neither family. There are servers that say so of
  // every name without IPv6.
  const bool exists_not =
      family.type == RecordType::kA && family.answered == ResponseCode::kNoSuchName;
  if (!other_until_.has_value() && (exists_not || has_usable_address())) {
    other_until_ = Clock::now() + kForTheOtherFamily;
  }
}

void Conversation::note_failure(std::size_t server, std::string what) {
  unreachable_ = "the name server " + configuration_->servers[server].text() + std::move(what);
}

bool Conversation::is_open(std::size_t family) const {
  return !families_[family].answered.has_value();
}

bool Conversation::has_usable_address() const {
  const auto usable = [](const policy::IpAddress& ip) { return has_route_to({ip}); };
  return std::any_of(families_.begin(), families_.end(), [&](const Family& family) {
    return std::any_of(family.addresses.begin(), family.addresses.end(), usable);
  });
}

bool Conversation::has_found() const {
  return std::any_of(families_.begin(), families_.end(), [](const Family& family) {
    return !family.addresses.empty() ||
           (family.type == RecordType::kA && family.answered == ResponseCode::kNoSuchName);
  });
}

bool Conversation::is_settled() const {
  const bool all = std::all_of(families_.begin(), families_.end(),
                               [](const Family& family) { return family.answered.has_value(); });
  // A server that fails for the other family is not asked again.
  return all || (other_until_.has_value() && (running_.empty() || Clock::now() >= *other_until_));
}

Result<Finding> Conversation::finding() const {
  Finding finding{Finding::Kind::kNoAddress, {}, answered_failure_};
  bool open = false;
  for (const Family& family : families_) {
    for (const policy::IpAddress& ip : family.addresses) {
      finding.addresses.push_back({ip});
    }
    open |= !family.answered.has_value();
    if (family.answered == ResponseCode::kNoSuchName) {
      finding.kind = Finding::Kind::kNoSuchName;
    }
  }
  if (!finding.addresses.empty()) {
    finding.kind = Finding::Kind::kAddresses;
  } else if (open && finding.kind == Finding::Kind::kNoAddress) {
    finding.kind = Finding::Kind::kServerFailure;
    return answered_failure_.empty() ? Result<Finding>(silence()) : finding;
  }
  return finding;
}

Error Conversation::silence() const {
  if (!unreachable_.empty()) {
    return {Code::kUnavailable, 0, unreachable_,
            std::string("the servers are those of ") + kConfigurationFile};
  }
  const std::size_t asked = std::min(asked_, configuration_->servers.size());
  std::string text = asked > 1 ? "the name servers " : "the name server ";
  for (std::size_t i = 0; i < asked; ++i) {
    text += i == 0 ? "" : i + 1 == asked ? " and " : ", ";
    text += configuration_->servers[(first_server_ + i) % configuration_->servers.size()].text();
  }
  return {Code::kTimeout, 0, text + " did not answer in time",
          std::string("the servers are those of ") + kConfigurationFile};
}

}  // namespace carrel::dns
