// Two clients of one daemon: whatever route one of them calls with the ids of the other, he learns
// nothing and changes nothing. The requests are made from the published document of the API, so
// that a new route is tried as well, and a parameter that nobody described here is a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/host.h"
#include "support/tenants.h"

namespace carrel::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// What a parameter is the id of.
enum class Kind {
  kNothing,  // it is no id
  kSandbox,
  kCommand,
  kSnapshot,
  kWorkspace,
  kImage,
  kCursor,  // of a list: a place in it, as the list gave it out
  kPort,    // these are of a sandbox or of a client: another has the same words for his own
  kSession,
  kKey,
  kName,
};

// Whoever names one that is another's is told that there is none, or that he may not name any.
bool is_refused_to_strangers(Kind kind) {
  return kind != Kind::kCursor && kind != Kind::kPort && kind != Kind::kSession &&
         kind != Kind::kKey && kind != Kind::kName;
}

using Values = std::map<Kind, std::string>;

// What nobody has.
const Values& of_nobody() {
  static const Values kValues = {{Kind::kSandbox, "00000000-0000-4000-8000-000000000000"},
                                 {Kind::kCommand, "98765"},
                                 {Kind::kSnapshot, "0123456789abcdef01234567"},
                                 {Kind::kWorkspace, "of-nobody"},
                                 {Kind::kImage, "of-nobody:1"},
                                 {Kind::kCursor, "1.00000000-0000-4000-8000-000000000000"},
                                 {Kind::kPort, "4321"},
                                 {Kind::kSession, "of-nobody"},
                                 {Kind::kKey, "of-nobody"},
                                 {Kind::kName, "of-nobody"}};
  return kValues;
}

// The fields that are ids, by where they are and what they are called.
const std::map<std::string, Kind>& ids() {
  static const std::map<std::string, Kind> kIds = {
      {"path:id", Kind::kSandbox},        {"path:command", Kind::kCommand},
      {"path:port", Kind::kPort},         {"path:workspace", Kind::kWorkspace},
      {"path:snapshot", Kind::kSnapshot}, {"query:sandbox", Kind::kSandbox},
      {"query:cursor", Kind::kCursor},    {"query:name", Kind::kName},
      {"query:from", Kind::kSnapshot},    {"query:to", Kind::kSnapshot},
      {"body:snapshot", Kind::kSnapshot}, {"body:workspace", Kind::kWorkspace},
      {"body:image", Kind::kImage},       {"body:session", Kind::kSession},
      {"body:name", Kind::kName},         {"header:Idempotency-Key", Kind::kKey}};
  return kIds;
}

// The others, with a value for those that a request can need.
const json& others() {
  static const json kOthers = json::parse(R"({
    "query:limit": 10, "query:all": "true", "query:grace_ms": 0, "query:offset": 0,
    "query:stream": "stdout", "query:stdout": 0, "query:stderr": 0, "query:close": "false",
    "query:past": "true", "query:wait_ms": 0, "query:path": "/workspace/secret", "query:count": 1,
    "query:mode": "600", "query:exists": "replace", "query:recursive": "true", "query:pattern": "*",
    "body:command": "true", "body:argv": ["true"], "body:run": null, "body:lease": 60,
    "body:seconds": 600, "body:timeout": 60, "body:stdin": null, "body:merged": true,
    "body:env": {}, "body:workdir": "/workspace", "body:terminal": true, "body:rows": 24,
    "body:columns": 80, "body:path": "/workspace/secret", "body:text": "secret",
    "body:ignore_case": true, "body:pattern": "*", "body:exclude": [], "body:skip_usual": true,
    "body:limit": 10, "body:mode": "700", "body:to": "/workspace/other", "body:recursive": true,
    "body:old": "-secret", "body:new": "another", "body:public": true, "body:signal": "TERM",
    "body:memory": "128m", "body:cpus": 0.5, "body:pids": 20, "body:disk": "20m", "body:tmp": "20m",
    "body:writable_root": false, "body:network": "none", "body:network_enabled": false,
    "body:credential": [], "body:network_out": "1m", "body:network_in": "1m",
    "body:network_connections": 1, "body:network_lookups": 1, "body:user": "agent",
    "body:hostname": "box", "body:require": [], "body:cgroup_parent": null, "body:backend": null,
    "body:runtime": null, "body:isolation": null, "body:use_sandbox": true, "body:mount": [],
    "body:share_workspace": false, "body:on_idle": "nothing", "body:idle_timeout": 60,
    "body:on_failure": "nothing", "body:service": []})");
  return kOthers;
}

