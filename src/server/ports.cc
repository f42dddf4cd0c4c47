#include <charconv>
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

// Null: the daemon does not listen on TCP.
Json url_of(Request& request, const std::string& id, std::uint16_t port) {
  const std::uint16_t listener = request.service.tcp_port;
  const char* const scheme = request.service.identity.get() == nullptr ? "http" : "https";
  return listener == 0 ? Json(nullptr) : Json(preview_url(scheme, id, port, listener));
}

Json port_json(Request& request, std::uint16_t port, Reach reach) {
  return {{"port", port},
          {"public", reach == Reach::kEverybody},
          {"path", path_of(request.id(), port)},
          {"url", url_of(request, request.id(), port)}};
}

}  // namespace

Json links_json(Request& request, const std::string& id) {
  Json links = Json::object();
  for (const auto& [name, port] : {std::pair("website", kWebsite), std::pair("vnc", kVnc)}) {
    const Json url = url_of(request, id, port);
    links[name] = url.is_null() ? Json(path_of(id, port)) : url;
  }
  return links;
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
