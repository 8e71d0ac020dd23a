/* Forks N lines of which each forks and ends without pause, so that no pid lives longer than a fork. A line beats by
 * writing a byte to the file BEAT. It ends when the file STOP appears or after SECONDS.
 * Usage: hopper N PAUSE_US SECONDS BEAT STOP */
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int pause_us = atoi(argv[2]);
    time_t end = time(NULL) + atoi(argv[3]);
    for (int line = atoi(argv[1]); line > 0; line--) {
        if (fork() != 0) continue;
        setsid();
        for (int fd = 0; fd < 64; fd++) close(fd);
        int beat = open(argv[4], O_WRONLY | O_APPEND | O_CREAT, 0600);
        while (time(NULL) < end && access(argv[5], F_OK) != 0) {
            if (write(beat, "x", 1) != 1) return 1;
            if (pause_us) usleep(pause_us);
            pid_t child = fork();
            if (child > 0) _exit(0);
            if (child == 0) setsid();
        }
        _exit(0);
    }
    return 0;
}
