/* Between `dlq-stdin attach` and the main process of the rank, over a unix socket.
 *
 * Towards the rank go frames: a letter, a length (four bytes, the highest first), and that many bytes.
 * An input counts as ended only by the frame that says so: a socket that closes is a cut line.
 * Towards the client go lines from a pipe's rank, and the bytes of its screen from a terminal's. */
#ifndef DLQ_STDIN_H
#define DLQ_STDIN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PIECE 65536
#define HEAD 5

enum { DATA = 'd', END = 'e', SIZE = 's' }; /* SIZE: columns and rows, two bytes each */

/* Bytes on their way from one descriptor to another. */
struct flow {
    char bytes[PIECE + HEAD];
    size_t from, to;
};

/* As much as goes now; -1: the reader has gone. */
int flow_out(struct flow *flow, int fd);

/* A socket and its address below a directory of any length; -1: errno says why. */
int socket_at(const char *path, struct sockaddr_un *address);

int attach_main(const char *path);

#endif
