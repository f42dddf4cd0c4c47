# Links a program statically with musl instead of glibc: it starts in half the time, because glibc
# begins by asking the processor about its caches, which a virtual machine answers slowly. See
# docs/decisions/0012-musl.md.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpmachine
  OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "^([^-]+)-.*" "\\1" processor "${machine}")
set(musl_lib /usr/lib/${processor}-linux-musl)
if(CMAKE_CROSSCOMPILING)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=include
    OUTPUT_VARIABLE compiler_headers OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(MUSL_CC ${CMAKE_C_COMPILER} -nostdinc -isystem /usr/include/${processor}-linux-musl
    -isystem ${compiler_headers})
else()
  find_program(MUSL_CC NAMES musl-gcc REQUIRED)
endif()

function(carrel_link_with_musl target)
  set(shims)
  foreach(part IN ITEMS musl musl_bytes musl_names)
    set(object ${PROJECT_BINARY_DIR}/${part}_shims.o)
    set(source ${PROJECT_SOURCE_DIR}/src/base/${part}.c)
    add_custom_command(OUTPUT ${object}
      COMMAND ${MUSL_CC} -std=c11 -O2 -Wall -Wextra -Werror -ffunction-sections
              -c ${source} -o ${object}
      DEPENDS ${source} COMMENT "Building what musl lacks: ${part}" VERBATIM)
    list(APPEND shims ${object})
  endforeach()
  set_source_files_properties(${shims} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  # Test programs that are linked in the same way take all of them, too.
  set_property(GLOBAL PROPERTY carrel_musl_shims ${shims})
  target_sources(${target} PRIVATE ${shims} ${PROJECT_SOURCE_DIR}/src/base/kept_blocks.cc)
  set(specs ${PROJECT_BINARY_DIR}/musl.specs)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/musl.specs.in ${specs} @ONLY)
  target_link_options(${target} PRIVATE -static -specs=${specs} -Wl,--eh-frame-hdr
    -Wl,--wrap=OPENSSL_cpuid_setup)
  # Who takes what from the library: tests/libc/boundary_test.py reads it.
  target_link_options(${target} PRIVATE -Wl,--cref -Wl,-Map=${PROJECT_BINARY_DIR}/${target}.map)
endfunction()
