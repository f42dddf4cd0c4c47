#pragma once

#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// The same launch in namespaces of its own, which root makes with these options of unshare(1), and
// in which `preparation`, a line of shell with `argument` as $0, was run first. The program still
// has the user of the launch.
Launch in_namespaces(Launch launch, std::vector<std::string> options,
                     const std::string& preparation, const std::string& argument = "sh");

// On a host whose `path` is this program.
Launch with_program_at(Launch launch, const std::string& path, const std::string& program);

}  // namespace carrel::test
