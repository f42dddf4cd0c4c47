#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "guest/state.h"

// What a shell and the guest have between them: a private directory with the shell's text and the
// pipes of its command, in a tmpfs that no path leads to, and the line of bash that reads it.
namespace carrel::guest {

// A random text of 16 characters and a zero.
void make_nonce(char* nonce);

// Memory for a command's text. One small block is kept from command to command.
char* take_text(Guest& guest, std::size_t size);
void free_text(Guest& guest, Command& command);

// What bash runs.
std::string_view shell_driver();

// Makes the directory and the text file of a fresh shell. 0 or a negative errno.
int open_files(Guest& guest, Shell& shell);
// Closes them, and the outputs that wait for another command.
void close_files(Guest& guest, Shell& shell);

// Opens the command's outputs and its input for the shell to find, and writes its text. False with
// errno when it cannot.
bool lay_out(Guest& guest, Shell& shell, std::uint32_t index);

// Whether the shell has opened the command's input by now; then it is served.
bool open_input(Guest& guest, std::uint32_t index);

// The command ended: a long text does not stay in memory.
void keep_little_text(Shell& shell);

}  // namespace carrel::guest
