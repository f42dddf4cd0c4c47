#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "http/fields.h"
#include "http/url.h"

namespace carrel::server {

// An address of the operator's that the daemon tells something. Unencrypted it is on this host.
// `what` is what would go there, as in "events".
Result<http::Url> parse_receiver(const std::string& url, const std::string& what);

// Sends JSON there, over a connection of its own, and returns the status of the answer.
Result<int> post_json(const http::Url& url, const std::vector<http::Header>& headers,
                      const std::string& body, std::chrono::milliseconds patience);

}  // namespace carrel::server
