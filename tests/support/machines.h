#pragma once

#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// The saved machines in the home of this test: the names of whole ones.
std::vector<std::string> saved_machines(As as);
std::string folder_of_saved_machines(As as);

// From here on the programs of this test program use snapshots of machines as they usually do.
void use_saved_machines();
// Puts a saved machine of the usual shape into the home of this test. The first time in a program
// one is made, which takes a boot. Fails the test when that does not work.
void plant_saved_machine(As as);

// Whether a process is about a machine that is made to be saved.
bool is_being_saved(pid_t vmm);
// Waits until nobody saves a machine any more.
void await_savers();

}  // namespace carrel::test
