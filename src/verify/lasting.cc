#include "verify/lasting.h"

#include <string>

#include "verify/host_state.h"

namespace carrel::verify {

Result<Judgement> leave_daemons(const Attack& attack, Rooms& rooms, const Canaries& canaries) {
  const std::string mark = canaries.mark();
  std::size_t seen = 0;
  Rooms::Visit visit{.probe = attack.probe,
                     .arguments = {mark, "leave"},
                     .limits = rooms.usual_limits(),
                     .on_output = [&](const std::string&) {
                       seen = count_processes(mark);
                       return false;
                     }};
  CARREL_ASSIGN(const sandbox::ExecResult left, rooms.visit(visit));
  const std::size_t after = count_processes(mark);
  if (after > 0) {
    return Judgement{Verdict::kHole,
                     std::to_string(after) + " processes live on after their sandbox has ended"};
  }
  visit.arguments = {mark, "look"};
  visit.on_output = {};
  CARREL_ASSIGN(const sandbox::ExecResult found, rooms.visit(visit));
  Judgement judgement = judge(attack, rooms.spec(), found);
  if (judgement.verdict == Verdict::kHeld && seen == 0) {
    // An attempt that nobody could have seen to succeed proves nothing.
    const bool left_some = left.standard_output.starts_with("left\n");
    return Judgement{left_some ? Verdict::kNotApplicable : Verdict::kUnclear,
                     left_some ? "this host does not see the processes of the sandbox"
                               : "the probe left nothing behind"};
  }
  return judgement;
}

Result<Judgement> look_as_newcomer(const Attack& attack, Rooms& rooms) {
  Rooms::Visit visit{.probe = attack.probe, .arguments = {"leave"}, .limits = rooms.usual_limits()};
  CARREL_ASSIGN(const sandbox::ExecResult left, rooms.visit(visit));
  if (!parse_answer(left.standard_output, attack.probe).has_value()) {
    return Judgement{Verdict::kUnclear, "the probe left no marks"};
  }
  visit.arguments.clear();
  CARREL_ASSIGN(const sandbox::ExecResult found, rooms.visit(visit));
  return judge(attack, rooms.spec(), found);
}

Result<Judgement> look_as_neighbour(const Attack& attack, Rooms& rooms) {
  Result<Judgement> judgement = Judgement{Verdict::kUnclear, "the other sandbox left no marks"};
  const Rooms::Visit looking{.probe = attack.probe, .limits = rooms.usual_limits()};
  const auto look = [&](const std::string& said) {
    if (said.find('\n') == std::string::npos) {
      return false;
    }
    auto found = rooms.visit(looking);
    judgement = found.ok() ? Result<Judgement>(judge(attack, rooms.spec(), found.value()))
                           : Result<Judgement>(found.error());
    return true;
  };
  CARREL_TRY(rooms.visit({.probe = attack.probe,
                          .arguments = {"leave", "hold"},
                          .limits = rooms.usual_limits(),
                          .on_output = look}));
  return judgement;
}

}  // namespace carrel::verify
