#include "server/log.h"

#include <poll.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "storage/state.h"

namespace carrel::server {

void log_line(const nlohmann::ordered_json& fields) {
  constexpr std::size_t kLongest = 512;
  nlohmann::ordered_json line;
  line["time_ms"] = storage::wall_clock_ms();
  for (const auto& [name, value] : fields.items()) {
    if (value.is_string() && value.get<std::string>().size() > kLongest) {
      line[name] = value.get<std::string>().substr(0, kLongest);
    } else {
      line[name] = value;
    }
  }
  using OrderedJson = nlohmann::ordered_json;
  // A log that nobody reads stops nobody: what has no room at once is left out.
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) {
    return;
  }
  (void)write_all(STDERR_FILENO,
                  line.dump(-1, ' ', true, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace carrel::server
