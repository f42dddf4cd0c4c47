#include "sandbox/port.h"

#include <sys/resource.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/box.h"
#include "cli/context.h"
#include "cli/output.h"
#include "egress/publish.h"
#include "manager/box_command.h"
#include "policy/address_class.h"
#include "policy/size.h"

namespace carrel::cli {

namespace {

constexpr const char* kLoopback = "127.0.0.1";

// The address to listen at. The parser has seen that it is one.
Result<policy::IpAddress> address_of(const Arguments& arguments) {
  const std::string_view text = arguments.value(OptionId::kBind).value_or(kLoopback);
  const policy::IpAddress address = policy::IpAddress::parse(text).value_or(policy::IpAddress());
  if (classify(address) != policy::AddressClass::kLoopback &&
      !arguments.has(OptionId::kAllowRemote)) {
    return Error{Code::kDenied, 0,
                 "--bind " + address.text() + " would let other machines into the sandbox",
                 "if that is meant, add --allow-remote"};
  }
  return address;
}

Result<std::uint16_t> number_of(const policy::Given& given) {
  CARREL_ASSIGN(const std::uint64_t number,
                policy::parse_count(given, {.least = 1, .most = 65535}));
  return static_cast<std::uint16_t>(number);
}

void announce(const Context& context, const std::string& id, std::uint16_t inside,
              const policy::IpAddress& address, std::uint16_t outside) {
  const std::string place = (address.is_v4() ? address.text() : "[" + address.text() + "]") + ":" +
                            std::to_string(outside);
  if (context.json()) {
    const nlohmann::ordered_json object = {{"id", id},
                                           {"port", inside},
                                           {"bind", address.text()},
                                           {"host_port", outside},
                                           {"url", "http://" + place}};
    print(object.dump() + "\n");
  } else {
    print("http://" + place + " -> " + id + ":" + std::to_string(inside) + "\n");
  }
}

// A client that is turned away again and again, for the same reason, is said once.
egress::PublishEvents tell_refusals() {
  auto told = std::make_shared<std::string>();
  egress::PublishEvents events;
  events.connected = [told] { told->clear(); };
  events.refused = [told](const Error& why) {
    const std::string text = why.to_string();
    if (text != *told) {
      print_error("carrel: " + text + (why.hint.empty() ? "" : ": " + why.hint) + "\n");
      *told = text;
    }
  };
  return events;
}

void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace

int port_command(const Context& context) {
  const Arguments& arguments = context.arguments;
  auto inside = number_of({"PORT", arguments.operands[1]});
  if (!inside.ok()) {
    return fail(context, inside.error());
  }
  std::uint16_t outside = 0;
  if (const auto given = arguments.value(OptionId::kHostPort)) {
    outside = number_of({"--host-port", *given}).value();
  }
  auto address = address_of(arguments);
  if (!address.ok()) {
    return fail(context, address.error());
  }
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  auto listener = egress::listen_at(address.value(), outside);
  if (!listener.ok()) {
    return fail(context, listener.error());
  }
  allow_descriptors();
  const std::string id = connection->record.id;
  announce(context, id, inside.value(), address.value(), egress::port_of(listener->get()));
  sandbox::Port port(std::move(connection->stream), inside.value(), [&connection] {
    return manager::connect(connection->home, connection->record);
  });
  Error end = egress::publish(std::move(port), std::move(listener.value()), tell_refusals());
  if (end.code == Code::kGone) {
    end.message = "sandbox " + id + " has ended";
    end.hint = "'carrel info' says why";
  }
  return fail(context, end);
}

}  // namespace carrel::cli
