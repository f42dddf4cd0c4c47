#include "manager/inner_life.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/utf8.h"

namespace carrel::manager {

namespace {

using Json = nlohmann::ordered_json;

Json number_of(std::uint64_t command) {
  return command == 0 ? Json(nullptr) : Json(std::to_string(command));
}

}  // namespace

Json to_json(const std::vector<Holder>& holders) {
  Json list = Json::array();
  for (const Holder& holder : holders) {
    list.push_back({{"by", std::string(name_of(holder.by))},
                    {"what", replace_invalid_utf8(holder.what)},
                    {"command", number_of(holder.command)},
                    {"until_ms", holder.until_ms == 0 ? Json(nullptr) : Json(holder.until_ms)}});
  }
  return list;
}

Json to_json(const std::vector<ServiceLife>& services) {
  Json list = Json::array();
  for (const ServiceLife& service : services) {
    list.push_back(
        {{"name", replace_invalid_utf8(service.name)},
         {"state", std::string(name_of(service.state))},
         {"restarts", service.restarts},
         {"command", number_of(service.command)},
         {"last_exit", service.last_exit.has_value() ? Json(*service.last_exit) : Json(nullptr)}});
  }
  return list;
}

}  // namespace carrel::manager
