#include <string>

#include "base/version.h"
#include "policy/settings.h"
#include "server/routes.h"
#include "server/schemas.h"

namespace carrel::server {
namespace {

Json reference(std::string_view name) {
  return {{"$ref", "#/components/schemas/" + std::string(name)}};
}

Json content(std::string_view type, std::string_view schema) {
  return {{std::string(type), {{"schema", reference(schema)}}}};
}

Json parameters_of(const Route& route) {
  Json list = Json::array();
  std::string_view path = route.path;
  for (std::size_t at = path.find('{'); at != std::string_view::npos; at = path.find('{')) {
    path.remove_prefix(at + 1);
    list.push_back(
        {{"name", std::string(path.substr(0, path.find('}')))},
         {"in", "path"},
         {"required", true},
         {"schema", {{"type", "string"}, {"pattern", "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"}}}});
  }
  for (const Parameter& parameter : route.parameters) {
    Json schema{{"type", std::string(parameter.type)}};
    if (parameter.type == "integer") {
      schema["minimum"] = 0;
    }
    list.push_back({{"name", std::string(parameter.name)},
                    {"in", "query"},
                    {"required", parameter.need == Parameter::Need::kRequired},
                    {"description", std::string(parameter.help)},
                    {"schema", std::move(schema)}});
  }
  if (route.operation == "createSandbox") {
    list.push_back({{"name", "Idempotency-Key"},
                    {"in", "header"},
                    {"required", false},
                    {"description", "the same key and body give the same sandbox"},
                    {"schema", {{"type", "string"}, {"minLength", 1}, {"maxLength", 255}}}});
  }
  return list;
}

std::string scope_words(Scope scope) {
  switch (scope) {
    case Scope::kOpen:
      return "Needs no token.";
    case Scope::kRead:
      return "Needs a token that may read.";
    case Scope::kWrite:
      break;
  }
  return "Needs a token that may write.";
}

Json operation_of(const Route& route) {
  Json operation{{"operationId", std::string(route.operation)},
                 {"summary", std::string(route.summary)},
                 {"description", scope_words(route.scope)}};
  if (Json parameters = parameters_of(route); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  if (route.body == Body::kJson) {
    operation["requestBody"] = {{"required", true},
                                {"content", content("application/json", route.request_schema)}};
  } else if (route.body == Body::kBytes) {
    operation["requestBody"] = {{"content", content("application/octet-stream", "Bytes")}};
  }
  Json answer{{"description", route.status == 204 ? "Done" : "As asked"}};
  if (!route.response_type.empty()) {
    answer["content"] = content(route.response_type, route.response_schema);
  }
  operation["responses"] = {{std::to_string(route.status), std::move(answer)},
                            {"default",
                             {{"description", "What went wrong"},
                              {"content", content("application/problem+json", "Problem")}}}};
  if (route.scope == Scope::kOpen) {
    operation["security"] = Json::array();
  }
  return operation;
}

std::string lower_case(std::string_view text) {
  std::string lower;
  for (const char c : text) {
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return lower;
}

}  // namespace

Json openapi() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    paths[std::string(route.path)][lower_case(route.method)] = operation_of(route);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Carrel"},
            {"version", std::string(kVersion)},
            {"description",
             "Sandboxes for commands that nobody has read. On the unix socket no token is needed."},
            {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"servers", Json::array({Json{{"url", "/"}}})},
          {"security", Json::array({Json{{"token", Json::array()}}})},
          {"paths", std::move(paths)},
          {"components",
           {{"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}},
            {"schemas", schemas()}}}};
}

}  // namespace carrel::server
