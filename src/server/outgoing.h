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

// What became of something that was told.
enum class Told {
  kTaken,
  kRefused,  // and would be again
  kLater,    // nobody took it, this time
};

// Sends JSON there, over a connection of its own.
Told post_json(const http::Url& url, const std::vector<http::Header>& headers,
               const std::string& body, std::chrono::milliseconds patience);

}  // namespace carrel::server
