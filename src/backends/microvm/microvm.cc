#include "backends/microvm/microvm.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/microvm/boot_files.h"
#include "backends/microvm/hall.h"
#include "backends/microvm/kvm.h"
#include "backends/microvm/snapshots.h"
#include "backends/microvm/vmm.h"
#include "base/files.h"
#include "kernel/program.h"
#include "policy/known_flaws.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20;
// What a kernel and the guest need beside the workload.
constexpr std::uint64_t kKernelMemory = 160 * kMebibyte;
// What the VMM and those beside it need beside the machine.
constexpr std::uint64_t kVmmMemory = 320 * kMebibyte;
constexpr int kStartMs = 10'000;
constexpr std::size_t kLargestFirstFiles = 64 * kMebibyte;

Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

// How long a machine may take to begin: CARREL_VM_BOOT_SECONDS, for very slow or very strict hosts.
std::chrono::milliseconds boot_time() {
  constexpr int kUsual = 60;
  constexpr int kMost = 600;
  const char* const named = std::getenv("CARREL_VM_BOOT_SECONDS");
  const std::string_view text = named == nullptr ? "" : named;
  int seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::chrono::seconds(seconds > 0 && seconds <= kMost ? seconds : kUsual);
}

std::uint32_t processors_for(const policy::Limits& limits) {
  cpu_set_t usable;
  const int here = ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
  return std::clamp<std::uint32_t>((limits.cpu_millis + 999) / 1000, 1,
                                   static_cast<std::uint32_t>(std::max(1, here)));
}

// Who makes a machine, of what, and how quickly.
struct Maker {
  std::unique_ptr<Vmm> vmm;
  BootKernel kernel;
  Acceleration acceleration;
};
Result<Maker> find_maker(const std::string& runtime, const std::string& kernel) {
  Maker maker;
  CARREL_ASSIGN(maker.vmm, find_vmm(runtime));
  CARREL_TRY(maker.vmm->check_host());
  CARREL_ASSIGN(maker.kernel, find_kernel(kernel));
  maker.acceleration = find_acceleration(*maker.vmm, maker.kernel);
  if (maker.acceleration.accelerator == Accelerator::kEmulated &&
      maker.vmm->emulation == Vmm::Emulation::kImpossible) {
    return unsupported(maker.vmm->version + " cannot emulate a machine, and there is no KVM: " +
                           maker.acceleration.why_emulated +
                           (maker.acceleration.said.empty() ? "" : ": " + maker.acceleration.said),
                       "leave out --runtime: QEMU can");
  }
  return maker;
}

