#include "cli/box.h"

#include <poll.h>

#include "backends/native/remains.h"
#include "backends/native/strays.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "manager/box_command.h"
#include "manager/life.h"
#include "manager/stopping.h"
#include "manager/workspace_target.h"
#include "policy/size.h"

namespace carrel::cli {

Result<Connection> connect(const Context& context) {
  return connect_to(std::string(context.arguments.operands.front()));
}

namespace {

Result<Connection> try_to_connect(const std::string& named) {
  Connection connection;
  CARREL_ASSIGN(connection.home, storage::Home::open());
  CARREL_ASSIGN(connection.record,
                manager::find_awake(connection.home, named, manager::finish_restore_apart));
  CARREL_ASSIGN(connection.use, manager::begin_use(connection.home, connection.record));
  auto stream = manager::connect(connection.home, connection.record);
  native::sweep_quickly(connection.home);
  if (!stream.ok()) {
    return stream.error();
  }
  connection.stream = std::move(stream.value());
  return connection;
}

}  // namespace

Result<Connection> connect_to(const std::string& named) {
  constexpr int kTries = 200;
  constexpr int kStepMs = 50;
  auto connection = try_to_connect(named);
  if (connection.ok() || connection.error().code != Code::kGone) {
    return connection;
  }
  // It died just now. One that is to be made again is, once what was left of it is gone.
  CARREL_ASSIGN(storage::Home home, storage::Home::open());
  for (int i = 0; i < kTries; ++i) {
    auto row = manager::find_row(home, named);
    if (row.ok() && row->state == "stopped") {
      return try_to_connect(named);
    }
    if (!row.ok() || !native::is_made_again(row.value())) {
      return connection;
    }
    native::sweep_boxes(home);
    ::poll(nullptr, 0, kStepMs);
  }
  return connection;
}

std::chrono::milliseconds timeout_for(const Context& context, const storage::BoxRecord& record) {
  for (const Arguments::GivenSetting& given : context.arguments.settings) {
    if (given.setting->name == "timeout") {
      auto timeout = policy::parse_duration({given.name, given.value});
      if (timeout.ok()) {
        return timeout.value();
      }
    }
  }
  return std::chrono::milliseconds(record.timeout_ms);
}

int run_in_box(const Context& context, Connection& connection, sandbox::CommandRequest request,
               int input) {
  Result<sandbox::ExecResult> result = Error{};
  {
    Foreground foreground(context.json() ? Foreground::Mode::kCollect : Foreground::Mode::kPassOn,
                          request.terminal ? Foreground::Terminal::kYes : Foreground::Terminal::kNo,
                          input);
    result = manager::run_in_box({connection.home, connection.record}, connection.stream, request,
                                 foreground.io());
    foreground.finish(result);
  }
  if (!result.ok()) {
    return fail(context, result.error());
  }
  return show_result(context, result.value());
}

}  // namespace carrel::cli
