/* The time of day of a process, plus as many seconds as the first byte of the file CLOCK_STEP says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile signed char *step;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CLOCK_STEP");
    int file = path ? open(path, O_RDONLY) : -1;
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        step = page;
}

/* Allocators ask for the time before anything is set up, so this needs nothing but the kernel. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *step;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}
