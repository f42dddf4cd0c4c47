#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backends/native/mounts.h"
#include "base/json_writer.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "manager/life.h"
#include "manager/self.h"
#include "manager/walls.h"
#include "policy/narrow.h"
#include "policy/spec_json.h"
#include "server/handlers.h"
#include "server/service.h"
#include "server/spec_input.h"
#include "storage/mount_facts.h"

// Sandboxes themselves: made, shown, ended.
namespace carrel::server {
namespace {

constexpr int kGraceMs = 2000;
constexpr std::size_t kLongestKey = 255;

// What was made of a text, for the next one who asks: most sandboxes have the same settings, and
// are held by the same things. To write it anew each time takes as long as half of a creation.
class Memo {
 public:
  explicit Memo(std::string (*make)(const std::string& text)) : make_(make) {}

  std::string look_up(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const auto known = made_.find(text);
    if (known != made_.end()) {
      return known->second;
    }
    if (text.size() > kLongestKnown) {
      return make_(text);
    }
    if (made_.size() == kMost) {
      made_.clear();
    }
    return made_.emplace(text, make_(text)).first->second;
  }

 private:
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kLongestKnown = 16U << 10;
  std::string (*make_)(const std::string& text);
  std::mutex mutex_;
  std::map<std::string, std::string> made_;
};

// What stands between the braces of an object, and a comma before it if there is something.
std::string fields_of(const Json& object) {
  const std::string text = to_text(object);
  return object.empty() ? std::string() : "," + text.substr(1, text.size() - 2);
}

std::string enforcement_of(const std::string& text) {
  Json enforcement = Json::parse(text, nullptr, false);
  return fields_of({{"enforcement", enforcement.is_array() ? enforcement : Json::array()}});
}

std::string settings_of(const std::string& spec_text) {
  Json settings = Json::object();
  auto spec = policy::spec_from_json(spec_text);
  if (spec.ok()) {
    for (const policy::SettingValue& value : policy::dump_settings(spec.value())) {
      settings[policy::key_name(value.name)] = replace_invalid_utf8(value.value);
    }
  }
  return fields_of({{"backend", settings.value("backend", "unknown")}, {"settings", settings}});
}

// Where a list goes on: after the row of that time and id.
struct Cursor {
  std::int64_t created_ms = 0;
  std::string id;

  [[nodiscard]] bool is_before(const storage::SandboxRow& row) const {
    return std::pair(created_ms, id) < std::pair(row.created_ms, row.id);
  }
};

std::string cursor_text(const storage::SandboxRow& row) {
  return std::to_string(row.created_ms) + "." + row.id;
}

Result<Cursor> parse_cursor(const std::string& text) {
  Cursor cursor;
  if (text.empty()) {
    return cursor;
  }
  const std::size_t dot = text.find('.');
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), cursor.created_ms);
  if (dot == std::string::npos || error != std::errc() || end != text.data() + dot ||
      !storage::is_id(std::string_view(text).substr(dot + 1))) {
    return Error{Code::kInvalid, 0, "the cursor is not one that was given out", {}};
  }
  cursor.id = text.substr(dot + 1);
  return cursor;
}

}  // namespace

Status check_settings(Request& request, const policy::Spec& most, policy::Spec& wanted) {
  if (!request.caller.is_operator()) {
    CARREL_TRY(policy::check_request_narrows(most, wanted));
  }
  for (const policy::Mount& mount : wanted.mounts) {
    if (!mount.source.starts_with('/')) {
      return Error{Code::kInvalid, 0, "the mount of '" + mount.source + "' is not absolute", {}};
    }
  }
  CARREL_TRY(manager::settle_walls(wanted));
  return manager::check_against_host(wanted);
}

Result<std::vector<native::GivenTree>> open_trees(Request& request, const policy::Spec& spec) {
  if (spec.mounts.empty()) {
    return std::vector<native::GivenTree>();
  }
  storage::OwnPlaces own;
  own.state = request.service.manager->home().path();
  return native::open_mounts(spec, own);
}

namespace {

// The fields that a list shows as well.
void write_facts(JsonWriter& object, Request& request, const storage::SandboxRow& row) {
  manager::Manager& manager = *request.service.manager;
  const bool ended = row.state == "ended";
  const manager::Life life = manager::life_of(manager.home(), row);
  const std::int64_t lease = ended ? 0 : storage::noted_lease(manager.home(), row.id);
  object.field("id", row.id)
      .field("name", row.name)
      .field("state", life.state)
      .field("desired_state", life.desired)
      .field("created_ms", row.created_ms);
  object.key("ended_ms");
  ended ? object.value(row.ended_ms) : object.null();
  object.key("lease_ends_ms");
  lease == 0 ? object.null() : object.value(lease);
  object.field("reason", life.reason);
}

}  // namespace

std::string sandbox_text(Request& request, const storage::SandboxRow& row) {
  static Memo known_settings(settings_of);
  static Memo known_enforcement(enforcement_of);
  JsonWriter object;
  write_facts(object.open_object(), request, row);
  write_links(object.key("links"), request, row.id);
  return std::move(object).text() + known_settings.look_up(row.spec) +
         known_enforcement.look_up(row.enforcement);
}

Status reply_sandbox(Request& request, int status, std::string text, const Json& more) {
  return reply_text(request, status, std::move(text) + fields_of(more) + "}");
}

