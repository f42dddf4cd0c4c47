#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "mcp/eras.h"
#include "mcp/transport.h"

namespace carrel::mcp {

// How far a server says that it is. The text is hostile.
struct Progress {
  double progress = 0;
  std::optional<double> total;
  std::string message;
};

// A question to a server.
struct Question {
  std::string method;
  Json params = Json::object();
  std::string name = {};                                             // of the tool that it is about
  std::vector<std::pair<std::string, std::string>> parameters = {};  // see Outgoing
  std::function<void(const Progress&)> progress = {};                // may be empty
};

// A conversation with one server, in the era that both speak: one question at a time, for one
// thread. Nothing that a server asks this client for is given, but for a sign of life: it has said
// that it can do nothing.
class Session {
 public:
  // Makes a connection; called again where a server takes a question of the modern era amiss and
  // ends.
  using Connect = std::function<Result<std::unique_ptr<Transport>>()>;

  static Result<std::unique_ptr<Session>> open(Connect connect, Protocol protocol,
                                               const Patience& patience);

  // The result. What the server refuses is an error, with its words; kTimeout and kGone (cancelled)
  // are told to it. After an error that ended the connection each question has the same answer.
  Result<Json> ask(const Question& question, const Patience& patience);

  [[nodiscard]] Era era() const { return era_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] const About& about() const { return about_; }

 private:
  struct Answer {
    Json result;
    std::optional<RpcError> error;
  };

  explicit Session(Connect connect) : connect_(std::move(connect)) {}

  Status connect();
  Status negotiate(Protocol protocol, const Patience& patience);
  enum class Found { kModern, kLegacy };
  Result<Found> probe(const Patience& patience);
  Status open_legacy(Protocol protocol, const Patience& patience);
  Result<Answer> exchange(const Question& question, const Patience& patience);
  Result<Transport::Next> take(std::int64_t id, const Question& question, Message message,
                               Answer& answer, const Patience& patience);
  void answer_request(const Message& message, const Patience& patience);
  void say_cancelled(std::int64_t id, const Question& question, const Error& error);
  Outgoing outgoing(Message message) const;
  Error explained(Error error);

  Connect connect_;
  std::unique_ptr<Transport> transport_;
  std::optional<Error> broken_;
  Era era_ = Era::kModern;
  std::string version_;
  About about_;
  std::int64_t next_id_ = 1;
};

}  // namespace carrel::mcp
