#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carrel::native {

// Parts of the kernel that few hosts need, that any user can have loaded by asking for a socket of
// their kind, and that had holes again and again.
//
// Those of them that `modules_dep`, the list of the kernel's modules, has, and that the lines of
// modprobe's configuration do not forbid.
std::vector<std::string> loadable_risks(std::string_view modules_dep, std::string_view modprobe);

// The same of this host; none where no module can be loaded any more.
std::vector<std::string> risky_modules();

}  // namespace carrel::native