// What a body needs that its schema does not say.
const json& needed_besides() {
  static const json kNeeded = json::parse(R"({
    "runOnce": {"command": "true"}, "startCommand": {"command": "true"},
    "makeDirectory": {"path": "/workspace/new"}, "createSandbox": {"disk": "20m"},
    "changeMode": {"mode": "640"}})");
  return kNeeded;
}

// One route of the document.
struct Call {
  std::string operation = {};
  std::string method = {};
  std::string path = {};  // with names in braces
  int status = 0;         // when it was done
  bool endless = false;
  bool bytes = false;
  json body = nullptr;                     // without what is an id
  std::vector<std::string> query = {};     // that it needs and that is no id
  std::vector<std::string> needed = {};    // fields that are ids
  std::vector<std::string> possible = {};  // and those that may be left out
};

Kind kind_of(const std::string& field) {
  const auto found = ids().find(field);
  if (found != ids().end()) {
    return found->second;
  }
  EXPECT_TRUE(others().contains(field))
      << "is '" << field << "' the id of something? Say so in ids() or others() of this test.";
  return Kind::kNothing;
}

class Document {
 public:
  Document() : document_(json::parse(read_text(CARREL_OPENAPI).value_or(""))) {}

  [[nodiscard]] std::vector<Call> calls() const {
    std::vector<Call> calls;
    for (const auto& [path, methods] : document_["paths"].items()) {
      for (const auto& [method, operation] : methods.items()) {
        calls.push_back(call_of(path, method, operation));
      }
    }
    return calls;
  }

 private:
  [[nodiscard]] const json& resolve(const json& schema) const {
    if (!schema.contains("$ref")) {
      return schema;
    }
    const std::string name = schema["$ref"].get<std::string>();
    return document_["components"]["schemas"][name.substr(name.rfind('/') + 1)];
  }
  // The names below a property that is an object of its own.
  void know_inner(const json& property) const {
    for (const json& choice : property.value("oneOf", json::array())) {
      const json properties = resolve(choice).value("properties", json::object());
      for (const auto& [name, inner] : properties.items()) {
        (void)kind_of("body:" + name);
      }
    }
  }
  void read_body(const json& schema, Call& call) const {
    call.body = needed_besides().value(call.operation, json::object());
    const json needed = schema.value("required", json::array());
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, property] : properties.items()) {
      const std::string field = "body:" + name;
      const bool is_needed = std::find(needed.begin(), needed.end(), name) != needed.end();
      const Kind kind = kind_of(field);
      know_inner(property);
      if (kind != Kind::kNothing) {
        (is_needed ? call.needed : call.possible).push_back(field);
      } else if (is_needed && !call.body.contains(name)) {
        call.body[name] = others().value(field, json());
      }
    }
  }
  [[nodiscard]] Call call_of(const std::string& path, const std::string& method,
                             const json& operation) const {
    Call call{.operation = operation["operationId"], .method = method, .path = path};
    for (char& letter : call.method) {
      letter = static_cast<char>(std::toupper(letter));
    }
    for (const auto& [status, answer] : operation["responses"].items()) {
      if (status != "default") {
        call.status = std::stoi(status);
        call.endless = call.status == 101 ||
                       answer.value("content", json::object()).contains("text/event-stream");
      }
    }
    for (const json& parameter : operation.value("parameters", json::array())) {
      const std::string name = parameter["name"];
      const std::string field = parameter["in"].get<std::string>() + ":" + name;
      const bool is_needed = parameter.value("required", false);
      if (kind_of(field) != Kind::kNothing) {
        (is_needed ? call.needed : call.possible).push_back(field);
      } else if (is_needed) {
        const bool folder = call.operation == "putArchive" || call.operation == "watchFiles";
        call.query.push_back(
            name + "=" + (folder ? std::string("/workspace") : others()[field].get<std::string>()));
      }
    }
    const json content =
        operation.value("requestBody", json::object()).value("content", json::object());
    if (content.contains("application/json")) {
      read_body(resolve(content["application/json"]["schema"]), call);
    }
    call.bytes = content.contains("application/octet-stream");
    return call;
  }

  json document_;
};

class Strangers : public TenantsTest {
 protected:
  // What one client has.
  struct World {
    std::string token;
    std::string box;  // the path of its sandbox
    Values values;
  };

