#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

// A kernel for a VMM that does not unpack one: the program that is in a kernel's image.
namespace carrel::microvm {

// Whether the file is such a program already.
bool is_kernel_program(std::string_view file);

// The program in an image of x86's boot protocol, as its header says where, which is compressed by
// gzip, zstd or LZ4. kUnsupported: it is not such an image, is compressed otherwise, is damaged, or
// holds no program of x86-64.
Result<std::string> unpack_kernel(std::string_view image);

}  // namespace carrel::microvm
