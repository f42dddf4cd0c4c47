# Warnings, hardening and sanitizers for everything that runs on the host.
# The guest has flags of its own (src/guest/CMakeLists.txt): it is built against musl.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# -O3, which is what CMake chooses, takes a tenth more time to compile than -O2.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

set(landing_pads)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(landing_pads -fcf-protection)
endif()

add_library(carrel_flags INTERFACE)
target_compile_options(carrel_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wcast-align
  -Wformat=2 -Wnon-virtual-dtor -Woverloaded-virtual -Wnull-dereference -Wold-style-cast
  -Wundef -Wvla -Wimplicit-fallthrough -Wextra-semi -Werror
  -fstack-protector-strong -fstack-clash-protection ${landing_pads} -fno-plt
  -ffunction-sections -fdata-sections
  -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64)
# g++ 12 raises false alarms for std::string with these two; clang keeps the second.
target_compile_options(carrel_flags INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond;-Wduplicated-branches;-Wlogical-op;-Wno-restrict;-Wno-null-dereference>)
target_link_options(carrel_flags INTERFACE
  -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--gc-sections)

if(CARREL_SANITIZE)
  target_compile_options(carrel_flags INTERFACE
    -fsanitize=${CARREL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(carrel_flags INTERFACE -fsanitize=${CARREL_SANITIZE})
  target_compile_definitions(carrel_flags INTERFACE CARREL_SANITIZED)
else()
  target_compile_options(carrel_flags INTERFACE
    $<$<CONFIG:Release>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
endif()
if(CARREL_FUZZ)
  target_compile_options(carrel_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# carrel_compile_together(TARGET): compiles the sources of TARGET several at once (a unity build), so
# that the headers they share are read once for each batch. Their names in anonymous namespaces must
# differ for that; the clang preset compiles each file by itself and finds what only a neighbour
# includes.
function(carrel_compile_together target)
  if(CARREL_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # g++ takes every file but the first of a batch for a header.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
