#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "bench/setup.h"

namespace carrel::bench {

// A daemon of carrel's, with a state directory of its own. The destructor ends it.
class ServedHome {
 public:
  static Result<ServedHome> start(const Setup& setup, Who who, const std::string& home,
                                  std::vector<std::string> options);
  ServedHome(ServedHome&& other) noexcept;
  ServedHome& operator=(ServedHome&&) = delete;
  ServedHome(const ServedHome&) = delete;
  ServedHome& operator=(const ServedHome&) = delete;
  ~ServedHome();

  // Asks over a connection that is kept. Anything but a status of 2xx is an error.
  Result<std::string> ask(const std::string& method, const std::string& path,
                          const std::string& body = {});
  Result<nlohmann::json> ask_json(const std::string& method, const std::string& path,
                                  const std::string& body);
  // A number of /metrics.
  Result<long> metric(const std::string& name);

 private:
  ServedHome() = default;
  Status connect(const std::string& path);

  pid_t pid_ = 0;
  UniqueFd socket_;
  std::string buffer_;
};

}  // namespace carrel::bench
