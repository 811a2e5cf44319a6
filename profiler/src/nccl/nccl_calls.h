/* NCCL's functions that have wrappers here. Declared as its manual has them; handles are pointers. */
#ifndef DLQPROF_NCCL_CALLS_H
#define DLQPROF_NCCL_CALLS_H

#include "sys.h"

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream);
EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream);
EXPORT int ncclBcast(void *data, size_t count, int type, int root, void *comm, void *stream);
EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *comm,
                      void *stream);
EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream);
EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm,
                             void *stream);
EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type, void *comm, void *stream);
EXPORT int ncclGather(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream);
EXPORT int ncclScatter(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream);
EXPORT int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream);
EXPORT int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream);

#endif
