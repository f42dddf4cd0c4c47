#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// A scenario for the program of tests/crash/flow_driver.cc, ready to start as that user.
Launch flow_launch(As as, const nlohmann::json& scenario, const Options& options = {});

// What one run of it said so far, in order.
struct FlowTurn {
  std::string name;
  std::string how;
  std::string text;
};
struct FlowRun {
  Run run;
  std::vector<std::string> ran;  // names of turns whose bodies began
  std::vector<FlowTurn> turns;
};
FlowRun read_flow(Run run);
FlowRun run_flow(As as, const nlohmann::json& scenario, const Options& options = {});

}  // namespace carrel::test
