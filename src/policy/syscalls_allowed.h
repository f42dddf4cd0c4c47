#pragma once

#include "kernel/uapi/syscall_numbers.h"

namespace carrel::policy {

// The system calls that every program in a sandbox may make with any arguments. A call that needs
// conditions is not here but in syscalls.cc.
inline constexpr int kAllowedSyscalls[] = {
#if defined(__x86_64__)
    // The older forms, which newer architectures do not have.
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_poll, SYS_select, SYS_pipe, SYS_dup2,
    SYS_getdents, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_link, SYS_unlink, SYS_symlink, SYS_readlink,
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat, SYS_fork, SYS_vfork,
    SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time, SYS_arch_prctl, SYS_set_thread_area,
    SYS_get_thread_area, SYS_epoll_create, SYS_epoll_wait, SYS_inotify_init, SYS_signalfd,
    SYS_eventfd,
#endif
    // Files and directories.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_close, SYS_close_range, SYS_openat, SYS_openat2,
    SYS_dup, SYS_dup3, SYS_fcntl, SYS_flock, SYS_fsync, SYS_fdatasync, SYS_sync, SYS_syncfs,
    SYS_sync_file_range, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fadvise64, SYS_readahead,
    SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_mkdirat, SYS_unlinkat, SYS_renameat,
    SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_umask, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_fchmod, SYS_fchmodat, SYS_fchmodat2,
    SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_setxattrat, SYS_getxattrat,
    SYS_listxattrat, SYS_removexattrat, SYS_file_getattr, SYS_file_setattr, SYS_sendfile,
    SYS_splice, SYS_tee, SYS_vmsplice, SYS_copy_file_range, SYS_pipe2, SYS_cachestat,
    SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_io_setup, SYS_io_destroy,
    SYS_io_submit, SYS_io_cancel, SYS_io_getevents, SYS_io_pgetevents,
    // Memory.
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_msync, SYS_mincore, SYS_madvise,
    SYS_remap_file_pages, SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall,
    SYS_memfd_create, SYS_memfd_secret, SYS_membarrier, SYS_pkey_alloc, SYS_pkey_free,
    SYS_pkey_mprotect, SYS_map_shadow_stack,
    // Processes, threads and their identity. Without capabilities the set-id calls change nothing.
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_set_tid_address,
    SYS_gettid, SYS_getpid, SYS_getppid, SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid,
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups,
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid,
    SYS_setfsgid, SYS_setgroups, SYS_capget, SYS_capset, SYS_getrlimit, SYS_setrlimit,
    SYS_getrusage, SYS_times, SYS_sysinfo, SYS_uname, SYS_getrandom, SYS_getcpu, SYS_getpriority,
    SYS_ioprio_get, SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_getscheduler,
    SYS_sched_getparam, SYS_sched_getattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval, SYS_futex, SYS_futex_waitv, SYS_futex_wake, SYS_futex_wait,
    SYS_futex_requeue, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_restart_syscall,
    SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
    // Signals and process descriptors.
    SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_rt_sigsuspend, SYS_sigaltstack, SYS_signalfd4, SYS_pidfd_open, SYS_pidfd_send_signal,
    // Time: it can be read and waited for, not set.
    SYS_gettimeofday, SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep,
    SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime,
    SYS_timer_getoverrun, SYS_timer_delete, SYS_timerfd_create, SYS_timerfd_settime,
    SYS_timerfd_gettime,
    // Waiting for events.
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2,
    SYS_eventfd2,
    // Sockets that exist; socket() and socketpair() have conditions.
    SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_shutdown, SYS_sendto, SYS_sendmsg, SYS_sendmmsg,
    SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
    // System V and POSIX queues, semaphores and shared memory, in an IPC namespace of their own.
    SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
    SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend,
    SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr};

}  // namespace carrel::policy
