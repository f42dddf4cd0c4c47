// A machine without an operating system: what runs in the place of a kernel where a VMM's devices
// are to be tried and no kernel boots. It finds the block device and the device for sockets at the
// places where Firecracker has them, uses the drive, connects to its host as the machine's first
// process does, and reports over that line as a guest does that could not begin. Nothing of a
// processor is used but integers, memory and ports; there is no library.
#include <stddef.h>
#include <stdint.h>

namespace {

// By which it is taken for a kernel.
[[gnu::used]] constexpr char kName[] = "Linux version 0.0-bare (none)";

using Registers = volatile uint32_t*;

void write_port(uint16_t port, uint8_t value) {
  asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

// The reset by the keyboard's controller ends the machine.
[[noreturn]] void end() {
  for (;;) {
    write_port(0x64, 0xfe);
  }
}

void copy(void* to, const void* from, size_t size) {
  auto* out = static_cast<volatile char*>(to);
  const auto* in = static_cast<const char*>(from);
  while (size-- > 0) {
    *out++ = *in++;
  }
}

uint64_t address_of(const volatile void* what) { return reinterpret_cast<uint64_t>(what); }

// All of the first 4 GiB where they are, in pages of 2 MiB.
alignas(4096) uint64_t top_table[512];
alignas(4096) uint64_t middle_table[512];
alignas(4096) uint64_t low_tables[4][512];

void map_memory() {
  constexpr uint64_t kTable = 3;
  constexpr uint64_t kPage = 0x83;
  for (uint64_t i = 0; i < 4; ++i) {
    for (uint64_t j = 0; j < 512; ++j) {
      low_tables[i][j] = (i << 30 | j << 21) | kPage;
    }
    middle_table[i] = address_of(low_tables[i]) | kTable;
  }
  top_table[0] = address_of(middle_table) | kTable;
  asm volatile("mov %0, %%cr3" : : "r"(top_table) : "memory");
}

// A queue of a device, as the document of virtio has it.
constexpr uint16_t kQueueSize = 8;
struct Descriptor {
  uint64_t address = 0;
  uint32_t size = 0;
  uint16_t flags = 0;
  uint16_t next = 0;
};
constexpr uint16_t kMore = 1;
constexpr uint16_t kDeviceWrites = 2;
struct Queue {
  alignas(16) Descriptor descriptors[kQueueSize];
  alignas(4) volatile uint16_t given_flags;
  volatile uint16_t given_index;
  volatile uint16_t given[kQueueSize];
  alignas(4) volatile uint16_t used_flags;
  volatile uint16_t used_index;
  volatile uint32_t used[kQueueSize][2];
  uint16_t seen;
};

// The device of that kind among those that there can be.
Registers find_device(uint32_t kind) {
  constexpr uint64_t kFirst = 0xc0001000;
  constexpr uint32_t kMagic = 0x74726976;
  for (uint64_t at = kFirst; at < kFirst + 8 * 4096; at += 4096) {
    auto device = reinterpret_cast<Registers>(at);
    if (device[0] == kMagic && device[1] == 2 && device[2] == kind) {
      return device;
    }
  }
  end();
}

void begin_device(Registers device, Queue* queues, uint32_t count) {
  constexpr size_t kStatus = 0x70 / 4;
  device[kStatus] = 0;
  device[kStatus] = 1;
  device[kStatus] = 3;
  device[0x24 / 4] = 1;  // the one feature that has to be taken: version 1
  device[0x20 / 4] = 1;
  device[0x24 / 4] = 0;
  device[0x20 / 4] = 0;
  device[kStatus] = 11;
  for (uint32_t i = 0; i < count; ++i) {
    device[0x30 / 4] = i;
    device[0x38 / 4] = kQueueSize;
    device[0x80 / 4] = static_cast<uint32_t>(address_of(queues[i].descriptors));
    device[0x84 / 4] = 0;
    device[0x90 / 4] = static_cast<uint32_t>(address_of(&queues[i].given_flags));
    device[0x94 / 4] = 0;
    device[0xa0 / 4] = static_cast<uint32_t>(address_of(&queues[i].used_flags));
    device[0xa4 / 4] = 0;
    device[0x44 / 4] = 1;
  }
  device[kStatus] = 15;
}

void give(Registers device, uint32_t number, Queue& queue, uint16_t first) {
  const uint16_t index = queue.given_index;
  queue.given[index % kQueueSize] = first;
  asm volatile("" : : : "memory");
  queue.given_index = static_cast<uint16_t>(index + 1);
  device[0x50 / 4] = number;
}

// Which of its descriptors the device is done with.
uint32_t await_used(Queue& queue) {
  while (queue.used_index == queue.seen) {
    asm volatile("pause" : : : "memory");
  }
  return queue.used[queue.seen++ % kQueueSize][0];
}

Queue block_queue;
alignas(4096) uint8_t first_block[4096];

// Its status: 0 is success.
uint8_t ask_drive(Registers device, uint32_t kind) {
  static struct {
    uint32_t kind;
    uint32_t zero;
    uint64_t sector;
  } request;
  static volatile uint8_t status;
  status = 0xff;
  request.kind = kind;
  const bool reads = kind == 0;
  Descriptor* const all = block_queue.descriptors;
  all[0] = {address_of(&request), sizeof request, kMore, 1};
  all[1] = {address_of(first_block), sizeof first_block,
            static_cast<uint16_t>(kMore | (reads ? kDeviceWrites : 0)), 2};
  all[2] = {address_of(&status), 1, kDeviceWrites, 0};
  give(device, 0, block_queue, 0);
  await_used(block_queue);
  return status;
}

struct [[gnu::packed]] Header {
  uint64_t from_cid;
  uint64_t to_cid;
  uint32_t from_port;
  uint32_t to_port;
  uint32_t size;
  uint16_t type;
  uint16_t operation;
  uint32_t flags;
  uint32_t room;
  uint32_t taken;
};
struct Packet {
  Header header;
  uint8_t data[4096];
};
constexpr uint16_t kRequest = 1;
constexpr uint16_t kResponse = 2;
constexpr uint16_t kReset = 3;
constexpr uint16_t kData = 5;
constexpr uint32_t kHostPort = 1024;
constexpr uint32_t kOwnPort = 5000;

Queue socket_queues[3];
Packet received[kQueueSize];
Registers sockets;

void send(uint16_t operation, uint32_t from, uint32_t to, const void* data, uint32_t size) {
  static Packet packet;
  packet.header = {3, 2, from, to, size, 1, operation, 0, 4096, 0};
  copy(packet.data, data, size);
  socket_queues[1].descriptors[0] = {address_of(&packet),
                                     static_cast<uint32_t>(sizeof packet.header) + size, 0, 0};
  give(sockets, 1, socket_queues[1], 0);
  await_used(socket_queues[1]);
}

// The next that comes to that port of this machine: what it is.
uint16_t receive(uint32_t port) {
  for (;;) {
    const Header& header = received[await_used(socket_queues[0])].header;
    if (header.to_port == port) {
      return header.operation;
    }
  }
}

uint16_t connect(uint32_t from, uint32_t to) {
  send(kRequest, from, to, "", 0);
  return receive(from);
}

void await_data() {
  for (uint16_t what = 0; what != kData;) {
    what = receive(kOwnPort);
    if (what == kReset) {
      end();
    }
  }
}

// Before the trunk: the host asks whether somebody waits, and wakes him, each time in one piece.
void be_woken() {
  static const char* const kAnswers[] = {"waiting\n", "awoken!\n"};
  for (const char* const answer : kAnswers) {
    await_data();
    send(kData, kOwnPort, kHostPort, answer, 8);
  }
}

// A frame of the trunk.
void say(uint8_t kind, const uint8_t* payload, uint8_t size) {
  uint8_t bytes[264] = {kind};
  bytes[4] = size;
  copy(bytes + 8, payload, size);
  send(kData, kOwnPort, kHostPort, bytes, 8U + size);
}

// What a guest says that could not begin.
void report(const char* text) {
  uint8_t frame[255] = {};
  uint8_t size = 0;
  while (text[size] != '\0') {
    ++size;
  }
  frame[0] = static_cast<uint8_t>(8 + size);
  frame[8] = 72;   // kBootFailed: errno, size, text
  frame[12] = 71;  // EPROTO
  frame[16] = size;
  copy(frame + 20, text, size);
  constexpr uint8_t kChannelData = 3;
  say(kChannelData, frame, static_cast<uint8_t>(20 + size));
}

const char* try_drive() {
  constexpr uint32_t kErofs = 0xe0f5e1e2;
  uint32_t magic = 0;
  const Registers device = find_device(2);
  begin_device(device, &block_queue, 1);
  if (ask_drive(device, 0) != 0) {
    return "read the drive";
  }
  copy(&magic, first_block + 1024, sizeof magic);
  if (magic != kErofs) {
    return "find an EROFS";
  }
  return ask_drive(device, 1) != 0 ? nullptr : "keep the drive from being written";
}

}  // namespace

extern "C" [[noreturn]] void run() {
  map_memory();
  const char* wrong = try_drive();
  sockets = find_device(19);
  begin_device(sockets, socket_queues, 3);
  for (uint16_t i = 0; i < kQueueSize; ++i) {
    socket_queues[0].descriptors[i] = {address_of(&received[i]), sizeof received[i], kDeviceWrites,
                                       0};
    give(sockets, 0, socket_queues[0], i);
  }
  if (wrong == nullptr && connect(kOwnPort + 1, kHostPort + 1) != kReset) {
    wrong = "be refused at another port";
  }
  if (connect(kOwnPort, kHostPort) != kResponse) {
    end();
  }
  be_woken();
  constexpr uint8_t kHello = 1;
  say(kHello, nullptr, 0);
  await_data();
  // Whoever speaks has taken the line.
  if (wrong == nullptr && connect(kOwnPort + 2, kHostPort) != kReset) {
    wrong = "be refused a second line";
  }
  report(wrong != nullptr ? wrong : "run anything: a bare machine has a drive and a line");
  while (receive(kOwnPort) != kReset) {
  }
  end();
}

// The processor has 64 bits and no interrupts here; the VMM's own stack is small.
extern "C" {
alignas(16) uint8_t bare_stack[16384];
}
asm(".globl _start\n"
    "_start:\n"
    "  lea bare_stack+16384(%rip), %rsp\n"
    "  call run\n");
