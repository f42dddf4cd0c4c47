// What our code, the C++ library, SQLite and OpenSSL use of glibc, and musl does not have under
// that name. The program is compiled against glibc's headers and linked with musl: see
// docs/decisions/0012-musl.md. A function that is missing here is an error of the linker.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Never true: a program that says so must tell when it becomes false.
char __libc_single_threaded = 0;

// The static start of musl leaves the segment PT_GNU_RELRO (tables of virtual functions, the global
// offset table, tables of functions) writable. It is made read-only here, before the constructors
// of C++. `protected` counts the segments that were.
static int protect_tables(struct dl_phdr_info* object, size_t size, void* protected) {
  (void)size;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_GNU_RELRO) {
      const uintptr_t begin = (object->dlpi_addr + segment->p_vaddr) & -page;
      const uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz) & -page;
      *(int*)protected += end > begin && mprotect((void*)begin, end - begin, PROT_READ) == 0;
    }
  }
  return 1;
}

// CRITICAL: a program whose tables stay writable does not run.
__attribute__((constructor(101))) static void protect_tables_first(void) {
  static const char kMessage[] = "carrel: cannot make its own tables read-only\n";
  int protected = 0;
  dl_iterate_phdr(protect_tables, &protected);
  if (protected != 1) {
    const ssize_t ignored = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    (void)ignored;
    _exit(125);
  }
}

// The checked forms of -D_FORTIFY_SOURCE.
void* __memcpy_chk(void* to, const void* from, size_t size, size_t room) {
  if (size > room) {
    __builtin_trap();
  }
  return memcpy(to, from, size);
}

void* __memset_chk(void* to, int byte, size_t size, size_t room) {
  if (size > room) {
    __builtin_trap();
  }
  return memset(to, byte, size);
}

int __snprintf_chk(char* to, size_t size, int flag, size_t room, const char* format, ...) {
  (void)flag;
  if (size > room) {
    __builtin_trap();
  }
  va_list arguments;
  va_start(arguments, format);
  int result = vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return result;
}

// A room that the compiler does not know is the largest number, which musl's vsnprintf() refuses.
int __sprintf_chk(char* to, int flag, size_t room, const char* format, ...) {
  (void)flag;
  va_list arguments;
  va_start(arguments, format);
  int result = vsnprintf(to, room > INT_MAX ? INT_MAX : room, format, arguments);
  va_end(arguments);
  if (result >= 0 && (size_t)result >= room) {
    __builtin_trap();
  }
  return result;
}

int __vfprintf_chk(FILE* file, int flag, const char* format, va_list arguments) {
  (void)flag;
  return vfprintf(file, format, arguments);
}

int __fprintf_chk(FILE* file, int flag, const char* format, ...) {
  (void)flag;
  va_list arguments;
  va_start(arguments, format);
  int result = vfprintf(file, format, arguments);
  va_end(arguments);
  return result;
}

// The word of an fd_set that a descriptor is in.
long __fdelt_chk(long descriptor) {
  if (descriptor < 0 || descriptor >= FD_SETSIZE) {
    __builtin_trap();
  }
  return descriptor / (long)(8 * sizeof(long));
}

int __poll_chk(struct pollfd* watched, nfds_t count, int timeout, size_t room) {
  if (room / sizeof *watched < count) {
    __builtin_trap();
  }
  return poll(watched, count, timeout);
}

char* __realpath_chk(const char* path, char* to, size_t room) {
  if (room < PATH_MAX) {
    __builtin_trap();
  }
  return realpath(path, to);
}

// openat() without a mode, where one would be needed for O_CREAT.
int __openat64_2(int directory, const char* path, int flags) {
  if ((flags & (O_CREAT | O_TMPFILE)) == O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
    __builtin_trap();
  }
  return openat(directory, path, flags);
}

int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl(fd, command, argument);
}

uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    __builtin_trap();
  }
  return value;
}

const char* sigabbrev_np(int signal) {
  static const char* const kNames[] = {
      0,      "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV", "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU", "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS"};
  return signal > 0 && (size_t)signal < sizeof kNames / sizeof kNames[0] ? kNames[signal] : 0;
}

