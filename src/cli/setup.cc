#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "backends/native/one_shot.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "manager/walls.h"
#include "policy/settings.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

// The default image is the host's own programs: whether they can be had is seen by trying.
Status try_sandbox(storage::Home& home) {
  native::OneShot job;
  job.spec = policy::default_spec(policy::Operation::kRun);
  job.command.arguments = {"/bin/true"};
  job.command.timeout = job.spec.limits.timeout;
  sandbox::CommandIo io;
  io.output = [](protocol::Stream, std::string_view) -> Status { return {}; };
  CARREL_ASSIGN(sandbox::ExecResult result,
                native::OneShots(home, manager::find_walls).run(job, io));
  if (!result.success()) {
    return Error{Code::kSystem, 0, "/bin/true failed in a sandbox: " + result.reason,
                 "run 'carrel doctor'"};
  }
  return {};
}

// What the last step of making a state directory leaves.
bool is_prepared(const std::string& path) {
  return ::access((path + "/run/ids").c_str(), F_OK) == 0;
}

}  // namespace

int setup_command(const Context& context) {
  auto path = storage::home_path();
  if (!path.ok()) {
    return fail(context, path.error());
  }
  const bool was_prepared = is_prepared(path.value());
  auto home = storage::Home::open();
  Status tried = home.ok() ? try_sandbox(home.value()) : Status(home.error());
  if (!tried.ok()) {
    return fail(context, tried.error());
  }
  if (context.json()) {
    nlohmann::ordered_json object;
    object["home"] = replace_invalid_utf8(home.value().path());
    object["image"] = "host";
    object["changed"] = !was_prepared;
    print(object.dump() + "\n");
  } else {
    print((was_prepared ? "nothing to do: " : "made ") + printable(home.value().path()) +
          (was_prepared ? " is there" : "") +
          "; the image 'host' needs no preparation, and a sandbox of it works\n");
  }
  return 0;
}

}  // namespace carrel::cli
