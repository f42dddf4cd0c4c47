#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::server {

// The lines that are added to the log of events, or to another of the home's. Where that is cut to
// its newer half there is another file, which is read from its beginning up to what was read last.
class EventTail {
 public:
  enum class From { kStart, kEnd };

  EventTail(const storage::Home& home, From from, std::string file = "events.jsonl");
  // Those that have come since the last call.
  std::vector<std::string> next();

 private:
  void open();
  std::vector<std::string> read_lines();

  const storage::Home& home_;
  std::string name_;  // of the file, in the home
  UniqueFd file_;
  off_t offset_ = 0;
  std::string rest_;
  std::string last_;
};

}  // namespace carrel::server
