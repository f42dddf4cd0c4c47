#include "backends/native/doctor.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "backends/native/doctor_probe.h"
#include "backends/native/one_shot.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "policy/settings.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

std::string as_json(const native::Diagnosis& diagnosis) {
  nlohmann::ordered_json object;
  object["ok"] = diagnosis.ok;
  object["checks"] = nlohmann::ordered_json::array();
  for (const native::Check& check : diagnosis.checks) {
    object["checks"].push_back({{"name", check.name},
                                {"status", native::status_name(check.status)},
                                {"detail", replace_invalid_utf8(check.detail)},
                                {"fix", replace_invalid_utf8(check.fix)}});
  }
  return object.dump() + "\n";
}

std::string as_table(const native::Diagnosis& diagnosis) {
  std::vector<std::vector<std::string>> rows;
  std::string not_tried;
  for (const native::Check& check : diagnosis.checks) {
    if (!check.tried) {
      not_tried += (not_tried.empty() ? "not tried: " : ", ") + check.name;
      continue;
    }
    rows.push_back({std::string(native::status_name(check.status)), check.name, check.detail});
    if (!check.fix.empty()) {
      rows.push_back({"", "", "to change it: " + check.fix});
    }
  }
  if (!not_tried.empty()) {
    not_tried += "\n";
  }
  return table(rows) + "\n" + not_tried + printable(diagnosis.verdict) + "\n";
}

struct Wall {
  const char* name;
  policy::Backend backend;
  const char* runtime;
  const char* has;
};

constexpr std::array kWalls = {
    Wall{"bubblewrap", policy::Backend::kBubblewrap, "",
         "no --writable-root, no clocks of its own, no forks of plain workspaces for an ordinary "
         "user"},
    Wall{"oci runc", policy::Backend::kOci, "runc", "everything that a native one has"},
    Wall{"oci crun", policy::Backend::kOci, "crun", "everything that a native one has"},
    Wall{"oci runsc", policy::Backend::kOci, "runsc",
         "a kernel of gVisor's; no --writable-root, no Landlock"},
    Wall{"docker", policy::Backend::kDocker, "", "everything that a native one has"},
    Wall{"docker kata", policy::Backend::kDocker, "kata",
         "what a machine of the engine's has; no mounts, for root no workspaces"},
    Wall{"microvm", policy::Backend::kMicrovm, "",
         "a kernel of its own; no snapshots of a workspace without a name"},
    Wall{"microvm firecracker", policy::Backend::kMicrovm, "firecracker",
         "what a machine of QEMU's has"},
};

struct Tried {
  std::string builder;
  std::string warning;
};

// Whether a sandbox of the backend can be had is seen by trying.
Result<Tried> try_wall(const Context& context, storage::Home& home, const Wall& wall) {
  native::OneShot job;
  job.spec = policy::default_spec(policy::Operation::kRun);
  job.spec.backend = wall.backend;
  job.spec.runtime = wall.runtime;
  const sandbox::Walls& walls = *context.find_walls(wall.backend, wall.runtime);
  CARREL_ASSIGN(std::string builder, walls.describe(job.spec));
  job.command.arguments = {"/bin/true"};
  job.command.timeout = job.spec.limits.timeout;
  sandbox::CommandIo io;
  io.output = [](protocol::Stream, std::string_view) -> Status { return {}; };
  CARREL_ASSIGN(const sandbox::ExecResult result,
                native::OneShots(home, context.find_walls).run(job, io));
  if (!result.success()) {
    return Error{Code::kSystem, 0, "/bin/true failed in it: " + result.reason, {}};
  }
  return Tried{std::move(builder), walls.warning(job.spec)};
}

// The other backends. None of them has to be there.
void add_walls(const Context& context, storage::Home& home, native::Diagnosis& diagnosis) {
  for (const Wall& wall : kWalls) {
    if (context.find_walls(wall.backend, wall.runtime) == nullptr) {
      continue;
    }
    native::Check check;
    check.name = std::string("backend ") + wall.name;
    if (auto tried = try_wall(context, home, wall); tried.ok()) {
      check.detail = "works with " + tried->builder + "; it has " + wall.has;
      if (!tried->warning.empty()) {
        check.status = native::CheckStatus::kWarning;
        check.detail += "; " + tried->warning;
      }
    } else {
      check.status = native::CheckStatus::kMissing;
      check.detail = tried.error().message;
      if (tried.error().code == Code::kUnsupported && tried.error().hint != "run 'carrel doctor'") {
        check.fix = tried.error().hint;
      }
    }
    diagnosis.checks.push_back(std::move(check));
  }
}

}  // namespace

int doctor_command(const Context& context) {
  auto home = storage::Home::open();
  native::Diagnosis diagnosis = native::diagnose(native::examine_host(home));
  if (diagnosis.ok && home.ok()) {
    add_walls(context, home.value(), diagnosis);
  }
  print(context.json() ? as_json(diagnosis) : as_table(diagnosis));
  return diagnosis.ok ? 0 : kCarrelFailed;
}

}  // namespace carrel::cli
