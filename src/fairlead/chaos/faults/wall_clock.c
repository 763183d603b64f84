/* Loaded by LD_PRELOAD: the wall clock of a process is wrong by FAIRLEAD_CHAOS_CLOCK_SECONDS. Its other clocks stay right. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset;

__attribute__((constructor)) static void read_offset(void)
{
    const char *text = getenv("FAIRLEAD_CHAOS_CLOCK_SECONDS");
    offset = text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *found)
{
    int result = (int)syscall(SYS_clock_gettime, clock, found);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        found->tv_sec += offset;
    return result;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found)
        *found = now.tv_sec;
    return now.tv_sec;
}
