/* Messages of dlq-init to dlq-shim over descriptor 3, a SOCK_SEQPACKET socket: one message, one
 * record. The kernel adds the sender (SCM_CREDENTIALS), as the receiver's pid namespace sees it.
 * */
#ifndef DLQ_INIT_MESSAGE_H
#define DLQ_INIT_MESSAGE_H

#include <stdint.h>

enum init_kind {
    INIT_HELLO = 1,  /* init runs; the sender is init */
    INIT_MAIN = 2,   /* about to exec; the sender is the main process */
    INIT_EXECED = 3, /* the main process runs the job's program */
    INIT_FAILED = 4, /* it never will: stage and errno */
    INIT_ENDED = 5,  /* the main process has ended: value is its wait status */
};

struct init_message {
    int32_t kind, value;
    char stage[16];
};

#endif
