#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/chunked_body.h"
#include "http/fields.h"
#include "http/request_head.h"
#include "http/stream.h"

namespace carrel::http {

// How long a client may take for each of its parts.
struct ServerPatience {
  std::chrono::milliseconds idle{60'000};   // between two requests
  std::chrono::milliseconds head{10'000};   // from its first byte
  std::chrono::milliseconds body{30'000};   // without a byte of it
  std::chrono::milliseconds write{30'000};  // to take a piece of the answer
};

// An answer that is known as a whole.
struct Answer {
  int status = 200;
  std::vector<Header> headers;
  std::string body;
};

// What HTTP calls a status: "Not Found".
std::string_view status_words(int status);

// The server's side of one connection: a request, its body, its answer, and the next one. Not for
// several threads. Nothing is read beyond the head until the body is asked for.
class ServerConnection {
 public:
  ServerConnection(Stream& stream, const ServerPatience& patience)
      : stream_(stream), patience_(patience) {}

  // The next request. kGone: the client has left or had nothing to say. Other errors are for the
  // client (kInvalid 400, kUnsupported 405, kTimeout 408, kResource 431) and the last thing that it
  // hears.
  Status next();
  [[nodiscard]] const RequestHead& head() const { return head_; }

  // At least one byte of the body; 0: it has ended.
  Result<std::size_t> read_body(std::span<char> into);
  // All of it; kResource when it is larger than that.
  Result<std::string> whole_body(std::size_t limit);

  Status answer(const Answer& answer);
  // The same to what was no request: nothing of its body is waited for, and there is no next one.
  Status answer_and_close(const Answer& answer);
  // An answer piece by piece, whose length is not known. Each piece is sent at once.
  Status begin(int status, const std::vector<Header>& headers);
  Status send(std::string_view piece);
  Status finish();

  // The client's connection is to speak another protocol from here on; what came of it already is
  // returned.
  Result<std::string> upgrade(const std::vector<Header>& headers);

  [[nodiscard]] Stream& stream() { return stream_; }

  [[nodiscard]] bool answered() const { return answered_; }
  // Whether there can be another request: the last one was read and answered to its end.
  [[nodiscard]] bool keeps_open() const { return keeps_open_; }

 private:
  Status fill(Deadline deadline);
  Result<std::size_t> take(std::span<char> into);
  Result<std::size_t> read_chunk(std::span<char> into);
  Status write(std::string_view bytes);
  std::string head_text(int status, const std::vector<Header>& headers) const;
  // What the client still sends of a body that nobody wanted.
  void skip_body();

  Stream& stream_;
  ServerPatience patience_;
  RequestHead head_;
  std::string buffer_;  // came, and is not used yet
  ChunkedBody chunks_;
  std::string chunk_;       // of what is in the chunks, what was not asked for yet
  std::uint64_t left_ = 0;  // of a body with a length
  bool body_over_ = true;
  bool continue_due_ = false;
  bool answered_ = false;
  bool chunked_ = false;  // the answer is
  bool keeps_open_ = true;
};

}  // namespace carrel::http
