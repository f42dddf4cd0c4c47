#pragma once

#include <string>

#include "base/result.h"
#include "bench/process.h"

namespace carrel::bench {

// A btrfs in a file, mounted at a directory of somebody's in a mount namespace that this process
// enters for it: the host sees none of it. The destructor unmounts it and removes the file.
class LoopDisk {
 public:
  // kUnsupported, and why, without root, mkfs.btrfs or the file system.
  static Result<LoopDisk> make(const std::string& image, const std::string& place,
                               const User& owner);
  LoopDisk(LoopDisk&& other) noexcept;
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  LoopDisk& operator=(LoopDisk&&) = delete;
  ~LoopDisk();

 private:
  LoopDisk(std::string image, std::string place);
  std::string image_;
  std::string place_;
};

// The type of the file system that a path is on, in a word.
std::string file_system_of(const std::string& path);

}  // namespace carrel::bench
