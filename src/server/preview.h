#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/request_head.h"
#include "server/request.h"

namespace carrel::server {

// A request that is for a server inside a sandbox and not for this one.
struct Preview {
  // How it was said: by the path /v1/sandboxes/ID/ports/PORT/..., by the headers carrel-sandbox and
  // carrel-port, or by a Host of its own, PORT-ID.localhost, which is an origin of its own.
  enum class By { kPath, kHeaders, kHost };
  By by = By::kPath;
  std::string id;
  std::uint16_t port = 0;
  std::string path;  // for the server inside
};

// Nothing: it is for this server.
std::optional<Preview> find_preview(const http::RequestHead& head);

// "http://PORT-ID.localhost:LISTENER/"
std::string preview_url(std::string_view scheme, const std::string& id, std::uint16_t port,
                        std::uint16_t listener);

// Passes the request on, and the answer back. What the sandbox answers is a stranger's: its head is
// read strictly and written anew, and its body is framed anew, so that nothing of it can pass for
// the answer to another request.
Status serve_preview(Request& request, const Preview& preview);

}  // namespace carrel::server
