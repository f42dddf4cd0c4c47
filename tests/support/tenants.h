#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/serve.h"

namespace carrel::test {

// A test with a daemon that has clients with tokens, over TCP, beside its own socket.
class TenantsTest : public ServeTest {
 protected:
  std::string token(const std::string& name, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"serve", "--new-token", name, "--token-file", tokens()});
    const Run made = carrel(options);
    EXPECT_EQ(made.status, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  void serve_tenants(std::vector<std::string> options = {}) {
    options.insert(options.end(),
                   {"--listen", "tcp:127.0.0.1:0,unix:" + socket(), "--token-file", tokens()});
    serve(std::move(options));
    ASSERT_NE(daemon_->port(), 0);
  }
  static std::string bearer(const std::string& token) { return "authorization: Bearer " + token; }
  ApiAnswer post_as(const std::string& token, const std::string& path, const json& body) {
    return ask(daemon_->port(),
               {.method = "POST", .path = path, .body = body.dump(), .headers = {bearer(token)}});
  }
  [[nodiscard]] std::string tokens() const { return place().work(GetParam()) + "/tokens"; }
  [[nodiscard]] std::string socket() const { return place().home(GetParam()) + "/run/api.sock"; }
};

}  // namespace carrel::test
