#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/wire.h"

// The stream between the host and a guest is a sequence of frames: a header of twelve bytes
// (payload size, channel, type, zero) and a payload. A channel is a number that the client chose
// for one request; everything about that request carries it.
namespace carrel::protocol {

inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kHeaderSize = 12;

enum class FrameType : std::uint16_t {
  // Host to guest.
  kHello = 1,       // version, sandbox id
  kStart = 2,       // run a command: see message.h
  kStdin = 3,       // bytes for the command's standard input
  kStdinClose = 4,  // the end of them
  kSignal = 5,      // u32 signal number for the command's processes
  kResize = 6,      // u16 rows, u16 columns
  kKill = 7,        // end the command and everything it started
  kFollow = 8,      // u64 command id, u64 and u64 offsets: output and result of a command again
  kList = 9,        // which commands are known
  kExtend = 10,     // u64 milliseconds: the lease's new deadline from now, zero for none
  kShutdown = 11,   // u32 grace milliseconds: end everything
  kDetach = 12,     // the client leaves, the command goes on
  kPlan = 14,       // the first frame of all, from the one who made the guest: see boot.h
  kBoot = 13,       // the second
  kNursery = 15,    // the first frame to a guest that is to make others: see boot.h
  kSpawn = 16,      // to that one: make one
  kAhead = 17,      // before kPlan or kRest: the plan that the guest will most likely get
  kRest = 18,       // in the place of kPlan: what the plan has beyond that one; see boot.h
  kBootAhead =
      19,        // after kAhead: the boot message that the guest will most likely get; see boot.h
  kFreeze = 24,  // everybody stands still until kThaw, or until the client leaves
  kThaw = 25,
  kPause = 28,        // u32 Standstill: nothing runs and no command's time passes, until kResume
  kResume = 29,       // answered like kPause, by kFrozen
  kNetwork = 26,      // the sockets of the sandbox's captive network, for whoever serves them
  kConnect = 27,      // u16 port, u8 LoopbackFamily: a connection to a port inside
  kRelay = 30,        // the same, where none can be passed: after the answer this connection is it
  kDisk = 40,         // how much of its disk is used
  kService = 41,      // a program that runs as long as the sandbox: see service.h
  kServices = 42,     // how those are
  kFileRequest = 32,  // to a file worker: see files.h
  kFileEnd = 36,      // no more of what the request announced
  // Both ways between the host and a file worker.
  kFileEntry = 33,
  kFileData = 34,  // contents of the last entry, or of the file that is written
  kFileHole = 35,  // u64: so many bytes of them are zero
  // Guest to host.
  kWelcome = 64,  // version, sandbox id
  kStarted = 65,  // u64 command id, u32 pid
  kOutput = 66,   // u8 stream, u64 offset, bytes
  kExit = 67,     // the command's end: see message.h
  kRefused = 68,  // u32 Refusal, u32 errno, text
  kCommand = 69,  // one known command: see message.h
  kListEnd = 70,
  kStdinTaken = 73,   // u64: so many bytes of the command's stdin were taken since its start
  kReady = 71,        // the sandbox is locked down and listens: u32 Clocks
  kRoomChecked = 75,  // a furnished room is as the plan says
  kBootFailed = 72,   // u32 errno, text: which step, and of what
  kSpawned = 74,      // from a nursery, on the new guest's stream: u32 errno; without one comes the
                      // new process's descriptor
  kFrozen = 88,       // u32 errno: zero when everybody stands
  kNetworkSockets = 89,  // u32 errno; without one come those of NetworkSocket that there are, in
                         // their order, with a u32 that has a bit for each
  kConnected = 90,       // u32 errno; without one comes a socket that is connected, or about to be;
                         // to kRelay: nothing, and then the bytes of the connection
  kDiskUse = 104,        // u64 bytes that are used, u64 how many there may be
  kServiceRow = 105,     // how one of the services is: see service.h
  kFilesReady = 96,      // from here on the connection is a file worker's
  kFileDone = 97,        // the end of an operation: see files.h
  kFileNote = 98,        // something was left out of it
  kFileMatch = 99,
  kFileChange = 100,
};

// Who makes a sandbox that is paused stand still.
enum class Standstill : std::uint32_t {
  kByGroup = 0,    // whoever asks: it freezes the workload's control group
  kBySignals = 1,  // the guest
};

// No frame is larger. A command's text and environment are far below; output is sent in pieces.
inline constexpr std::size_t kMaxPayload = 4U << 20;
// What the guest sends is smaller still, so that a hostile guest cannot make the host buffer much.
inline constexpr std::size_t kMaxGuestPayload = 128U << 10;

// A client sends at most this much of a command's stdin beyond what kStdinTaken acknowledged.
inline constexpr std::size_t kInputWindow = 256U << 10;

struct FrameHeader {
  std::uint32_t size = 0;
  std::uint32_t channel = 0;
  FrameType type = FrameType::kHello;
};

// Reads a header; false when it is not one (a non-zero reserved field or a size over `limit`).
inline bool parse_header(std::span<const unsigned char, kHeaderSize> data, std::size_t limit,
                         FrameHeader& header) {
  Reader reader(data);
  header.size = reader.u32();
  header.channel = reader.u32();
  header.type = static_cast<FrameType>(reader.u16());
  return reader.u16() == 0 && reader.finished() && header.size <= limit;
}

inline void write_header(const FrameHeader& header, std::span<unsigned char, kHeaderSize> data) {
  Writer writer(data);
  writer.u32(header.size);
  writer.u32(header.channel);
  writer.u16(static_cast<std::uint16_t>(header.type));
  writer.u16(0);
}

}  // namespace carrel::protocol
