#pragma once

#include "bench/report.h"
#include "bench/setup.h"

namespace carrel::bench {

// Which part of all processors' time is spent, from 0 to 1, while this process sleeps for half a
// second: what the neighbours use.
double others_load();

// Adds to the report on which machine this is, with which versions of the peers, and how busy it
// is with other things; warns when that is enough to make the numbers doubtful.
void note_machine(const Setup& setup, Report& report);
void note_load(const char* when, Report& report);

}  // namespace carrel::bench
