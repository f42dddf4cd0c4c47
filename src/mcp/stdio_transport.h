#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "mcp/server_process.h"
#include "mcp/transport.h"

namespace carrel::mcp {

// One message in a line, on the standard input and output of a server. Lines that are no message
// are passed over, a few of them: some programs greet. What it says on its standard error is kept,
// the end of it, for errors.
class StdioTransport final : public Transport {
 public:
  explicit StdioTransport(std::unique_ptr<ServerProcess> process) : process_(std::move(process)) {}

  [[nodiscard]] Kind kind() const override { return Kind::kStdio; }
  Status exchange(const Outgoing& request, const Take& take, const Patience& patience) override;
  Status send(const Outgoing& message, const Patience& patience) override;
  [[nodiscard]] std::string last_words() override;

 private:
  enum class Flow { kMore, kEnded };

  Status queue(const Message& message);
  Status flush();
  Result<Flow> fill();
  void hear_errors();
  // Whether there was a whole line.
  enum class Line { kNone, kWhole };
  Result<Line> next_line(std::string& line);
  Result<Next> take_lines(const Take& take);
  Status pass_over(std::string_view line);
  Status wait(const Patience& patience);
  Error ended();

  std::unique_ptr<ServerProcess> process_;
  std::string outgoing_;
  std::string incoming_;
  std::size_t searched_ = 0;  // of `incoming_`, without an end of a line in it
  std::string errors_;
  bool hears_errors_ = true;  // until their end
  std::string piece_;         // what one read takes
  std::string noise_;         // the first line that was no message
  std::size_t noises_ = 0;
  std::size_t taken_bytes_ = 0;  // in this exchange
  std::size_t taken_messages_ = 0;
};

}  // namespace carrel::mcp
