/* A thread that waits in recv is cancelled: its clean-up must run, through our frame on its stack. */
#include "datagrams.h"

#include <pthread.h>
#include <stdio.h>

static void clean_up(void *what)
{
    printf("clean-up %s\n", (const char *)what);
}

static void *wait_for_ever(void *fd)
{
    char byte;
    pthread_cleanup_push(clean_up, "ran");
    send_times(*(int *)fd, 10, 1);
    recv(*(int *)fd, &byte, 1, 0);
    recv(*(int *)fd, &byte, 1, 0);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    int fd = datagram_socket();
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, wait_for_ever, &fd) || pthread_cancel(thread) ||
        pthread_join(thread, &result))
        return 1;
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    send_times(fd, 20, 1);
    return 0;
}