// The mount interface; the numbers are the same on every architecture.
int open_tree(int directory, const char* path, unsigned flags) {
  return (int)syscall(428, directory, path, flags);
}
int move_mount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  return (int)syscall(429, from, from_path, to, to_path, flags);
}
int fsopen(const char* type, unsigned flags) { return (int)syscall(430, type, flags); }
int fsconfig(int context, unsigned command, const char* key, const void* value, int extra) {
  return (int)syscall(431, context, command, key, value, extra);
}
int fsmount(int context, unsigned flags, unsigned attributes) {
  return (int)syscall(432, context, flags, attributes);
}
int mount_setattr(int directory, const char* path, unsigned flags, void* attributes, size_t size) {
  return (int)syscall(442, directory, path, flags, attributes, size);
}

// OpenSSL has jobs that switch stacks, which nobody starts here: it is told that it cannot.
int getcontext(void* context) {
  (void)context;
  errno = ENOSYS;
  return -1;
}
int setcontext(const void* context) {
  (void)context;
  errno = ENOSYS;
  return -1;
}
void makecontext(void* context, void (*function)(void), int count, ...) {
  (void)context;
  (void)function;
  (void)count;
  __builtin_trap();
}

// OpenSSL asks the processor what it can do before main(), in every program that it is linked to,
// and a virtual machine answers slowly. The linker sends that call here; whoever uses OpenSSL makes
// the real one first. OpenSSL's own guard lets a second thread pass before the first has its
// answer.
void __wrap_OPENSSL_cpuid_setup(void) {}
void __real_OPENSSL_cpuid_setup(void);
void carrel_prepare_openssl(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, __real_OPENSSL_cpuid_setup);
}

// The C++ library looks into a locale for the tables of characters. There is one, "C": for musl it
// begins with null pointers, which glibc's has in the same place.
struct glibc_locale {
  void* categories[13];
  const unsigned short* ctype_b;
  const int* ctype_tolower;
  const int* ctype_toupper;
  const char* names[13];
};

const unsigned short** __ctype_b_loc(void);
const int32_t** __ctype_tolower_loc(void);
const int32_t** __ctype_toupper_loc(void);

void* __newlocale(int mask, const char* name, void* base) {
  (void)mask;
  (void)base;
  static struct glibc_locale c_locale;
  if (strcmp(name, "C") != 0 && strcmp(name, "POSIX") != 0) {
    return 0;
  }
  c_locale.ctype_b = *__ctype_b_loc();
  c_locale.ctype_tolower = *__ctype_tolower_loc();
  c_locale.ctype_toupper = *__ctype_toupper_loc();
  return &c_locale;
}
void* __duplocale(void* locale) { return locale; }
void __freelocale(void* locale) { (void)locale; }

// By this an exception finds the tables that lead it to its handler. There is one object to look
// in: this program.
struct dl_find_object {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  void* link_map;
  void* eh_frame;
  unsigned long long reserved[7];
};

extern const char __executable_start[];
extern const char _end[];

static int note_tables(struct dl_phdr_info* object, size_t size, void* tables) {
  (void)size;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) {
      *(void**)tables = (void*)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    }
  }
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
  void* tables = 0;
  dl_iterate_phdr(note_tables, &tables);
  if (tables == 0 || (const char*)address < __executable_start || (const char*)address >= _end) {
    return -1;
  }
  memset(result, 0, sizeof *result);
  result->map_start = (void*)(uintptr_t)__executable_start;
  result->map_end = (void*)(uintptr_t)_end;
  result->eh_frame = tables;
  return 0;
}

// A deadline of one clock as one of the wall clock, which is the one that musl waits by. Whoever
// waits asks his own clock afterwards; a wall clock that is set meanwhile makes him wait longer.
static struct timespec as_wall_time(clockid_t clock, const struct timespec* deadline) {
  struct timespec here;
  struct timespec wall;
  clock_gettime(clock, &here);
  clock_gettime(CLOCK_REALTIME, &wall);
  long long left =
      (deadline->tv_sec - here.tv_sec) * 1000000000LL + deadline->tv_nsec - here.tv_nsec;
  if (left < 0) {
    left = 0;
  }
  const long long nanoseconds = wall.tv_nsec + left % 1000000000LL;
  wall.tv_sec += left / 1000000000LL + nanoseconds / 1000000000LL;
  wall.tv_nsec = nanoseconds % 1000000000LL;
  return wall;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  const struct timespec wall = as_wall_time(clock, deadline);
  return pthread_cond_timedwait(condition, mutex, &wall);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const struct timespec* deadline) {
  const struct timespec wall = as_wall_time(clock, deadline);
  return pthread_mutex_timedlock(mutex, &wall);
}
