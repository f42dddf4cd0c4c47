#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/request.h"

namespace carrel::server {

// The one table of what the API can do. The authorization, the OpenAPI document, the answers about
// wrong methods and the tests of what strangers may try are all made from it.

enum class Scope {
  kOpen,   // for everybody who reaches the socket
  kRead,   // looks and changes nothing
  kWrite,  // everything
};

// What a request brings along.
enum class Body { kNone, kJson, kBytes };

struct Parameter {
  std::string_view name;
  std::string_view type;  // of JSON
  std::string_view help;
  enum class Need { kOptional, kRequired } need = Need::kOptional;
};

struct Route {
  std::string_view method;
  std::string_view path;       // "/v1/sandboxes/{id}"
  std::string_view operation;  // its name in the OpenAPI document
  std::string_view summary;
  Scope scope;
  Body body;
  std::string_view request_schema;  // of Body::kJson
  int status;                       // of the answer, if all is well
  std::string_view response_type;   // of its body; empty: it has none
  std::string_view response_schema;
  std::span<const Parameter> parameters;  // in the query
  Status (*handle)(Request& request);
};

std::span<const Route> routes();

// The route for a method and a path as they came: nothing is decoded and nothing normalised, so
// that there is one way to say each. `arguments` are those of the path.
struct Match {
  const Route* route = nullptr;  // null: there is none
  std::vector<std::string> arguments = {};
  std::string methods = {};  // of the path, where only the method is wrong
};
Match find_route(std::string_view method, std::string_view path);

// The OpenAPI 3.1 document.
Json openapi();

}  // namespace carrel::server
