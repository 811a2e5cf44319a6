/* A child of fork whose parent's other thread holds the loader's lock for ever. The child makes
 * calls that no thread made before, and must not wait for that lock. */
#include "datagrams.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

static pthread_barrier_t held;

static int hold(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    pthread_barrier_wait(&held);
    while (pause() < 0)
        ;
    return 0;
}

static void *holder(void *unused)
{
    dl_iterate_phdr(hold, NULL);
    return unused;
}

int main(void)
{
    int fd = datagram_socket(), status;
    pthread_t thread;
    pthread_barrier_init(&held, NULL, 2);
    if (pthread_create(&thread, NULL, holder, NULL))
        return 1;
    pthread_barrier_wait(&held);
    if (fork() == 0) {
        int other;
        alarm(20);
        other = dup2(fd, 50);
        if (write(other, "12345", 5) != 5)
            _exit(1);
        _exit(close(other));
    }
    wait(&status);
    printf("%d\n", status);
    fflush(stdout);
    _exit(0); /* the loader's lock is still held */
}
