#include "egress/decision_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace carrel::egress {

Result<DecisionLog> DecisionLog::open(int home) {
  DecisionLog log;
  if (::mkdirat(home, kDirectory, 0700) != 0 && errno != EEXIST) {
    return system_error("make the directory of the network's log");
  }
  CARREL_ASSIGN(log.directory_, open_at(home, kDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CARREL_TRY(log.begin_file());
  return log;
}

Status DecisionLog::begin_file() {
  CARREL_ASSIGN(file_,
                open_at(directory_.get(), kFile, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600));
  struct stat status{};
  size_ = ::fstat(file_.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  return {};
}

void DecisionLog::add(const DecisionRecord& record) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  nlohmann::ordered_json line = {
      {"time_ms", now.count()}, {"sandbox", record.sandbox},
      {"event", record.event},  {"host", record.host},
      {"port", record.port},    {"verdict", record.allowed ? "allowed" : "denied"},
      {"rule", record.rule},    {"reason", record.reason}};
  if (!record.address.empty()) {
    line["address"] = record.address;
  }
  if (!record.detail.empty()) {
    line["detail"] = record.detail;
  }
  if (record.event == "end") {
    line["bytes_out"] = record.bytes_out;
    line["bytes_in"] = record.bytes_in;
    line["duration_ms"] = record.duration_ms;
  }
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (size_ + text.size() > kLargest &&
      ::renameat(directory_.get(), kFile, directory_.get(), kOlder) == 0) {
    (void)begin_file();
  }
  if (write_all(file_.get(), text).ok()) {
    size_ += text.size();
  }
}

}  // namespace carrel::egress
