#include "support/flows.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/place.h"

namespace carrel::test {

using nlohmann::json;

Launch flow_launch(As as, const json& scenario, const Options& options) {
  const std::string driver = place().work(as) + "/flow_driver";
  if (!std::filesystem::exists(driver)) {
    std::filesystem::copy_file(CARREL_FLOW_DRIVER, driver);
    std::filesystem::permissions(driver, std::filesystem::perms(0755));
  }
  static int number = 0;
  const std::string file = place().work(as) + "/scenario" + std::to_string(++number);
  std::ofstream(file) << scenario.dump();
  Launch launch = place().launch(as, {place().program(), file}, options);
  launch.program = driver;
  return launch;
}

FlowRun read_flow(Run run) {
  FlowRun flow;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) {
      continue;  // cut off
    }
    if (object.contains("ran")) {
      flow.ran.push_back(object["ran"]);
    } else {
      flow.turns.push_back(
          {object.value("turn", ""), object.value("how", ""), object.value("text", "")});
    }
  }
  flow.run = std::move(run);
  return flow;
}

FlowRun run_flow(As as, const json& scenario, const Options& options) {
  Process process(flow_launch(as, scenario, options));
  return read_flow(process.wait(std::chrono::seconds(options.timeout_seconds)));
}

}  // namespace carrel::test
