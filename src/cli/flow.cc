#include "cli/flow.h"

#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/table.h"
#include "storage/state.h"

namespace carrel::cli {
namespace {

using Json = nlohmann::ordered_json;

int list_waits(const Context& context, journal::Journal& journal) {
  auto waits = journal.open_waits();
  if (!waits.ok()) {
    return fail(context, waits.error());
  }
  std::vector<std::vector<std::string>> lines = {{"EXECUTION", "WAIT", "ASKED", "QUESTION"}};
  Json list = Json::array();
  for (const journal::WaitRow& wait : waits.value()) {
    lines.push_back({wait.execution, wait.name,
                     age(storage::wall_clock_ms() - wait.asked_ms) + " ago", wait.question});
    list.push_back({{"execution", wait.execution},
                    {"name", wait.name},
                    {"question", wait.question},
                    {"schema", wait.schema},
                    {"asked_ms", wait.asked_ms}});
  }
  print(context.json()
            ? Json{{"waits", list}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
            : table(lines));
  return 0;
}

int end_wait(const Context& context, const Words& words, const Status& done) {
  if (!done.ok()) {
    return fail(context, done.error());
  }
  print(context.json() ? "{\"wait\":" + json_string(words[1]) + "}\n" : words[1] + "\n");
  return 0;
}

// What the journal had to leave out, on stderr.
void show_warnings(journal::Journal& journal) {
  for (const std::string& warning : journal.take_warnings()) {
    print_error("carrel: " + printable(warning) + "\n");
  }
}

int look(const Context& context, const std::string& action, const Words& words) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  auto opened = journal::Journal::open(home.value());
  if (!opened.ok()) {
    return fail(context, opened.error());
  }
  journal::Journal& journal = opened.value();
  int status = 0;
  if (action == "ls") {
    status = list_flows(context, journal);
  } else if (action == "turns") {
    status = list_newest_turns(context, journal);
  } else if (action == "show") {
    status = show_flow(context, journal, words[0]);
  } else if (action == "explain") {
    status = explain_turn(context, journal, words);
  } else if (action == "waits") {
    status = list_waits(context, journal);
  } else if (action == "answer") {
    status = end_wait(context, words, journal.answer(words[0], words[1], words[2]));
  } else {
    status = end_wait(context, words, journal.abort_wait(words[0], words[1]));
  }
  show_warnings(journal);
  return status;
}

struct Action {
  std::string_view name;
  std::size_t least;
  std::size_t most;
};

constexpr std::array kActions = {
    Action{"ls", 0, 0},       Action{"turns", 0, 0},  Action{"show", 1, 1},
    Action{"explain", 2, 2},  Action{"diff", 2, 3},   Action{"fork", 2, 2},
    Action{"rollback", 2, 2}, Action{"replay", 1, 1}, Action{"waits", 0, 0},
    Action{"answer", 3, 3},   Action{"abort", 2, 2},  Action{"rm", 1, SIZE_MAX}};

}  // namespace

int flow_command(const Context& context) {
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const std::string action(operands.front());
  const Words words(operands.begin() + 1, operands.end());
  for (const Action& known : kActions) {
    if (known.name == action && (words.size() < known.least || words.size() > known.most)) {
      return fail(context, Error{Code::kInvalid, 0, "flow " + action + " takes other words",
                                 "see 'carrel help flow'"});
    }
  }
  if (action == "diff") {
    return diff_turn(context, words);
  }
  if (action == "fork") {
    return fork_turn(context, words);
  }
  if (action == "rollback") {
    return roll_back(context, words);
  }
  if (action == "replay") {
    return replay_flow(context, words.front());
  }
  if (action == "rm") {
    return remove_flows(context, words);
  }
  return look(context, action, words);
}

}  // namespace carrel::cli
