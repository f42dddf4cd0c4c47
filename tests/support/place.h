#pragma once

#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// Where one test happens: a temporary directory with a copy of the program that everybody may
// execute, a state directory (CARREL_HOME) for root and one for the ordinary user, and an empty
// working directory for each. The destructor ends every process below the test, and removes the
// directory and the control groups of both installations.
//
// The ordinary user is `carrel-test`, made with useradd when it is missing. A test program that is
// not root has only that side: then it is whoever started it.
class Place {
 public:
  Place();
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] const std::string& program() const { return program_; }
  [[nodiscard]] std::string home(As as) const { return directory(as) + "/home"; }
  // An empty directory of that user's, 0755; the working directory of what is started.
  [[nodiscard]] std::string work(As as) const { return directory(as) + "/work"; }
  // The TMPDIR of what is started.
  [[nodiscard]] std::string temporary(As as) const { return directory(as) + "/tmp"; }
  // The eight hex digits of the installation; empty before the first command.
  [[nodiscard]] std::string label(As as) const;

  // The program as that user, ready to start.
  [[nodiscard]] Launch launch(As as, std::vector<std::string> arguments,
                              const Options& options = {}) const;
  // Gives the file or directory to that user.
  void give(const std::string& path, As as) const;
  [[nodiscard]] static uid_t user_id();
  // Whether the ordinary user has a systemd of his own, which gives control groups on demand.
  [[nodiscard]] static bool user_has_service_manager();

 private:
  [[nodiscard]] std::string directory(As as) const { return root_ + "/" + name_of(as); }

  std::string root_;
  std::string program_;
};

// The place of the test that is running; the fixture makes one for each test.
Place& place();
void renew_place();
void leave_place();

// Runs the program to its end, in the place of this test.
Run carrel(As as, std::vector<std::string> arguments, const Options& options = {});

}  // namespace carrel::test
