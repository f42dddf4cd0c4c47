#include "kernel/image_mount.h"

#include <gtest/gtest.h>

TEST(X, Y) {}
