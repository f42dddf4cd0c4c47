// Nothing but the headers that are compiled ahead of the end-to-end programs
// (tests/CMakeLists.txt).
