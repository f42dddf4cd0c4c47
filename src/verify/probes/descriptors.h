#pragma once

namespace carrel::probe {

// Looks which descriptors are open, for the probe that reports them; called first in main, before
// anything opens one.
void note_descriptors();

}  // namespace carrel::probe
