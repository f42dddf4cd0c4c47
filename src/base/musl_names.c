// Other names of functions that musl has: those of large files (open64), which musl 1.2.3 knows and
// musl 1.2.4 does not, and those of C23 (__isoc23_strtol), which glibc's headers say since 2.38.
// The program is compiled against glibc's headers and linked with musl:
// docs/decisions/0012-musl.md.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

// The headers of a musl that has these names define them as macros. The types are the same: a
// file's size has 64 bits on every machine that musl supports.
#ifndef open64
// The mode that follows the flags where a file may be created, otherwise 0.
static mode_t mode_after(int flags, va_list arguments) {
  const int creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_after(flags, arguments);
  va_end(arguments);
  return open(path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_after(flags, arguments);
  va_end(arguments);
  return openat(directory, path, flags, mode);
}

int stat64(const char* path, struct stat* result) { return stat(path, result); }
int lstat64(const char* path, struct stat* result) { return lstat(path, result); }
int fstat64(int fd, struct stat* result) { return fstat(fd, result); }
int fstatat64(int directory, const char* path, struct stat* result, int flags) {
  return fstatat(directory, path, result, flags);
}
int statfs64(const char* path, struct statfs* result) { return statfs(path, result); }
int fstatfs64(int fd, struct statfs* result) { return fstatfs(fd, result); }
int statvfs64(const char* path, struct statvfs* result) { return statvfs(path, result); }
int fstatvfs64(int fd, struct statvfs* result) { return fstatvfs(fd, result); }
struct dirent* readdir64(DIR* directory) { return readdir(directory); }

off_t lseek64(int fd, off_t offset, int from) { return lseek(fd, offset, from); }
ssize_t pread64(int fd, void* to, size_t size, off_t offset) { return pread(fd, to, size, offset); }
ssize_t pwrite64(int fd, const void* from, size_t size, off_t offset) {
  return pwrite(fd, from, size, offset);
}
int truncate64(const char* path, off_t size) { return truncate(path, size); }
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int fallocate64(int fd, int mode, off_t offset, off_t size) {
  return fallocate(fd, mode, offset, size);
}
int posix_fallocate64(int fd, off_t offset, off_t size) {
  return posix_fallocate(fd, offset, size);
}
int posix_fadvise64(int fd, off_t offset, off_t size, int advice) {
  return posix_fadvise(fd, offset, size, advice);
}
ssize_t sendfile64(int to, int from, off_t* offset, size_t size) {
  return sendfile(to, from, offset, size);
}
void* mmap64(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}

int getrlimit64(int resource, struct rlimit* limit) { return getrlimit(resource, limit); }
int setrlimit64(int resource, const struct rlimit* limit) { return setrlimit(resource, limit); }
int prlimit64(pid_t process, int resource, const struct rlimit* limit, struct rlimit* old) {
  return prlimit(process, resource, limit, old);
}

FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
FILE* tmpfile64(void) { return tmpfile(); }
off_t ftello64(FILE* file) { return ftello(file); }
int fseeko64(FILE* file, off_t offset, int from) { return fseeko(file, offset, from); }
int mkstemp64(char* pattern) { return mkstemp(pattern); }
int mkostemp64(char* pattern, int flags) { return mkostemp(pattern, flags); }
#endif

// In C23 these read binary numbers too ("0b101"). The program reads none, and does not read more on
// one system than on another.
long __isoc23_strtol(const char* text, char** end, int base) { return strtol(text, end, base); }
long long __isoc23_strtoll(const char* text, char** end, int base) {
  return strtoll(text, end, base);
}
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoull(text, end, base);
}

int __isoc23_vsscanf(const char* text, const char* format, va_list arguments) {
  return vsscanf(text, format, arguments);
}
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = vsscanf(text, format, arguments);
  va_end(arguments);
  return result;
}
int __isoc23_fscanf(FILE* file, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = vfscanf(file, format, arguments);
  va_end(arguments);
  return result;
}

// Checked forms of -D_FORTIFY_SOURCE that only newer libraries or other processors use.
void* __memmove_chk(void* to, const void* from, size_t size, size_t room) {
  if (size > room) {
    __builtin_trap();
  }
  return memmove(to, from, size);
}
_Noreturn void __longjmp_chk(jmp_buf place, int value) { longjmp(place, value); }

// As getcontext() and its relatives in musl.c.
int swapcontext(void* from, const void* to) {
  (void)from;
  (void)to;
  __builtin_trap();
}
