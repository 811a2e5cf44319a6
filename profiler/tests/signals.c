/* Sends from the program and, at the same time, from the handler of a timer's signal; prints how many. */
#include "datagrams.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int fd, from_handler;

static void on_alarm(int signal)
{
    (void)signal;
    errno = 99;
    send_times(fd, 50, 1);
    from_handler++;
}

int main(void)
{
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    long sent = 0;
    fd = datagram_socket();
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    while (from_handler < 200) {
        send_times(fd, 60, 100);
        sent += 100;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%ld\n", sent + from_handler);
    return 0;
}
