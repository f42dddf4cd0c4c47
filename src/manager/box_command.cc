#include "manager/box_command.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "backends/native/groups.h"
#include "backends/native/network.h"
#include "backends/native/strays.h"
#include "base/files.h"
#include "egress/denials.h"
#include "policy/file_room.h"
#include "policy/spec_json.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::manager {

namespace {

constexpr int kGreetMs = 10'000;

// Whether a count of the sandbox's group has grown since the last look; it is kept in a file beside
// the sandbox's record.
bool has_grown(const BoxPlace& place, const char* name, std::uint64_t now) {
  const std::string file = place.record.id + "/" + name;
  const std::string text = std::to_string(now);
  auto before = read_file_at(place.home.boxes(), file, 32);
  if (text == (before.ok() ? before.value() : "0")) {
    return false;
  }
  (void)replace_file_at(place.home.boxes(), file, text, 0600);
  return true;
}

// Adds to the end of a command that failed what the sandbox's group counted meanwhile. Returns the
// most memory that was ever used, 0 where nobody counts it.
std::uint64_t ask_group(const BoxPlace& place, sandbox::ExecResult& end) {
  auto groups = native::find_groups(place.home, place.record.cgroup_parent);
  if (!groups.ok()) {
    return 0;
  }
  auto group =
      kernel::Cgroup::open(groups.value(), place.record.id, kernel::CgroupOwnership::kBorrowed);
  if (!group.ok()) {
    return 0;
  }
  auto work = group.value().open_subgroup(native::kWorkLeaf, kernel::CgroupOwnership::kBorrowed);
  if (!work.ok()) {
    return 0;
  }
  if (!end.timed_out && end.exit_code == 128 + SIGKILL &&
      has_grown(place, "oom_kills", work.value().oom_kills())) {
    end.oom_killed = true;
  }
  if (has_grown(place, "fork_refusals", work.value().pids_limit_hits())) {
    end.process_limit = true;
  }
  return work.value().usage().memory_peak_bytes.value_or(0);
}

policy::Spec spec_of(const BoxPlace& place) {
  auto state = storage::State::open(place.home);
  auto row = state.ok() ? state.value().find(place.record.id) : state.error();
  if (!row.ok() || !row.value().has_value()) {
    return {};
  }
  auto spec = policy::spec_from_json(row.value()->spec);
  return spec.ok() ? std::move(spec.value()) : policy::Spec();
}

// A limit that ended or hindered the command is part of its result, and an event.
void tell_limits(const BoxPlace& place, const egress::Denials& denials, sandbox::ExecResult& end) {
  if (end.exit_code == 0 || end.cancelled) {
    return;
  }
  if (const auto denied = denials.first_of(place.record.id); denied.has_value()) {
    sandbox::add_denied(end, denied->target, denied->rule);
  }
  const std::uint64_t peak = ask_group(place, end);
  if (!end.oom_killed && !end.process_limit && !end.disk_limit && !end.no_network &&
      !end.files_full) {
    return;
  }
  const policy::Spec spec = spec_of(place);
  const policy::Limits& limits = spec.limits;
  const std::string& id = place.record.id;
  if (end.oom_killed) {
    end.reason = "out of memory";
    storage::add_event(place.home, storage::limit_event(id, "memory", limits.memory_bytes,
                                                        std::max(peak, limits.memory_bytes)));
    sandbox::add_memory_limit(end, limits.memory_bytes);
  }
  if (end.disk_limit) {
    end.oom_killed = false;
    sandbox::add_disk_limit(end, limits.disk_bytes);
    storage::add_event(place.home,
                       storage::limit_event(id, "disk", limits.disk_bytes, limits.disk_bytes));
  }
  if (end.files_full) {
    sandbox::add_files_full(end, policy::file_room_text(spec));
  }
  if (end.process_limit) {
    sandbox::add_process_limit(end, limits.pids);
    storage::add_event(place.home, storage::limit_event(id, "pids", limits.pids, limits.pids));
  }
  if (end.no_network && !native::has_network(spec)) {
    sandbox::add_no_network(end);
  }
}

std::uint64_t characters(const std::string& text) {
  std::uint64_t count = 0;
  for (char c : text) {
    count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  }
  return count > 0 && text.back() == '\n' ? count - 1 : count;
}

std::string text_of(const sandbox::CommandRequest& request) {
  if (request.arguments.empty()) {
    return request.shell_text;
  }
  std::string joined;
  for (const std::string& word : request.arguments) {
    joined += (joined.empty() ? "" : " ") + word;
  }
  return joined;
}

// Counts the characters of an output for the log, whether or not it is kept.
class Counter {
 public:
  void add(std::string_view piece) {
    if (!piece.empty()) {
      seen_ += characters(std::string(piece)) + (piece.back() == '\n' ? 1 : 0);
      ends_line_ = piece.back() == '\n';
    }
  }
  [[nodiscard]] std::uint64_t without_last_newline() const {
    return seen_ - (ends_line_ && seen_ > 0 ? 1 : 0);
  }

 private:
  std::uint64_t seen_ = 0;
  bool ends_line_ = false;
};

}  // namespace

Result<sandbox::GuestStream> connect(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(UniqueFd socket, storage::connect_box(home, record));
  sandbox::GuestStream stream(std::move(socket));
  Status greeted = stream.greet(record.id, kGreetMs);
  if (!greeted.ok() && greeted.error().code == Code::kGone) {  // it ended at this moment
    greeted.error().message = "sandbox " + record.id + " has ended";
    greeted.error().hint = "'carrel info' says why";
  }
  CARREL_TRY(greeted);
  // Where that fails its commands run, and have no network.
  (void)native::ensure_network(home, record.id);
  return stream;
}

void note_command(const storage::Home& home, const std::string& id,
                  const sandbox::CommandRequest& request) {
  storage::add_event(home, storage::command_event(id, text_of(request)));
}

Result<sandbox::ExecResult> run_in_box(const BoxPlace& place, sandbox::GuestStream& stream,
                                       const sandbox::CommandRequest& request,
                                       const sandbox::CommandIo& io) {
  const bool shell = request.arguments.empty();
  CARREL_ASSIGN(const std::string payload,
                sandbox::encode_start(
                    request, io.input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone));
  note_command(place.home, place.record.id, request);
  const egress::Denials denials = egress::Denials::since_now(place.home.directory());
  Counter counter;
  sandbox::CommandIo counted = io;
  counted.output = [&](protocol::Stream which, std::string_view data) {
    if (which == protocol::Stream::kStdout) {
      counter.add(data);
    }
    return io.output ? io.output(which, data) : Status();
  };
  auto result = sandbox::serve_command(stream, protocol::FrameType::kStart, payload,
                                       request.timeout, counted);
  if (!result.ok()) {
    if (result.error().code == Code::kGone) {
      result.error().message = "sandbox " + place.record.id + " ended while the command ran";
      result.error().hint = "'carrel info' says why";
    }
    return result.error();
  }
  sandbox::ExecResult& end = result.value();
  tell_limits(place, denials, end);
  if (shell && end.reason == "command not found") {
    end.reason = "there is no bash in this sandbox's image";
  }
  storage::CommandOutcome outcome;
  outcome.exit_code = end.exit_code;
  outcome.cwd = end.cwd;
  outcome.stdout_chars = counter.without_last_newline();
  outcome.command_bytes = text_of(request).size();
  outcome.reason = end.reason;
  outcome.duration_ms = end.duration_ms;
  outcome.shell_restarted = end.shell_restarted;
  storage::add_event(place.home, storage::result_event(place.record.id, outcome));
  return result;
}

}  // namespace carrel::manager
