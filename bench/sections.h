#pragma once

#include "bench/interleave.h"
#include "bench/report.h"
#include "bench/setup.h"

namespace carrel::bench {

// How long a run takes: kQuick is for looking whether everything works, kFull for numbers.
enum class Effort { kQuick, kFull };

// A part of the benchmark each. They add their rows and what they had to leave out to the report.

// A sandbox for one command that does nothing, made and removed; and the start of the program.
void measure_one_shots(const Setup& setup, Effort effort, Report& report);
// A builtin in a shell that is already there, and a new process in a sandbox that is already there.
void measure_commands(const Setup& setup, Effort effort, Report& report);
// Sandboxes of the docker backend: a command in the shell of one, and a new one.
void measure_containers(const Setup& setup, Effort effort, Report& report);
// Sandboxes made and removed per second by eight workers.
void measure_rates(const Setup& setup, Effort effort, Report& report);
// What one more idle sandbox costs in memory, user and kernel.
void measure_memory(const Setup& setup, Effort effort, Report& report);
// A large file and many small ones, in and out.
void measure_files(const Setup& setup, Effort effort, Report& report);
// The program's own instructions, which do not depend on what else the machine does.
void measure_instructions(const Setup& setup, Effort effort, Report& report);

// A sandbox and its first command through the daemon, and commands through its API.
void measure_daemon(const Setup& setup, Effort effort, Report& report);

// What it costs to reach a server from a sandbox, and to have a network at all.
void measure_egress(const Setup& setup, Effort effort, Report& report);

// The newest turns of a small and of a large journal.
void measure_flows(const Setup& setup, Effort effort, Report& report);

// Snapshot, checkpoint, restore and fork of a large workspace, on the disk as it is and on btrfs.
void measure_workspaces(const Setup& setup, Effort effort, Report& report);

}  // namespace carrel::bench
