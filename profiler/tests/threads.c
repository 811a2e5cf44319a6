/* threads together|after|forever|full COUNT SENDS: COUNT threads send SENDS datagrams each, all at the
 * same time or one after the other; thread i sends 100 + i bytes. `forever` never ends by itself; `full`
 * says so once all were sent together, and ends when its input does. */
#include "datagrams.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_barrier_t all_there, all_sent, all_done;
static int sends, together, forever, full;

static void *work(void *number)
{
    int fd = datagram_socket();
    if (together)
        pthread_barrier_wait(&all_there);
    do
        send_times(fd, 100 + (size_t)number, sends);
    while (forever);
    if (together)
        pthread_barrier_wait(&all_sent);
    if (full && number == NULL) {
        puts("full");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    if (together) /* none may take over from another */
        pthread_barrier_wait(&all_done);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[512];
    int count = argc > 3 ? atoi(argv[2]) : 0, i;
    if (count < 1 || count > 512)
        return 2;
    sends = atoi(argv[3]);
    forever = !strcmp(argv[1], "forever");
    full = !strcmp(argv[1], "full");
    together = full || !strcmp(argv[1], "together");
    pthread_barrier_init(&all_there, NULL, (unsigned)count);
    pthread_barrier_init(&all_sent, NULL, (unsigned)count);
    pthread_barrier_init(&all_done, NULL, (unsigned)count);
    for (i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)(size_t)i))
            return 4;
        if (!together && !forever)
            pthread_join(threads[i], NULL);
    }
    for (i = 0; (together || forever) && i < count; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
