/* The sockets of this host that listen on a port. */
#ifndef DLQ_LISTENING_H
#define DLQ_LISTENING_H

#include <stdbool.h>
#include <stddef.h>

#define MOST_LISTENERS 16

struct listener {
    unsigned long inode;
    bool on_6; /* it is reached by ::1, and not by 127.0.0.1 */
};

struct listeners {
    struct listener each[MOST_LISTENERS];
    size_t count;
};

/* All that listen on this port where loopback reaches them. */
void find_listeners(int port, struct listeners *found);

#endif