// Whatever of the host's files the guest will look for when it builds its room.
std::vector<std::string> shown_by(const protocol::Plan& plan) {
  std::vector<std::string> paths;
  for (const std::string_view part : {plan.shared, plan.alike, plan.own}) {
    protocol::PlanReader steps(part);
    for (protocol::MountStep step; steps.next(step);) {
      const bool of_host =
          step.kind == protocol::StepKind::kBind || step.kind == protocol::StepKind::kOverlay;
      if (of_host && step.source.starts_with("/") && step.source.size() > 1) {
        paths.emplace_back(step.source);
      }
    }
  }
  // What is above comes before what is below it, which it shows.
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

void add_tree(const sandbox::RoomRequest::Tree& tree, HallRequest& hall, MachineParts& parts) {
  using Kind = sandbox::RoomRequest::Tree::Kind;
  for (const std::string& path : tree.hidden) {
    hall.hidden.push_back(std::to_string(hall.trees.size()) + ":" + path);
  }
  hall.sources.push_back(tree.mount >= 0 ? std::string() : tree.path);
  hall.trees.emplace_back(tree.mode == policy::MountMode::kReadWrite ? kWritableTree
                                                                     : kReadOnlyTree);
  parts.trees.push_back(tree.kind == Kind::kFile ? MachineParts::Tree::kFile
                                                 : MachineParts::Tree::kFolder);
}

// What a machine begins with: its own first files, and a snapshot if there is one.
struct Beginning {
  UniqueFd first_files;
  UniqueFd snapshot;
  sandbox::Origin origin{"boot", {}, {}, {}};
};

// The saved machine of that shape; if there is none, one is made for those that come later.
void look_for_snapshot(const std::string& home, const Shape& shape, int kernel_image,
                       Beginning& beginning) {
  auto snapshots = Snapshots::open(home);
  if (!snapshots.ok()) {
    beginning.origin.note = snapshots.error().message;
    return;
  }
  const std::string name = Snapshots::name_of(shape);
  auto found = snapshots->find(name);
  if (found.ok()) {
    beginning.snapshot = std::move(found.value());
    beginning.origin = {"snapshot", {}, home, name};
    return;
  }
  if (found.error().code == Code::kDenied) {
    beginning.origin.note = found.error().message;
  }
  if (snapshots->can_make(name).ok()) {
    (void)begin_saving({home, kernel_image, beginning.first_files.get(), boot_time()}, shape);
  }
}

// Without the content of its first files. No way to save it: there is none.
Shape shape_of(const Maker& maker, MachineTerms terms) {
  Shape shape;
  shape.vmm = maker.vmm->path;
  shape.version = maker.vmm->version;
  shape.kernel = maker.kernel;
  shape.terms = terms;
  shape.arguments = maker.vmm->machine(terms).arguments;
  if (maker.vmm->saving == Vmm::Saving::kPossible) {
    terms.start = MachineStart::kSaves;
    shape.saved_by = maker.vmm->machine(terms);
  }
  shape.group = maker.acceleration.group;
  return shape;
}

Result<Beginning> find_beginning(const sandbox::RoomRequest& request, Shape shape, int kernel_image,
                                 const MachineParts& parts) {
  Beginning beginning;
  if (!request.home.empty() && shape.saved_by.has_value() &&
      uses_snapshots(shape.terms.accelerator)) {
    CARREL_ASSIGN(beginning.first_files,
                  make_first_files(shape.kernel, request.image, every_part()));
    CARREL_ASSIGN(
        shape.first_files,
        read_file_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(beginning.first_files.get()),
                     kLargestFirstFiles));
    look_for_snapshot(request.home, shape, kernel_image, beginning);
  }
  if (!beginning.snapshot.valid()) {
    CARREL_ASSIGN(beginning.first_files, make_first_files(shape.kernel, request.image, parts));
  }
  return beginning;
}

}  // namespace

// The VMM's threads, those that it starts for input and output, and Carrel's two.
std::uint32_t Machines::own_processes() const {
  constexpr std::uint32_t kThreads = 160;
  return kThreads;
}

std::uint64_t Machines::own_memory() const { return kKernelMemory + kVmmMemory; }

std::chrono::milliseconds Machines::patience() const {
  constexpr std::chrono::seconds kRoom{10};  // for the guest to build its room
  return boot_time() + kRoom;
}

Result<std::string> Machines::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Maker maker, find_maker(spec.runtime, spec.engine));
  const bool kvm = maker.acceleration.accelerator == Accelerator::kKvm;
  return maker.vmm->version + (kvm ? " with KVM" : " without KVM, emulated") + ", kernel " +
         maker.kernel.release + (maker.vmm->caveat.empty() ? "" : "; " + maker.vmm->caveat);
}

std::string Machines::warning(const policy::Spec& spec) const {
  const auto maker = find_maker(spec.runtime, spec.engine);
  if (!maker.ok()) {
    return {};
  }
  const Acceleration& found = maker.value().acceleration;
  if (found.accelerator == Accelerator::kEmulated) {
    return "the machine is emulated and many times slower than with KVM: " + found.why_emulated;
  }
  const Vmm& vmm = *maker.value().vmm;
  const std::string flaws = policy::flaw_warning({.reported = vmm.version});
  const std::string caveat = vmm.caveat.empty() ? "" : vmm.version + ": " + vmm.caveat;
  return flaws.empty() || caveat.empty() ? flaws + caveat : caveat + "; " + flaws;
}

Status Machines::check(const policy::Spec& spec) const {
  CARREL_ASSIGN(const std::string builder, describe(spec));
  (void)builder;
  return {};
}

