#include "bench/docker_api.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::bench {

namespace {

using Json = nlohmann::json;

// The body of the answer as it came; of a stream, everything until its end.
Result<std::string> request(const std::string& socket_path, const std::string& method,
                            const std::string& path, const std::string& body) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    return Error{Code::kInvalid, 0, "the path of docker's socket is too long", {}};
  }
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("reach docker's daemon");
  }
  CARREL_TRY(write_all(socket.get(), method + " " + path +
                                         " HTTP/1.0\r\nHost: docker\r\nContent-Type: "
                                         "application/json\r\nContent-Length: " +
                                         std::to_string(body.size()) + "\r\n\r\n" + body));
  CARREL_ASSIGN(std::string answer, read_all(socket.get()));
  const std::size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos || answer.size() < 12 || answer[9] != '2') {
    return Error{Code::kSystem, 0, "docker answers: " + answer.substr(0, answer.find('\r')), {}};
  }
  return answer.substr(end + 4);
}

Result<Json> ask(const std::string& socket_path, const std::string& method, const std::string& path,
                 const std::string& body) {
  CARREL_ASSIGN(std::string text, request(socket_path, method, path, body));
  Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return Error{Code::kSystem, 0, "docker's answer is malformed", {}};
  }
  return object;
}

}  // namespace

Status docker_exec(const std::string& socket_path, const std::string& container,
                   const std::string& program) {
  const Json wish = {
      {"AttachStdout", true}, {"AttachStderr", true}, {"Cmd", Json::array({program})}};
  CARREL_ASSIGN(Json made,
                ask(socket_path, "POST", "/containers/" + container + "/exec", wish.dump()));
  if (!made.contains("Id") || !made["Id"].is_string()) {
    return Error{Code::kSystem, 0, "docker's answer has no id", {}};
  }
  const std::string path = "/exec/" + made["Id"].get<std::string>();
  CARREL_TRY(request(socket_path, "POST", path + "/start", R"({"Detach":false,"Tty":false})"));
  CARREL_ASSIGN(Json end, ask(socket_path, "GET", path + "/json", ""));
  if (!end.contains("ExitCode") || end["ExitCode"] != 0) {
    return Error{Code::kSystem, 0, "docker's exec did not end with 0", {}};
  }
  return {};
}

}  // namespace carrel::bench
