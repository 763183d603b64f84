/* Loaded by LD_PRELOAD into PostgreSQL: while the file FAIRLEAD_CHAOS_SLOW_DISK exists, each sync of a file takes at least
   so many microseconds as it says, and each write a tenth of that. Whoever waits goes on when the file is gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const long step = 10000;
static const char *place;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);

__attribute__((constructor)) static void find_real(void)
{
    const char *found = getenv("FAIRLEAD_CHAOS_SLOW_DISK");
    place = found ? strdup(found) : NULL; /* PostgreSQL writes its title over the environment */
    *(void **)&real_fsync = dlsym(RTLD_NEXT, "fsync");
    *(void **)&real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    *(void **)&real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    *(void **)&real_pwritev = dlsym(RTLD_NEXT, "pwritev");
}

static long read_delay(void)
{
    char text[16];
    ssize_t length;
    int file = place ? open(place, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return atol(text);
}

static void wait_for_disk(long part)
{
    long waited = 0, left;
    while ((left = read_delay() / part - waited) > 0) {
        long now = left < step ? left : step;
        struct timespec pause = {0, now * 1000};
        nanosleep(&pause, NULL);
        waited += now;
    }
}

int fsync(int file)
{
    wait_for_disk(1);
    return real_fsync(file);
}

int fdatasync(int file)
{
    wait_for_disk(1);
    return real_fdatasync(file);
}

ssize_t pwrite(int file, const void *from, size_t length, off_t at)
{
    wait_for_disk(10);
    return real_pwrite(file, from, length, at);
}

ssize_t pwritev(int file, const struct iovec *from, int count, off_t at)
{
    wait_for_disk(10);
    return real_pwritev(file, from, count, at);
}

/* what programs call that are compiled for large files */
ssize_t pwrite64(int file, const void *from, size_t length, off_t at) __attribute__((alias("pwrite")));
ssize_t pwritev64(int file, const struct iovec *from, int count, off_t at) __attribute__((alias("pwritev")));
