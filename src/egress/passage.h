#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "egress/exchange.h"
#include "egress/io.h"
#include "egress/relay.h"
#include "egress/room.h"
#include "egress/stream.h"
#include "egress/upstream.h"
#include "http/chunked_body.h"
#include "http/request_head.h"

namespace carrel::egress {

inline constexpr std::string_view kForbidden = "403 Forbidden";
inline constexpr std::string_view kBadRequest = "400 Bad Request";

// A denial that no rule is the reason of.
inline policy::Verdict denied(std::string reason) {
  policy::Verdict verdict;
  verdict.reason = std::move(reason);
  return verdict;
}

// One connection of a sandbox, from the moment it was taken to its end: what it is for is found
// out, decided on, dialled, and carried.
class Passage {
 public:
  Passage(std::shared_ptr<Room> room, UniqueFd client);
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  // The program meant another address, which the kernel knows.
  Task<void> serve_redirected();
  // The same, which somebody else told us. Nothing: nobody knows.
  Task<void> serve_meant(std::optional<SocketAddress> meant);
  // The program asks a proxy.
  Task<void> serve_proxied();

 private:
  bool enter();
  // Decides, reads what the decision needs, and carries.
  Task<void> admit();
  // Reads more of what the client says, into `first_`. False: it says no more, or too late.
  Task<bool> read_more(Deadline deadline);
  // Decides on the first bytes.
  Task<policy::Verdict> look_at_evidence();
  // Null: it was refused or failed, and the client knows.
  Task<std::unique_ptr<Watched>> dial(policy::Verdict verdict);
  // The same, where everything goes through a proxy of the operator's.
  Task<std::unique_ptr<Watched>> dial_parent(policy::Verdict verdict, ParentProxy proxy,
                                             std::optional<DohServer> resolver);
  Task<void> carry(policy::Verdict verdict);
  // The server is asked for its certificate before the client gets one.
  Task<void> end_tls(policy::Verdict verdict);

  // Each request is decided on before it goes out; one after the other.
  Task<void> carry_requests(policy::Verdict verdict);
  Task<void> exchange_with(Stream& server);
  Task<bool> send_requests(Exchange& exchange);
  Task<bool> send_body(Exchange& exchange, const http::RequestHead& head);
  Task<bool> send(Exchange& exchange, Bytes bytes);
  // Everything that the client says from now on.
  Task<bool> send_the_rest(Exchange& exchange);
  [[nodiscard]] policy::Verdict judge(const http::RequestHead& head) const;
  // CRITICAL: only to a request that was judged and goes where the credential is for.
  Status add_credentials(http::RequestHead& head, Exchange& exchange);
  void look_out_for_secrets(Exchange& exchange);

  enum class Went { kOn, kEnded, kBroken };
  Task<void> carry_answers(Exchange& exchange);
  Task<Went> pass_answer(Exchange& exchange);
  Task<Went> pass_body(Exchange& exchange, http::BodyDecoder body);
  Task<Went> pass_the_rest(Exchange& exchange);
  // Reads more of what the server says: a count as of read_some().
  Task<std::ptrdiff_t> receive(Exchange& exchange);

  // Logs a denial and tells the client.
  Task<void> refuse(policy::Verdict verdict);
  // The second half, for whoever logs more than the client is told.
  Task<void> tell_refused(policy::Verdict verdict);
  Task<void> answer_refused(const policy::Verdict& verdict, std::string_view status);
  Task<void> serve_socks();

  [[nodiscard]] policy::Flow flow_of(const http::RequestHead& head) const;
  void note(std::string_view event, const policy::Verdict& verdict, std::string detail = {});

  std::shared_ptr<Room> room_;
  Watched client_;
  std::unique_ptr<Stream> spoken_ = std::make_unique<PlainStream>(client_);  // with the client
  LiveFlow live_;
  std::vector<std::uint8_t> first_;  // what was read and not sent on yet
  Carried carried_;
  Deadline begun_ = Clock::now();
  bool connected_ = false;
};

}  // namespace carrel::egress
