// How AddressSanitizer works in the unit tests of what clones children into the memory of its
// process (CLONE_VM) and goes on meanwhile.
//
// Such a child has a stack of its own and the thread-local storage of its parent, where the
// sanitizer keeps the frames with which it finds uses after a return: the two would be given the
// same frame now and then, and what one of them does is reported to the other.
extern "C" const char* __asan_default_options();  // NOLINT
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