  ApiAnswer ask_as(const std::string& token, ApiRequest request, bool endless = false) {
    request.headers.push_back(bearer(token));
    if (!endless) {
      return ask(daemon_->port(), request);
    }
    ApiConnection connection(daemon_->port());
    EXPECT_TRUE(connection.send(request_text(request)));
    const std::string head = connection.read_until("\r\n\r\n", std::chrono::seconds(60));
    ApiAnswer answer;
    answer.status = head.size() > 12 ? std::stoi(head.substr(9, 3)) : 0;
    return answer.status < 400 ? answer : connection.read_answer();
  }
  ApiAnswer get_as(const std::string& token, const std::string& path) {
    return ask_as(token, {.path = path});
  }
  // The id in the answer.
  std::string made(const std::string& token, const std::string& path, const json& body,
                   std::vector<std::string> headers = {}) {
    const ApiAnswer answer = ask_as(
        token,
        {.method = "POST", .path = path, .body = body.dump(), .headers = std::move(headers)});
    EXPECT_EQ(answer.status, 201) << path << " " << answer.body;
    return answer.status == 201 ? answer.json().value("id", "") : "";
  }
  void fill(World& world, const std::string& whose) {
    world.box = "/v1/sandboxes/" + world.values[Kind::kSandbox];
    const ApiAnswer written =
        ask_as(world.token, {.method = "PUT",
                             .path = world.box + "/files?path=/workspace/secret",
                             .body = whose + "-secret\n",
                             .type = "application/octet-stream"});
    EXPECT_EQ(written.status, 200) << written.body;
    world.values[Kind::kSession] = whose + "s-session";
    EXPECT_EQ(post_as(world.token, world.box + "/shell",
                      {{"command", "mine=" + whose + "-secret"},
                       {"session", world.values[Kind::kSession]}})
                  .status,
              200);
    world.values[Kind::kCommand] = made(world.token, world.box + "/commands",
                                        {{"argv", {"cat"}}, {"terminal", true}, {"stdin", true}});
    world.values[Kind::kSnapshot] =
        made(world.token, world.box + "/snapshots", {{"name", whose + "s-snapshot"}});
    world.values[Kind::kWorkspace] = workspace_of(world);
    world.values[Kind::kPort] = "8080";
    EXPECT_EQ(
        ask_as(world.token,
               {.method = "PUT", .path = world.box + "/ports/8080", .body = R"({"public": true})"})
            .status,
        200);
  }
  // The one that the daemon's owner sees.
  std::string workspace_of(const World& world) {
    const json list = json::parse(carrel({"workspace", "ls", "--json"}).out, nullptr, false);
    for (const json& one : list.value("workspaces", json::array())) {
      const Run history = carrel({"workspace", "history", one["name"], "--json"});
      if (history.out.find(world.values.at(Kind::kSnapshot)) != std::string::npos) {
        return one["name"];
      }
    }
    ADD_FAILURE() << "there is no workspace with " << world.values.at(Kind::kSnapshot);
    return "";
  }
  World make_world(const std::string& whose, std::vector<std::string> options = {}) {
    return {.token = token(whose, std::move(options)), .box = {}, .values = {}};
  }
  void settle(World& world, const std::string& whose) {
    world.values[Kind::kName] = whose + "s-box";
    world.values[Kind::kKey] = whose + "s-key";
    world.values[Kind::kImage] = "of-the-owner:1";
    world.values[Kind::kSandbox] =
        made(world.token, "/v1/sandboxes", {{"name", world.values[Kind::kName]}, {"disk", "20m"}},
             {"idempotency-key: " + world.values[Kind::kKey]});
    fill(world, whose);
    const json row = get_as(world.token, world.box).json();
    world.values[Kind::kCursor] = std::to_string(row["created_ms"].get<std::int64_t>() - 1) + "." +
                                  world.values[Kind::kSandbox];
  }

  // The request of a route with these ids.
  static ApiRequest request_of(const Call& call, const Values& values,
                               const std::optional<std::string>& possible) {
    ApiRequest request{.method = call.method, .path = call.path};
    json body = call.body;
    std::vector<std::string> query = call.query;
    std::vector<std::string> fields = call.needed;
    if (possible.has_value()) {
      fields.push_back(*possible);
    }
    for (const std::string& field : fields) {
      const std::string where = field.substr(0, field.find(':'));
      const std::string name = field.substr(where.size() + 1);
      const std::string& value = values.at(ids().at(field));
      if (where == "path") {
        const std::size_t at = request.path.find("{" + name + "}");
        request.path.replace(at, name.size() + 2, value);
      } else if (where == "query") {
        query.push_back(name + "=" + value);
      } else if (where == "header") {
        request.headers.push_back(name + ": " + value);
      } else {
        body[name] = value;
      }
    }
    for (std::size_t i = 0; i < query.size(); ++i) {
      request.path += (i == 0 ? "?" : "&") + query[i];
    }
    if (call.bytes) {
      request.body = std::string(10240, '\0');  // an empty tar
      request.type = "application/octet-stream";
    } else if (!body.is_null()) {
      request.body = body.dump();
    }
    if (call.status == 101) {
      request.headers.insert(
          request.headers.end(),
          {"connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13",
           "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="});
    }
    return request;
  }

