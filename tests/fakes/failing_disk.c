/* A disk that fails once, for the process that it is loaded into: FAILING_DISK="CALL:N:HOW:FOLDER".

   CALL is write, sync (fdatasync and fsync) or rename; its Nth use on something in FOLDER fails. HOW: an errno; `short`,
   a write that takes half and says so; `full`, such a write after which every write is ENOSPC; `torn`, half written and
   the process killed; `before` and `after`, killed around the call. Read anew at each call, since a process may set it. When
   it happens, that is said on standard error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int uses, full;

static int within(const char *folder, int fd, const char *path) {
    char link[32], found[PATH_MAX];
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, found, sizeof found - 1);
        if (length < 0) return 0;
        found[length] = 0;
        path = found;
    }
    return !strncmp(path, folder, strlen(folder));
}

/* What is to happen at this call: its HOW, or NULL for nothing out of the ordinary. */
static const char *due(const char *call, int fd, const char *path) {
    static _Thread_local char how[16];
    char name[16], folder[PATH_MAX];
    int number, before = errno;
    const char *plan = getenv("FAILING_DISK");
    if (!plan || sscanf(plan, "%15[^:]:%d:%15[^:]:%4095[^\n]", name, &number, how, folder) != 4) return NULL;
    if (strcmp(name, call) || !within(folder, fd, path)) return NULL;
    errno = before;
    if (full) return "28";
    if (atomic_fetch_add(&uses, 1) + 1 != number) return NULL;
    dprintf(STDERR_FILENO, "failing disk: %s %d %s\n", name, number, how);
    return how;
}

static void gone(void) { kill(getpid(), SIGKILL); }

static int failed(const char *how) {
    if (!strcmp(how, "before")) gone();
    errno = atoi(how);
    return errno != 0;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "write");
    const char *how = due("write", fd, NULL);
    if (!how) return real(fd, bytes, size);
    if (failed(how)) return -1;
    ssize_t taken = real(fd, bytes, strcmp(how, "after") && size > 1 ? size / 2 : size);
    if (!strcmp(how, "torn") || !strcmp(how, "after")) gone();
    if (!strcmp(how, "full")) full = 1;
    return taken;
}

static int around(const char *how, int (*real)(int), int fd) {
    if (how && failed(how)) return -1;
    int result = real(fd);
    if (how) gone();
    return result;
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    return around(due("sync", fd, NULL), real, fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return around(due("sync", fd, NULL), real, fd);
}

int rename(const char *old, const char *new) {
    static int (*real)(const char *, const char *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "rename");
    const char *how = due("rename", -1, old);
    if (how && failed(how)) return -1;
    int result = real(old, new);
    if (how) gone();
    return result;
}