Status create_sandbox(Request& request) {
  Service& service = request.service;
  manager::Wish wish;
  wish.spec = service.create_defaults;
  Fields fields(request.body);
  CARREL_TRY(
      read_settings(request.body, policy::Operation::kCreate, fields, wish.spec, wish.given));
  wish.name = fields.text("name").value_or("");
  wish.lease_ms = static_cast<std::uint64_t>(
      fields.duration("lease").value_or(std::chrono::milliseconds(0)).count());
  CARREL_ASSIGN(std::optional<CommandOrder> first, read_first(fields.any("run")));
  CARREL_TRY(fields.finish());
  CARREL_TRY(check_settings(request, service.create_defaults, wish.spec));
  std::string key;
  const http::RequestHead& head = request.connection.head();
  if (const std::string* given = head.find("idempotency-key"); given != nullptr) {
    key = *given;
    if (key.empty() || key.size() > kLongestKey ||
        http::count_headers(head.headers, "idempotency-key") != 1) {
      return Error{Code::kInvalid, 0, "the idempotency key is not 1 to 255 characters", {}};
    }
  }
  CARREL_ASSIGN(wish.trees, open_trees(request, wish.spec));
  wish.finish_restore = manager::finish_restore_by_self;
  const std::string digest = key.empty() ? std::string() : sha256(request.body.dump());
  CARREL_ASSIGN(const manager::Manager::Created made,
                service.manager->create(request.caller, std::move(wish), key, digest));
  service.counters.created.fetch_add(1, std::memory_order_relaxed);
  if (!first.has_value()) {
    return reply_sandbox(request, 201, sandbox_text(request, made.row));
  }
  // A command is never run twice: who asks again, with the same key, does not get its result.
  std::string text;
  Json result = nullptr;
  const auto describe = [&] { text = sandbox_text(request, made.row); };
  if (made.how == manager::Manager::Created::How::kNow) {
    CARREL_ASSIGN(result, run_first(request, made.row.id, std::move(*first), describe));
  }
  if (text.empty()) {
    describe();
  }
  return reply_sandbox(request, 201, std::move(text), {{"result", std::move(result)}});
}

Status list_sandboxes(Request& request) {
  CARREL_ASSIGN(const std::uint64_t limit, number_in(request.query, "limit", 100, 1000));
  CARREL_ASSIGN(const Cursor cursor, parse_cursor(request.query["cursor"]));
  const std::string& all = request.query["all"];
  const std::string& name = request.query["name"];
  if (!all.empty() && all != "true" && all != "false") {
    return Error{Code::kInvalid, 0, "'all' must be true or false", {}};
  }
  CARREL_ASSIGN(
      std::vector<storage::SandboxRow> rows,
      request.service.manager->list(request.caller, all == "true" ? storage::State::Which::kAll
                                                                  : storage::State::Which::kLive));
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.created_ms, a.id) < std::pair(b.created_ms, b.id);
  });
  std::erase_if(rows, [&](const storage::SandboxRow& row) {
    return !cursor.is_before(row) || (!name.empty() && row.name != name);
  });
  JsonWriter object;
  object.open_object().key("sandboxes").open_array();
  for (std::size_t i = 0; i < rows.size() && i < limit; ++i) {
    write_facts(object.open_object(), request, rows[i]);
    object.close_object();
  }
  object.close_array().key("next_cursor");
  const bool more = rows.size() > limit && limit > 0;
  more ? object.value(cursor_text(rows[limit - 1])) : object.null();
  return reply_text(request, 200, std::move(object.close_object()).text());
}

Status get_sandbox(Request& request) {
  CARREL_ASSIGN(const storage::SandboxRow row,
                request.service.manager->find(request.caller, request.id()));
  std::string text = sandbox_text(request, row);
  return reply_sandbox(request, 200, std::move(text), inner_life(request, row));
}

Status delete_sandbox(Request& request) {
  CARREL_ASSIGN(const std::uint64_t grace, number_in(request.query, "grace_ms", kGraceMs, 60'000));
  CARREL_TRY(
      request.service.manager->remove(request.caller, request.id(), static_cast<int>(grace)));
  return reply_nothing(request);
}

Status pause_sandbox(Request& request) {
  CARREL_TRY(request.service.manager->pause(request.caller, request.id()));
  return get_sandbox(request);
}

Status resume_sandbox(Request& request) {
  CARREL_TRY(request.service.manager->resume(request.caller, request.id()));
  return get_sandbox(request);
}

Status stop_sandbox(Request& request) {
  CARREL_ASSIGN(const std::uint64_t grace, number_in(request.query, "grace_ms", kGraceMs, 60'000));
  CARREL_TRY(request.service.manager->stop(request.caller, request.id(), static_cast<int>(grace)));
  return get_sandbox(request);
}

Status start_sandbox(Request& request) {
  CARREL_TRY(request.service.manager->start(request.caller, request.id()));
  return get_sandbox(request);
}

Status put_lease(Request& request) {
  Fields fields(request.body);
  const Json* forever = fields.any("seconds");
  const auto lease =
      forever == nullptr ? std::optional(std::chrono::milliseconds(0)) : fields.duration("seconds");
  CARREL_TRY(fields.finish());
  if (!request.body.contains("seconds")) {
    return Error{Code::kInvalid, 0, "'seconds' is missing", "null is no deadline"};
  }
  CARREL_TRY(request.service.manager->set_lease(
      request.caller, request.id(),
      static_cast<std::uint64_t>(lease.value_or(std::chrono::milliseconds(0)).count())));
  return get_sandbox(request);
}

}  // namespace carrel::server
