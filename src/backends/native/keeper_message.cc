#include "backends/native/keeper_message.h"

#include <nlohmann/json.hpp>

#include "policy/spec_json.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string encode_create(const CreateRequest& request) {
  Json object;
  object["id"] = request.id;
  object["name"] = request.name;
  object["lease_ms"] = request.lease_ms;
  object["spec"] = policy::spec_to_json(request.spec, policy::Values::kIncluded);
  return object.dump();
}

Result<CreateRequest> decode_create(const std::string& text) {
  try {
    Json object = Json::parse(text);
    CreateRequest request;
    request.id = object.at("id").get<std::string>();
    if (!storage::is_id(request.id)) {
      return Error{Code::kInvalid, 0, "the request to the keeper has no id", {}};
    }
    request.name = object.at("name").get<std::string>();
    request.lease_ms = object.at("lease_ms").get<std::uint64_t>();
    CARREL_ASSIGN(request.spec, policy::spec_from_json(object.at("spec").get<std::string>()));
    return request;
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kInvalid, 0, "the request to the keeper is malformed", {}};
  }
}

std::string encode_answer(const Result<std::string>& id) {
  Json object;
  if (id.ok()) {
    object["id"] = id.value();
  } else {
    object["code"] = static_cast<int>(id.error().code);
    object["errno"] = id.error().error_number;
    object["message"] = id.error().message;
    object["hint"] = id.error().hint;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> decode_answer(const std::string& text) {
  try {
    Json object = Json::parse(text);
    if (object.contains("id")) {
      return object.at("id").get<std::string>();
    }
    int code = object.at("code").get<int>();
    return Error{code >= 0 && code <= static_cast<int>(Code::kSystem) ? static_cast<Code>(code)
                                                                      : Code::kSystem,
                 object.at("errno").get<int>(), object.at("message").get<std::string>(),
                 object.at("hint").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kSystem, 0, "the keeper's answer is malformed", {}};
  }
}

std::string frame_message(const std::string& text) {
  std::uint32_t size = static_cast<std::uint32_t>(text.size());
  std::string data(reinterpret_cast<const char*>(&size), sizeof size);
  return data + text;
}

}  // namespace carrel::native