Result<sandbox::RoomStarted> Machines::start(const sandbox::RoomRequest& request) const {
  CARREL_ASSIGN(const Maker maker, find_maker(request.runtime, request.engine));
  MachineTerms terms;
  terms.accelerator = maker.acceleration.accelerator;
  // A kernel's tables grow with its memory.
  terms.memory_bytes =
      request.limits.memory_bytes + request.limits.memory_bytes / 32 + kKernelMemory;
  terms.cpus = processors_for(request.limits);

  HallRequest hall;
  hall.stage = "/tmp";
  VmmStart start = maker.vmm->machine(terms);
  hall.vmm = std::move(start.arguments);
  hall.needed = std::move(start.needed);
  hall.settings = std::move(start.settings);
  hall.shown = shown_by(request.plan);
  hall.folders = {"/dev", "/proc", "/run", "/sys", "/tmp", "/mnt", "/var", "/home", "/.carrel"};
  hall.boot_ms = std::to_string(boot_time().count());
  hall.listens = request.listener >= 0 ? "listens" : "";

  CARREL_ASSIGN(UniqueFd complaints, sandbox::memory_file({}));
  CARREL_ASSIGN(const UniqueFd image, maker.vmm->open_kernel(maker.kernel));
  MachineParts parts;
  if (maker.vmm->supply == Supply::kFiles) {
    hall.files = "files";
    parts.line = MachineParts::Line::kVsock;
  }
  parts.clients =
      request.listener >= 0 ? MachineParts::Clients::kListens : MachineParts::Clients::kNone;
  if (request.network >= 0) {
    hall.network = "network";
    parts.network = request.id;
  }
  std::vector<int> trees;
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    add_tree(tree, hall, parts);
    trees.push_back(tree.mount >= 0 ? tree.mount : tree.source);
  }
  hall.terms = terms_of(parts);
  CARREL_ASSIGN(Beginning beginning,
                find_beginning(request, shape_of(maker, terms), image.get(), parts));
  if (beginning.snapshot.valid()) {
    hall.spare = std::move(hall.vmm);
    terms.start = MachineStart::kRestores;
    hall.vmm = maker.vmm->machine(terms).arguments;
    hall.snapshot = kGoesOn;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd told(ends[0]);
  UniqueFd tell(ends[1]);
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "hall"};
  CARREL_ASSIGN(const UniqueFd asked, sandbox::memory_file(encode_hall(hall)));
  program.descriptors = {asked.get(), tell.get(), request.control, image.get(),
                         beginning.first_files.get()};
  program.descriptors.insert(program.descriptors.end(), trees.begin(), trees.end());
  if (request.listener >= 0) {
    program.descriptors.push_back(request.listener);
  }
  if (request.network >= 0) {
    program.descriptors.push_back(request.network);
  }
  if (beginning.snapshot.valid()) {
    program.descriptors.push_back(beginning.snapshot.get());
  }
  program.errors = complaints.get();
  program.group = request.group;
  program.join = request.join;
  program.id = request.host_id;
  program.further_group = maker.acceleration.group;
  CARREL_ASSIGN(const kernel::Program started, kernel::start_program(program));
  tell.reset();
  sandbox::RoomStarted room;
  sandbox::FirstProcess first = sandbox::await_first_process(told.get(), kStartMs);
  room.guest = first.pid;
  room.guest_process = std::move(first.process);
  const bool begun = room.guest_process.valid();
  if (!begun) {
    ::kill(started.pid, SIGKILL);
  }
  while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!begun) {
    const std::string why = sandbox::read_line(complaints.get());
    return unsupported("Failed to create sandbox: " +
                           (why.empty() ? std::string("its virtual machine did not start") : why),
                       "run 'carrel doctor'");
  }
  room.complaints = std::move(complaints);
  room.origin = std::move(beginning.origin);
  return room;
}

void Machines::settle_origin(int complaints, sandbox::Origin& origin) const {
  constexpr std::size_t kMostWords = 64U << 10;
  const auto said =
      read_file_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(complaints), kMostWords);
  if (origin.snapshot.empty() || !said.ok() ||
      said.value().find(kNotRestored) == std::string::npos) {
    return;
  }
  if (auto snapshots = Snapshots::open(origin.home); snapshots.ok()) {
    snapshots->remove(origin.snapshot);
    snapshots->give_up(origin.snapshot, kNotRestored);
  }
  origin = {"boot", kNotRestored, {}, {}};
}

void Machines::sweep(const std::string& folder, const std::string&) const {
  const std::string home = folder.substr(0, folder.rfind('/'));
  // A folder is not made for that.
  if (Snapshots::exist(home)) {
    if (auto snapshots = Snapshots::open(home); snapshots.ok()) {
      snapshots->sweep();
    }
  }
}

}  // namespace carrel::microvm
