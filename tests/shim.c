/* Faults and moments for the tests: LD_PRELOAD this, and every call that changes a file below $SHIM_ROOT is counted.
 * A process that was forked from one with the shim loaded calls shim_start() to read its own variables.
 *
 *   SHIM_PATH=<glob> count only calls on paths that match, relative to the root ("*" crosses slashes); a file that is
 *                    written beside its place and renamed counts once under its own name
 *   SHIM_AT=<n>      the call that goes wrong, counted from 1 over all threads of the process
 *   SHIM_ACT=<what>  kill      die instead of making it
 *                    after     make it, then die
 *                    torn      write half of the data, then die (other calls: die)
 *                    once:<e>  fail with errno e
 *                    from:<e>  fail with errno e, and so does every later call
 *                    did:<e>   make it, but answer errno e (a rename retried by a file server)
 *                    sig:<n>   first send signal n to the process, and again at the next call
 *                    stop      first stop the process, as kill -STOP does
 *                    hold      make it, then stop the process
 *                    tell      make it, then write a byte into the pipe $SHIM_PIPE, and go on
 *   SHIM_COUNT=<f>   append one byte to file f per call, so that its size is their number
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum verdict { PASS, FAIL, TORN, AFTER, DID, HOLD, TELL };

static atomic_int calls;
static char root[PATH_MAX], pattern[PATH_MAX], pipe_name[PATH_MAX];
static size_t root_length;
static char action[8];
static int at, code, counter = -1;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) void shim_start(void) {
    root_length = 0;
    calls = 0;
    const char *folder = getenv("SHIM_ROOT"), *what = getenv("SHIM_ACT"), *count = getenv("SHIM_COUNT");
    if (!folder || !realpath(folder, root)) return;
    root_length = strlen(root);
    snprintf(pattern, sizeof pattern, "%s", getenv("SHIM_PATH") ? getenv("SHIM_PATH") : "");
    snprintf(pipe_name, sizeof pipe_name, "%s", getenv("SHIM_PIPE") ? getenv("SHIM_PIPE") : "");
    at = getenv("SHIM_AT") ? atoi(getenv("SHIM_AT")) : 0;
    if (what) {
        const char *colon = strchr(what, ':');
        snprintf(action, sizeof action, "%.*s", (int)(colon ? colon - what : (long)strlen(what)), what);
        code = colon ? atoi(colon + 1) : 0;
    }
    if (count) counter = syscall(SYS_openat, AT_FDCWD, count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) syscall(SYS_pause);
}

static void tell(void) {
    int fd = syscall(SYS_openat, AT_FDCWD, pipe_name, O_WRONLY | O_CLOEXEC, 0);
    syscall(SYS_write, fd, ".", 1);
    syscall(SYS_close, fd);
}

static int is(const char *name) { return strcmp(action, name) == 0; }

static enum verdict judge(void) {
    int call = atomic_fetch_add(&calls, 1) + 1;
    if (counter >= 0) syscall(SYS_write, counter, ".", 1);
    if (is("from") && at && call >= at) return FAIL;
    if (is("sig") && at && (call == at || call == at + 1)) syscall(SYS_kill, getpid(), code);
    if (call != at) return PASS;
    if (is("stop")) syscall(SYS_kill, getpid(), SIGSTOP);
    if (is("kill")) die();
    if (is("hold") || is("tell")) return is("hold") ? HOLD : TELL;
    return is("once") ? FAIL : is("torn") ? TORN : is("after") ? AFTER : is("did") ? DID : PASS;
}

static int wanted(const char *path) {
    if (strncmp(path, root, root_length) != 0) return 0;
    if (!pattern[0]) return 1;
    path += root_length;
    return fnmatch(pattern, *path == '/' ? path + 1 : path, 0) == 0;
}

static int path_below(const char *path) {
    char whole[2 * PATH_MAX];
    if (!root_length || !path) return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", here, path);
        path = whole;
    }
    return wanted(path);
}

static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!root_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return wanted(path);
}

#define DECIDE(below)                                   \
    enum verdict verdict = (below) ? judge() : PASS;    \
    if (verdict == FAIL) { errno = code; return -1; }

#define MAKE(call)                                      \
    do {                                                \
        if (verdict == TORN) die();                     \
        __typeof__(call) result = (call);               \
        if (verdict == AFTER) die();                    \
        if (verdict == HOLD) syscall(SYS_kill, getpid(), SIGSTOP); \
        if (verdict == TELL) tell();                    \
        if (verdict == DID) { errno = code; return -1; } \
        return result;                                  \
    } while (0)

int rename(const char *a, const char *b) { DECIDE(path_below(b)) MAKE(NEXT(rename)(a, b)); }
int link(const char *a, const char *b) { DECIDE(path_below(b)) MAKE(NEXT(link)(a, b)); }
int unlink(const char *a) { DECIDE(path_below(a)) MAKE(NEXT(unlink)(a)); }
int unlinkat(int folder, const char *a, int flags) { DECIDE(fd_below(folder)) MAKE(NEXT(unlinkat)(folder, a, flags)); }
int rmdir(const char *a) { DECIDE(path_below(a)) MAKE(NEXT(rmdir)(a)); }
int mkdir(const char *a, mode_t m) { DECIDE(path_below(a)) MAKE(NEXT(mkdir)(a, m)); }
int fsync(int fd) { DECIDE(fd_below(fd)) MAKE(NEXT(fsync)(fd)); }
int fdatasync(int fd) { DECIDE(fd_below(fd)) MAKE(NEXT(fdatasync)(fd)); }

ssize_t write(int fd, const void *data, size_t size) {
    DECIDE(fd_below(fd))
    if (verdict == TORN) {
        NEXT(write)(fd, data, size / 2);
        die();
    }
    MAKE(NEXT(write)(fd, data, size));
}

/* A file server may report only now that the data did not fit; the descriptor is gone all the same. */
int close(int fd) {
    int flags = root_length ? fcntl(fd, F_GETFL) : -1;
    int counts = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fd_below(fd);
    enum verdict verdict = counts ? judge() : PASS;
    if (verdict == FAIL) {
        NEXT(close)(fd);
        errno = code;
        return -1;
    }
    MAKE(NEXT(close)(fd));
}

#define OPEN(name, ...)                                                        \
    mode_t mode = 0;                                                           \
    if (flags & O_CREAT) {                                                     \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode = va_arg(rest, int);                                              \
        va_end(rest);                                                          \
    }                                                                          \
    DECIDE((flags & (O_WRONLY | O_RDWR | O_CREAT)) && path_below(path))        \
    MAKE(NEXT(name)(__VA_ARGS__ path, flags, mode));

int open(const char *path, int flags, ...) { OPEN(open,) }
int open64(const char *path, int flags, ...) { OPEN(open64,) }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder,) }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder,) }