  // All that can be seen of what a client has.
  std::string look(const World& world, const std::string& ended) {
    std::string seen;
    for (const std::string& path :
         {std::string("/v1/sandboxes?all=true"), world.box, world.box + "/commands",
          world.box + "/commands/" + world.values.at(Kind::kCommand) + "/output",
          world.box + "/files/list?path=/workspace&recursive=true",
          world.box + "/files?path=/workspace/secret", world.box + "/ports",
          world.box + "/services", world.box + "/diff?from=" + world.values.at(Kind::kSnapshot),
          "/v1/sandboxes/" + ended}) {
      const ApiAnswer answer = get_as(world.token, path);
      EXPECT_EQ(answer.status, 200) << path << " " << answer.body;
      seen += path + " " + answer.body + "\n";
    }
    seen += carrel({"workspace", "history", world.values.at(Kind::kWorkspace), "--json"}).out;
    return seen;
  }

  // What a stranger gets for something that is another's is what he gets for what nobody has.
  void compare(const World& stranger, const Call& call, const Values& foreign,
               const Values& nobodys, const std::optional<std::string>& possible, bool refused) {
    const ApiAnswer answer =
        ask_as(stranger.token, request_of(call, foreign, possible), call.endless);
    const std::string what = call.operation + " " + possible.value_or("") + " " + answer.body;
    EXPECT_THAT(answer.body, Not(HasSubstr("alice-secret"))) << what;
    if (!refused) {
      // His own of that word, made or not there.
      EXPECT_THAT(answer.status, AnyOf(200, 201, 204, 404, 409)) << what;
      return;
    }
    EXPECT_THAT(answer.status, AnyOf(403, 404)) << what;
    const ApiAnswer other =
        ask_as(stranger.token, request_of(call, nobodys, possible), call.endless);
    EXPECT_EQ(answer.status, other.status) << what << other.body;
    EXPECT_EQ(without(answer.body, foreign), without(other.body, nobodys)) << what;
  }
  // The text with a mark in the place of each of these words.
  static std::string without(std::string text, const Values& values) {
    const auto ends = [&](std::size_t at) {
      return at >= text.size() || std::isalnum(static_cast<unsigned char>(text[at])) == 0;
    };
    for (const auto& [kind, value] : values) {
      for (std::size_t at = text.find(value); at != std::string::npos;
           at = text.find(value, at + 1)) {
        if (ends(at + value.size()) && (at == 0 || ends(at - 1))) {
          text.replace(at, value.size(), "*");
        }
      }
    }
    return text;
  }
};
CARREL_AS_BOTH(Strangers);

// The value of one field is the other's, those of the others are one's own.
Values with(Values own, const Values& foreign, const std::string& field) {
  const Kind kind = ids().at(field);
  own[kind] = foreign.at(kind);
  return own;
}

TEST_P(Strangers, WithTheIdsOfAnotherNothingIsLearnedAndNothingChanged) {
  std::filesystem::create_directory(place().work(GetParam()) + "/root");
  std::ofstream(place().work(GetParam()) + "/root/file") << "x";
  place().give(place().work(GetParam()) + "/root", GetParam());
  ASSERT_EQ(carrel({"image", "import", "root", "--name", "of-the-owner:1"}).status, 0);
  World alice = make_world("alice");
  World bob = make_world("bob");
  serve_tenants();
  settle(alice, "alice");
  settle(bob, "bob");
  const std::string ended = made(alice.token, "/v1/sandboxes", {{"disk", "20m"}});
  ASSERT_EQ(ask_as(alice.token, {.method = "DELETE", .path = "/v1/sandboxes/" + ended}).status,
            204);
  Values past = alice.values;
  past[Kind::kSandbox] = ended;
  // Of what each has his own of, alice has one that bob has not.
  for (int i = 0; i < 3; ++i) {
    alice.values[Kind::kCommand] = made(alice.token, alice.box + "/commands",
                                        {{"argv", {"cat"}}, {"terminal", true}, {"stdin", true}});
  }
  ASSERT_NE(alice.values[Kind::kCommand], bob.values[Kind::kCommand]);

  const std::string before = look(alice, ended);
  EXPECT_THAT(before, HasSubstr("alice-secret"));
  int tried = 0;
  for (const Call& call : Document().calls()) {
    std::vector<std::optional<std::string>> choices = {std::nullopt};
    choices.insert(choices.end(), call.possible.begin(), call.possible.end());
    for (const auto& possible : choices) {
      std::vector<std::string> fields = call.needed;
      if (possible.has_value()) {
        fields.push_back(*possible);
      }
      const bool any = std::any_of(fields.begin(), fields.end(), [](const std::string& field) {
        return is_refused_to_strangers(ids().at(field));
      });
      if (any) {
        compare(bob, call, alice.values, of_nobody(), possible, true);
        compare(bob, call, past, of_nobody(), possible, true);
      }
      for (const std::string& field : fields) {
        compare(bob, call, with(bob.values, alice.values, field),
                with(bob.values, of_nobody(), field), possible,
                is_refused_to_strangers(ids().at(field)));
        ++tried;
      }
    }
    ASSERT_EQ(look(alice, ended), before) << call.operation;
  }
  EXPECT_GT(tried, 60);
  EXPECT_EQ(post_as(alice.token, alice.box + "/shell",
                    {{"command", "echo $mine"}, {"session", alice.values[Kind::kSession]}})
                .json()["stdout"],
            "alice-secret\n");
}

