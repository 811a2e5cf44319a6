/* NCCL's profiler plugin interface, versions 1 to 5, restated: building needs neither NCCL nor CUDA.
 *
 * Only the used fields stand here, up to the last one. NCCL 2.23 asks for version 1, 2.24 for 2,
 * 2.26 for 3, 2.27 for 4 and 2.28 for 5. Newer ones fall back to the newest they find. */
#ifndef DLQPROF_NCCL_ABI_H
#define DLQPROF_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of events; a plugin asks for a set of them. */
enum {
    EVENT_COLL = 1 << 1,
    EVENT_P2P = 1 << 2,
    EVENT_COLL_API = 1 << 9, /* from version 5: the program's call, before NCCL cuts it up */
    EVENT_P2P_API = 1 << 10,
};

/* Version 1 has numbers where later ones have words. */
struct event_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t hash, sequence;
            uint8_t function;
            const void *from;
            void *to;
            size_t count;
            int root;
            uint8_t datatype;
        } coll;
        struct {
            const char *name;
            uint64_t hash;
            uint8_t function;
            void *data;
            uint8_t datatype;
            size_t count;
            int peer;
        } p2p;
    };
};

/* Version 3 differs from 2 only behind these fields. */
struct event_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t hash, sequence;
            const char *function;
            const void *from;
            void *to;
            size_t count;
            int root;
            const char *datatype;
        } coll;
        struct {
            const char *name;
            uint64_t hash;
            const char *function;
            void *data;
            const char *datatype;
            size_t count;
            int peer;
        } p2p;
    };
};

struct event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t sequence;
            const char *function;
            const void *from;
            void *to;
            size_t count;
            int root;
            const char *datatype;
        } coll;
        struct {
            const char *function;
            void *data;
            const char *datatype;
            size_t count;
            int peer;
        } p2p;
    };
};

struct event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *function;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool captured;
        } coll_api;
        struct {
            const char *function;
            size_t count;
            const char *datatype;
            void *stream;
            bool captured;
        } p2p_api;
    };
};

/* The table that NCCL looks up as ncclProfiler_vN. */
#define PLUGIN(version, init_arguments)                                 \
    struct plugin_v##version {                                          \
        const char *name;                                               \
        int (*init) init_arguments;                                     \
        int (*start_event)(void *, void **, struct event_v##version *); \
        int (*stop_event)(void *);                                      \
        int (*record_event_state)(void *, int, void *);                 \
        int (*finalize)(void *);                                        \
    }
#define event_v3 event_v2

PLUGIN(1, (void **context, int *mask));
PLUGIN(2, (void **context, int *mask));
PLUGIN(3, (void **context, int *mask));
PLUGIN(4, (void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log));
PLUGIN(5, (void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log));

#endif
