#include "server/admitted.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "base/sha256.h"
#include "base/unique_fd.h"

namespace carrel::server {
namespace {

Access::Token token_of(const std::string& owner, Scope scope = Scope::kWrite) {
  return {owner, scope, sha256("the secret of " + owner)};
}

Access::Identity identity_of(const Access::Token& token) {
  Access::Identity identity;
  identity.caller.owner = token.owner;
  identity.scope = token.scope;
  identity.digest = token.digest;
  return identity;
}

// Both ends of a connection.
struct Connection {
  Connection() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    server = UniqueFd(ends[0]);
    client = UniqueFd(ends[1]);
  }
  [[nodiscard]] bool is_cut_off() const {
    pollfd wait{client.get(), POLLRDHUP, 0};
    return ::poll(&wait, 1, 0) == 1;
  }
  UniqueFd server;
  UniqueFd client;
};

// J05
TEST(Admitted, OnlyThoseWhoseTokenWasTakenBackAreCutOff) {
  Access access;
  access.set_tokens({token_of("gone"), token_of("stays"), token_of("less")});
  Admitted all;
  const Access::Identity gone = identity_of(token_of("gone"));
  const Access::Identity stays = identity_of(token_of("stays"));
  const Access::Identity less = identity_of(token_of("less"));
  const Access::Identity nobody;  // needed no token
  std::array<Connection, 4> connections;
  const Admitted::Stay first(all, gone, connections[0].server.get());
  const Admitted::Stay second(all, stays, connections[1].server.get());
  const Admitted::Stay third(all, less, connections[2].server.get());
  const Admitted::Stay fourth(all, nobody, connections[3].server.get());
  EXPECT_EQ(all.cut_off(access), 0U);
  access.set_tokens({token_of("stays"), token_of("less", Scope::kRead)});
  EXPECT_EQ(all.cut_off(access), 2U);
  EXPECT_TRUE(connections[0].is_cut_off());
  EXPECT_FALSE(connections[1].is_cut_off());
  EXPECT_TRUE(connections[2].is_cut_off()) << "it may do less now";
  EXPECT_FALSE(connections[3].is_cut_off());
}

TEST(Admitted, WhatIsOverIsLeftAlone) {
  Admitted all;
  Connection connection;
  const Access::Identity gone = identity_of(token_of("gone"));
  {
    const Admitted::Stay stay(all, gone, connection.server.get());
  }
  EXPECT_EQ(all.cut_off(Access()), 0U);
  EXPECT_FALSE(connection.is_cut_off());
}

// Who lets in is the token, and not its name.
TEST(Admitted, AnotherTokenOfTheSameNameIsAnother) {
  Access access;
  const Access::Identity before = identity_of(token_of("ci"));
  Access::Token token = token_of("ci");
  token.digest = sha256("another secret");
  const Access::Identity after = identity_of(token);
  const Access::Identity nobody;
  access.set_tokens({token});
  EXPECT_FALSE(access.still_admits(before));
  EXPECT_TRUE(access.still_admits(after));
  EXPECT_TRUE(access.still_admits(nobody));
}

}  // namespace
}  // namespace carrel::server
