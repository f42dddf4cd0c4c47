#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "server/handlers.h"
#include "server/preview.h"
#include "server/service.h"

// Who may reach servers in sandboxes, and how.
namespace carrel::server {
namespace {

using Reach = manager::Manager::Reach;

constexpr std::uint16_t kWebsite = 8080;
constexpr std::uint16_t kVnc = 6080;  // of noVNC

std::string path_of(const std::string& id, std::uint16_t port) {
  return "/v1/sandboxes/" + id + "/ports/" + std::to_string(port) + "/";
}

// None: the daemon does not listen on TCP.
std::optional<std::string> url_of(Request& request, const std::string& id, std::uint16_t port) {
  const std::uint16_t listener = request.service.tcp_port;
  if (listener == 0) {
    return std::nullopt;
  }
  const char* const scheme = request.service.identity.get() == nullptr ? "http" : "https";
  return preview_url(scheme, id, port, listener);
}

Json port_json(Request& request, std::uint16_t port, Reach reach) {
  const std::optional<std::string> url = url_of(request, request.id(), port);
  return {{"port", port},
          {"public", reach == Reach::kEverybody},
          {"path", path_of(request.id(), port)},
          {"url", url.has_value() ? Json(*url) : Json(nullptr)}};
}

}  // namespace

void write_links(JsonWriter& to, Request& request, const std::string& id) {
  to.open_object();
  for (const auto& [name, port] : {std::pair("website", kWebsite), std::pair("vnc", kVnc)}) {
    to.field(name, url_of(request, id, port).value_or(path_of(id, port)));
  }
  to.close_object();
}

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
