#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// The keepers of this test's installations.
std::vector<pid_t> keepers();
void kill_keepers();

// First processes of sandboxes below this test.
std::vector<pid_t> first_processes();

// The long-lived sandboxes of that user with a record and a live first process, read from
// CARREL_HOME/run and not from the program.
std::set<std::string> live_boxes(As as);

// What belongs to no live sandbox of that user, and what a live one lacks, one line each: marks,
// boxes, claimed ids, temporary files, control groups, processes. Asks no command, so nothing is
// swept by looking.
std::string inconsistencies(As as);
// Empty as soon as there are none; after three seconds the list.
std::string lasting_inconsistencies(As as);

}  // namespace carrel::test
