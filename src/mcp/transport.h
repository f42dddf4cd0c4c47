#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http/stream.h"
#include "mcp/eras.h"
#include "mcp/message.h"

namespace carrel::mcp {

// How long somebody waits: until then, or until that descriptor, which is borrowed, is readable.
struct Patience {
  http::Deadline deadline;
  int cancel = -1;
};

// A message to a server, with what a transport has to know about it beside its text.
struct Outgoing {
  Message message;
  Era era = Era::kLegacy;
  std::string version = {};  // empty: none was agreed on yet
  std::string name = {};     // of the tool
  std::vector<std::pair<std::string, std::string>> parameters = {};  // to be seen as headers, too
};

// Moves messages between this client and one server, and knows nothing of what they say. Not for
// several threads. An error of kTimeout, kGone (cancelled) or kUnsupported (the server does not
// take this request) leaves it as good as it was; after any other it is of no use.
class Transport {
 public:
  enum class Kind { kStdio, kHttp };
  enum class Next { kWait, kDone };
  // Gets each message of the server until it is done.
  using Take = std::function<Result<Next>(Message message)>;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual Kind kind() const = 0;
  // Sends a request, and gives what comes to `take`.
  virtual Status exchange(const Outgoing& request, const Take& take, const Patience& patience) = 0;
  // Sends what has no answer. It may be called from within `take`.
  virtual Status send(const Outgoing& message, const Patience& patience) = 0;
  // What the server said elsewhere, for whoever looks for the reason of an error; may be empty.
  [[nodiscard]] virtual std::string last_words() { return {}; }
};

}  // namespace carrel::mcp
