/* A host whose wall clock is off by SHIFT_S seconds, for one process: what it asks for the time of day, and the stamps
 * that the kernel puts on what it receives. Monotonic clocks stay. Preload it:
 *   cc -shared -fPIC -O2 -DSHIFT_S=3600 -o wall_clock.so wall_clock.c -ldl; LD_PRELOAD=./wall_clock.so PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += SHIFT_S;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (!result) now->tv_sec += SHIFT_S;
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    static ssize_t (*real)(int, struct msghdr *, int);
    if (!real) real = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t result = real(fd, message, flags);
    if (result < 0) return result;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS)
            ((struct timespec *)CMSG_DATA(part))->tv_sec += SHIFT_S;
    return result;
}
