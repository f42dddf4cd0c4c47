#include "support/in_namespaces.h"

#include <utility>

namespace carrel::test {

Launch in_namespaces(Launch launch, std::vector<std::string> options,
                     const std::string& preparation, const std::string& argument) {
  options.insert(options.end(), {"sh", "-c", preparation + " && exec \"$@\"", argument});
  if (launch.switch_user) {
    options.insert(options.end(), {"setpriv", "--reuid", std::to_string(launch.uid), "--regid",
                                   std::to_string(launch.gid), "--clear-groups"});
    launch.switch_user = false;
  }
  options.push_back(launch.program);
  launch.arguments.insert(launch.arguments.begin(), options.begin(), options.end());
  launch.program = "/usr/bin/unshare";
  return launch;
}

Launch with_program_at(Launch launch, const std::string& path, const std::string& program) {
  return in_namespaces(std::move(launch), {"--mount", "--propagation", "private"},
                       "mount --bind \"$0\" " + path, program);
}

}  // namespace carrel::test
