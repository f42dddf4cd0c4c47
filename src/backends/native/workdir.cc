#include "backends/native/workdir.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "backends/native/remains.h"
#include "sandbox/command.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

constexpr int kGreetMs = 10'000;
constexpr std::chrono::milliseconds kTimeout{10'000};

// The guest enters the directory before it looks for the program, so it does not matter whether
// the image has it or how it ends.
Status start_in_workdir(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(UniqueFd socket, storage::connect_box(home, record));
  sandbox::GuestStream stream(std::move(socket));
  CARREL_TRY(stream.greet(record.id, kGreetMs));
  sandbox::CommandRequest request;
  request.arguments = {"true"};
  request.timeout = kTimeout;
  CARREL_ASSIGN(std::string payload, sandbox::encode_start(request, sandbox::Input::kNone));
  sandbox::CommandIo io;
  io.output = [](protocol::Stream, std::string_view) { return Status{}; };
  auto end =
      sandbox::serve_command(stream, protocol::FrameType::kStart, payload, request.timeout, io);
  if (end.ok() || end.error().code != Code::kInvalid) {
    return {};
  }
  end.error().message = "Failed to create sandbox: " + end.error().message;
  return end.error();
}

}  // namespace

Status ensure_workdir(storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(storage::BoxRecord record, storage::read_record(home, id));
  Status started = start_in_workdir(home, record);
  if (!started.ok()) {
    (void)remove_sandbox(home, record, 0, "its work directory could not be made");
    if (auto state = storage::State::open(home); state.ok()) {
      (void)state.value().forget(id);
    }
  }
  return started;
}

}  // namespace carrel::native
