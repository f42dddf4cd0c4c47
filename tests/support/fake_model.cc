#include "support/fake_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace carrel::test {

namespace {
constexpr std::chrono::seconds kPatience(20);
}

FakeModel::FakeModel(const std::string& directory, const nlohmann::json& steps)
    : directory_(directory) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/steps.json") << steps.dump();
  Launch launch;
  launch.program = "/usr/bin/python3";
  launch.arguments = {"-B", CARREL_FAKE_MODEL_SCRIPT, directory};
  launch.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  launch.directory = "/";
  process_ = std::make_unique<Process>(launch);
  if (!process_->wait_for_output("\n", kPatience)) {
    ADD_FAILURE() << "no fake model: " << process_->wait(kPatience).err;
    return;
  }
  port_ = process_->out().substr(0, process_->out().find('\n'));
}

FakeModel::~FakeModel() { (void)process_->wait(kPatience); }

std::vector<nlohmann::json> FakeModel::requests() const {
  std::vector<nlohmann::json> list;
  std::ifstream file(directory_ + "/requests.jsonl");
  for (std::string line; std::getline(file, line);) {
    list.push_back(nlohmann::json::parse(line));
  }
  return list;
}

}  // namespace carrel::test
