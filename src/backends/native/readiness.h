#pragma once

#include "storage/home.h"

// One-shots that come one after the other are worth a keeper with a nursery (decision 13). The
// second within a few seconds starts one; it goes when none has come for as long. A single one
// leaves no process behind.
namespace carrel::native {

enum class Nurseries { kThere, kMissed };

// A one-shot of the kind that a nursery can serve is over.
void note_one_shot(const storage::Home& home, Nurseries nursery);

// Whether one was run within the last seconds; `run` is the run-time directory.
bool one_shots_come(int run);

}  // namespace carrel::native
