#include "backends/docker/engine_walls.h"

namespace carrel::docker {

Status EngineWalls::check(const policy::Spec& spec) const {
  const auto builder = describe(spec);
  return builder.ok() ? Status() : Status(builder.error());
}

Result<sandbox::RoomStarted> EngineWalls::start(const sandbox::RoomRequest& request) const {
  sweep(request.folder, request.installation);
  const std::string address = address_of(request.engine);
  CARREL_TRY(engines().check_silence(address));
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  auto started = start_at(engine, address, request);
  if (!started.ok() && engine.silent()) {
    engines().note(address, started.error());
  }
  return started;
}

void EngineWalls::sweep(const std::string& folder, const std::string& installation) const {
  sweep_doors(folder, installation, engines());
}

}  // namespace carrel::docker
