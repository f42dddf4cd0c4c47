#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace carrel::bench {

// Control groups that count memory, of whichever version this host has.
class MemoryGroups {
 public:
  // kUnsupported where nothing counts memory.
  static Result<MemoryGroups> find();

  // What the group and everything below it has in memory: pages of its own, page cache that was
  // charged to it, and what the kernel keeps for it. Added up from the exact counters: the
  // kernel's total also has the pages that processors keep in stock for it. `path` is relative to
  // the top. 0 for a group that is not there.
  [[nodiscard]] std::uint64_t bytes(const std::string& path) const;

  [[nodiscard]] bool has(const std::string& path) const;

  // Makes the group if it is missing and returns the file to which a process writes "0" to be in
  // it. Whoever made it removes it: with rmdir, when it is empty.
  [[nodiscard]] Result<std::string> make(const std::string& path) const;
  void remove(const std::string& path) const;

 private:
  enum class Version { kV1, kV2 };
  Version version_ = Version::kV2;
  std::string top_;
};

// The number after `key` and a space at the start of a line; 0 if there is no such line.
std::uint64_t value_of(const std::string& text, const std::string& key);

}  // namespace carrel::bench