// Else what was refused above would say nothing.
TEST_P(Strangers, WithHisOwnIdsEveryRouteDoesWhatItIsFor) {
  World alice = make_world("alice");
  serve_tenants();
  settle(alice, "alice");
  int done = 0;
  for (const Call& call : Document().calls()) {
    if (call.needed.empty()) {
      continue;
    }
    World fresh{.token = alice.token, .box = {}, .values = alice.values};
    // What is stopped needs a workspace on the disk, which a client has of forks only.
    fresh.values[Kind::kSandbox] = call.operation == "stopSandbox"
                                       ? made(alice.token, alice.box + "/forks", json::object())
                                       : made(alice.token, "/v1/sandboxes", {{"disk", "20m"}});
    fill(fresh, "fresh");
    if (call.operation == "deleteWorkspace") {  // while a sandbox has it, it stays
      EXPECT_EQ(ask_as(alice.token, {.method = "DELETE", .path = fresh.box}).status, 204);
    }
    const ApiAnswer answer =
        ask_as(fresh.token, request_of(call, fresh.values, std::nullopt), call.endless);
    EXPECT_EQ(answer.status, call.status) << call.operation << " " << answer.body;
    EXPECT_EQ(ask_as(alice.token, {.method = "DELETE", .path = fresh.box}).status, 204);
    ++done;
  }
  EXPECT_GE(done, 40);
}

// The one that the generated requests begin with, in words.
TEST_P(Strangers, ASnapshotOfAnotherIsOneThatThereIsNot) {
  World alice = make_world("alice");
  World bob = make_world("bob");
  serve_tenants();
  settle(alice, "alice");
  settle(bob, "bob");
  const std::string id = alice.values[Kind::kSnapshot];
  const std::vector<ApiRequest> requests = {
      {.path = bob.box + "/diff?from=" + id},
      {.path = bob.box + "/diff?to=" + id},
      {.path = bob.box + "/diff?from=" + alice.values[Kind::kWorkspace] + "/" + id},
      {.method = "POST", .path = bob.box + "/restore", .body = json{{"snapshot", id}}.dump()},
      {.method = "POST", .path = bob.box + "/forks", .body = json{{"snapshot", id}}.dump()},
      {.method = "POST",
       .path = bob.box + "/forks",
       .body = json{{"snapshot", alice.values[Kind::kWorkspace] + "/" + id}}.dump()}};
  for (const ApiRequest& request : requests) {
    const ApiAnswer answer = ask_as(bob.token, request);
    const bool plain = (request.path + request.body).find("/" + id) == std::string::npos;
    EXPECT_EQ(answer.status, plain ? 404 : 400) << request.path << request.body << answer.body;
    EXPECT_THAT(answer.body, Not(HasSubstr("alice-secret"))) << request.path;
  }
  EXPECT_EQ(get_as(bob.token, bob.box + "/files?path=/workspace/secret").body, "bob-secret\n");
  // One's own are there, and what a fork was made of is.
  const std::string own = bob.values[Kind::kSnapshot];
  EXPECT_EQ(get_as(bob.token, bob.box + "/diff?from=" + own).status, 200);
  const std::string fork = made(bob.token, bob.box + "/forks", {{"snapshot", own}});
  EXPECT_EQ(get_as(bob.token, "/v1/sandboxes/" + fork + "/diff?from=" + own).status, 200);
}

}  // namespace
}  // namespace carrel::test
