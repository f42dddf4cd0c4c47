#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// What the daemon answered. Header names are in lower case.
struct ApiAnswer {
  int status = 0;  // 0: there was no answer
  std::map<std::string, std::string> headers;
  std::string body;

  // The body, parsed; null when it is not JSON.
  [[nodiscard]] nlohmann::json json() const;
};

// A daemon of this test's place: `carrel serve` with these options. Its log is in the file log() of
// the working directory. The destructor ends it, as SIGTERM does.
class Daemon {
 public:
  explicit Daemon(As as, std::vector<std::string> options = {});
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] std::string socket() const;
  [[nodiscard]] std::string log() const;
  [[nodiscard]] pid_t pid() const { return process_->pid(); }
  // The port of its TCP listener, from its log.
  [[nodiscard]] int port() const;
  // kill -9.
  void kill();
  // SIGTERM, and its exit status.
  int stop();
  // Waits until it has ended by itself.
  int wait(std::chrono::milliseconds patience);

 private:
  As as_;
  std::string log_;
  std::unique_ptr<Process> process_;
};

// A connection to a daemon, over its socket or a port of 127.0.0.1.
class ApiConnection {
 public:
  explicit ApiConnection(const std::string& socket);
  explicit ApiConnection(int port);
  ~ApiConnection();
  ApiConnection(const ApiConnection&) = delete;
  ApiConnection& operator=(const ApiConnection&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  // Bytes as they are; false: the other side takes no more.
  bool send(const std::string& bytes) const;
  // One answer with its body.
  ApiAnswer read_answer();
  // Reads until that text has come or `patience` is over; everything that came.
  std::string read_until(const std::string& text, std::chrono::milliseconds patience);
  // Whether the other side ends it within that time, whatever it says before.
  bool ends(std::chrono::milliseconds patience);
  void close();

 private:
  bool fill();
  int fd_ = -1;
  bool connected_ = false;
  std::string buffer_;
};

struct ApiRequest {
  std::string method = "GET";
  std::string path;
  std::string body = {};
  std::vector<std::string> headers = {};  // "name: value"
  std::string type = "application/json";  // of the body
  std::string host = "localhost";
};
std::string request_text(const ApiRequest& request);

// One request over a connection of its own.
ApiAnswer ask(const std::string& socket, const ApiRequest& request);
ApiAnswer ask(int port, const ApiRequest& request);

}  // namespace carrel::test
