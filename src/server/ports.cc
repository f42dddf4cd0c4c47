#include <charconv>
#include <string>

#include "server/handlers.h"
#include "server/preview.h"
#include "server/service.h"

// Who may reach servers in sandboxes, and how.
namespace carrel::server {
namespace {

using Reach = manager::Manager::Reach;

Json port_json(Request& request, std::uint16_t port, Reach reach) {
  const std::uint16_t listener = request.service.tcp_port;
  const char* const scheme = request.service.identity.get() == nullptr ? "http" : "https";
  return {{"port", port},
          {"public", reach == Reach::kEverybody},
          {"path", "/v1/sandboxes/" + request.id() + "/ports/" + std::to_string(port) + "/"},
          {"url", listener == 0 ? Json(nullptr)
                                : Json(preview_url(scheme, request.id(), port, listener))}};
}

}  // namespace

Status list_ports(Request& request) {
  CARREL_ASSIGN(const std::vector<std::uint16_t> ports,
                request.service.manager->public_ports(request.caller, request.id()));
  Json list = Json::array();
  for (const std::uint16_t port : ports) {
    list.push_back(port_json(request, port, Reach::kEverybody));
  }
  return reply(request, 200, {{"ports", list}});
}

Status put_port(Request& request) {
  const std::string& text = request.arguments[1];
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    return Error{Code::kInvalid, 0, "'" + text + "' is no port", {}};
  }
  Fields fields(request.body);
  const std::optional<bool> everybody = fields.flag("public");
  CARREL_TRY(fields.finish());
  if (!everybody.has_value()) {
    return Error{Code::kInvalid, 0, "'public' is missing", {}};
  }
  const Reach reach = *everybody ? Reach::kEverybody : Reach::kOwner;
  CARREL_TRY(request.service.manager->set_reach(request.caller, request.id(), port, reach));
  return reply(request, 200, port_json(request, port, reach));
}

}  // namespace carrel::server
