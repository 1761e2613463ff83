/* Creates, looks up or unlinks files, with nothing of an interpreter in between; prints microseconds for one.

   files create|stat|unlink FIRST COUNT STEP SIZE

   File number n is dN/fM: 1,000 in each directory. Numbers are FIRST, FIRST + STEP, and so on. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int fail(const char *name) {
    perror(name);
    return 1;
}

int main(int argc, char **argv) {
    static char block[1 << 20];
    char name[64];
    struct stat found;
    if (argc != 6) {
        return 2;
    }
    long first = atol(argv[2]), count = atol(argv[3]), step = atol(argv[4]), size = atol(argv[5]);
    char what = argv[1][0];
    memset(block, 'x', sizeof block);
    for (long dir = first / 1000; what == 'c' && dir <= (first + count * step - 1) / 1000; dir++) {
        snprintf(name, sizeof name, "d%ld", dir);
        if (mkdir(name, 0755) && errno != EEXIST) {
            return fail(name);
        }
    }
    double started = now();
    for (long number = first; number < first + count * step; number += step) {
        snprintf(name, sizeof name, "d%ld/f%ld", number / 1000, number % 1000);
        if (what == 'u' && unlink(name)) {
            return fail(name);
        }
        if (what == 's' && stat(name, &found)) {
            return fail(name);
        }
        if (what == 'c') {
            int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (file < 0 || write(file, block, size) != size || close(file)) {
                return fail(name);
            }
        }
    }
    printf("%.3f\n", (now() - started) / count);
    return 0;
}
