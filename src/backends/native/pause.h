#pragma once

#include "base/result.h"
#include "storage/box.h"
#include "storage/box_use.h"
#include "storage/home.h"

namespace carrel::native {

// Makes everything in a long-lived sandbox stand still, with its memory and its connections, until
// resume_sandbox(): by its control group of version 2 or, where there is none, by its guest. It
// stays so whoever ends. The time of its commands does not pass meanwhile; its lease's does.
// One that is paused is paused for this reason from now on.
Status pause_sandbox(const storage::Home& home, const storage::BoxRecord& record,
                     const storage::Pause& pause);

// Lets it go on. One that is not paused is fine.
Status resume_sandbox(const storage::Home& home, const storage::BoxRecord& record);

}  // namespace carrel::native
