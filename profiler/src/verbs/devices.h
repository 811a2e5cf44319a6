/* Devices and queue pairs that this process uses, found by their address. */
#ifndef DLQPROF_DEVICES_H
#define DLQPROF_DEVICES_H

#include "recorder.h"

#include "verbs_abi.h"

/* An open device, with its original operations. */
struct device {
    struct vb_context *context; /* NULL: free */
    char name[24];
    struct vb_context_ops ops;
    struct vb_qp *(*create_qp_ex)(struct vb_context *, struct vb_qp_init_attr_ex *);
};

struct pair {
    struct vb_qp *qp; /* NULL: never used; 1: free again; 2: being filled in */
    struct vb_context *context;
    uint32_t number;
    uint32_t conn;  /* in the file of ... */
    uint32_t epoch; /* ... this epoch; 0: not written down yet */
    uint32_t remote;
    uint8_t remote_gid[16];
    const struct vb_qp_ops *ops; /* before ours; NULL: not patched */
};

/* NULL where it is not one that was patched. */
struct device *dlqprof_device(const struct vb_context *context);
/* A place for a new one, or NULL. Its `context` is stored last, by the caller. */
struct device *dlqprof_device_new(void);

/* The entry of a queue pair, made if there was none; NULL where the table is full. */
struct pair *dlqprof_pair(struct vb_qp *qp);
struct pair *dlqprof_pair_by_number(const struct vb_context *context, uint32_t number);
void dlqprof_pair_gone(struct pair *pair);
/* Its connection for records, written down at its first use; 0: tables full. */
uint32_t dlqprof_pair_conn(struct pair *pair);

/* The extended interface of one queue pair: patched once. */
void dlqprof_patch_pair(struct vb_qp_ex *qp);

#endif
