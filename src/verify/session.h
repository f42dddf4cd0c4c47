#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "manager/making.h"
#include "policy/spec.h"
#include "sandbox/exec_result.h"
#include "storage/box.h"
#include "storage/home.h"
#include "verify/judge.h"

namespace carrel::verify {

// A long-lived sandbox whose shell is attacked by the commands that run in it. Its destructor
// removes it; its lease ends it where nobody else can.
class Session {
 public:
  static Result<Session> begin(storage::Home& home, const policy::Spec& spec,
                               const manager::Chosen& chosen, std::vector<native::GivenTree> trees);
  Session(Session&& other) noexcept;
  Session& operator=(Session&&) = delete;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Makes the attack of that name.
  Result<Judgement> attack(std::string_view name);

 private:
  Session(storage::Home& home, std::string id) : home_(&home), id_(std::move(id)) {}
  Result<sandbox::ExecResult> run(std::string_view text);
  // Whether the shell still does what it is told, and answers with nothing else.
  Result<std::string> what_is_broken();

  storage::Home* home_;
  std::string id_;
  storage::BoxRecord record_;
};

}  // namespace carrel::verify
