#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/home.h"
#include "storage/images/import.h"

namespace carrel::storage {

struct DebianBuild {
  std::vector<std::string> packages;  // beside the essential ones
  std::string suite = "bookworm";
  std::string name;  // empty: debian:SUITE
  ProgressListener listener;
};

// As root, the builder's ids on the host: they own nothing. Those of sandboxes come after them.
inline constexpr std::uint32_t kFirstBuilderId = 0x6fff0000;
inline constexpr std::uint32_t kBuilderIds = 0x10000;

// Makes an image of the essential packages of a release of Debian and those that are named, with
// mmdebstrap and from the host's apt sources, and imports it. The packages' scripts run in a
// room (builder_room.h). The
// store is locked only for the import.
Result<Imported> build_debian(const Home& home, const DebianBuild& request);

}  // namespace carrel::storage
