#pragma once

#include <array>
#include <span>

#include "cli/options.h"

// The words that commands take after their options, for the table in options.cc.
namespace carrel::cli {

inline constexpr std::array kSandbox = {Operand{"ID", OperandKind::kSandbox}};
inline constexpr std::array kSandboxAndText = {Operand{"ID", OperandKind::kSandbox},
                                               Operand{"COMMAND", OperandKind::kShellText}};
inline constexpr std::array kFile = {Operand{"FILE", OperandKind::kFile}};
inline constexpr std::array kCheckPath = {Operand{"check", OperandKind::kVerb},
                                          Operand{"PATH", OperandKind::kFile}};
inline constexpr std::array kShellName = {Operand{"SHELL", OperandKind::kShellName}};
inline constexpr std::array kCommandName = {Operand{"COMMAND", OperandKind::kCommandName}};
inline constexpr std::array kImageWords = {Operand{"ACTION", OperandKind::kImageAction},
                                           Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::array kWorkspaceWords = {Operand{"ACTION", OperandKind::kWorkspaceAction},
                                               Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::array kFlowWords = {Operand{"ACTION", OperandKind::kFlowAction},
                                          Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::array kWorkspaceName = {Operand{"ID", OperandKind::kSandbox}};
inline constexpr std::array kWorkspaceAndPaths = {Operand{"ID", OperandKind::kSandbox},
                                                  Operand{"PATH", OperandKind::kAnything}};
inline constexpr std::array kWorkspaceAndSnapshot = {Operand{"ID", OperandKind::kSandbox},
                                                     Operand{"SNAPSHOT", OperandKind::kAnything}};
inline constexpr std::array kCopyEnds = {Operand{"SRC", OperandKind::kFile},
                                         Operand{"DST", OperandKind::kFile}};
inline constexpr std::array kFileWords = {
    Operand{"ACTION", OperandKind::kFileAction}, Operand{"ID", OperandKind::kSandbox},
    Operand{"PATH", OperandKind::kAnything}, Operand{"WORD", OperandKind::kAnything},
    Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::array kNetWords = {Operand{"ACTION", OperandKind::kNetAction},
                                         Operand{"ID", OperandKind::kSandbox},
                                         Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::array kSecretWords = {Operand{"ACTION", OperandKind::kSecretAction},
                                            Operand{"NAME", OperandKind::kAnything}};
inline constexpr std::array kSandboxAndPort = {Operand{"ID", OperandKind::kSandbox},
                                               Operand{"PORT", OperandKind::kAnything}};
inline constexpr std::array kAgentWords = {Operand{"run", OperandKind::kVerb},
                                           Operand{"TASK", OperandKind::kAnything}};
inline constexpr std::array kWords = {Operand{"WORD", OperandKind::kAnything}};
inline constexpr std::span<const Operand> kNone{};

}  // namespace carrel::cli
