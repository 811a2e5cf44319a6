/* The recorder's interface to the back ends: its switch, the numbers of connections, and the
 * writing of records. */
#ifndef DLQPROF_RECORDER_H
#define DLQPROF_RECORDER_H

#include "dlqprof.h"
#include "sys.h"

#include <errno.h>
#include <time.h>

#ifndef DLQPROF_PRODUCER
#define DLQPROF_PRODUCER "libdlqprof unversioned"
#endif
#ifndef DLQPROF_SOURCE
#define DLQPROF_SOURCE DLQPROF_PRELOAD
#endif

extern int *__errno_location(void) WEAK;
extern int clock_gettime(clockid_t, struct timespec *) WEAK;

/* The control file, mapped for good; NULL: nothing is ever recorded in this process. */
extern struct dlqprof_control *dlqprof_control;
/* This process image's record file; NULL before it is made, and in a child until it has its own. */
extern struct dlqprof_header *dlqprof_file;
/* In a page that the kernel zeroes in a forked child: the number of this process' file. 0: none. */
extern uint32_t *dlqprof_epoch;

static inline int dlqprof_recording(void)
{
    const struct dlqprof_control *control = LOAD(&dlqprof_control);
    return control && LOAD(&control->mode) == DLQPROF_RECORD;
}

static inline uint64_t dlqprof_now(clockid_t clock)
{
    struct timespec at = {0, 0};
    if (clock_gettime)
        clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* -errno after a failed call. */
static inline int64_t dlqprof_result(int64_t result)
{
    return result < 0 && __errno_location ? -(int64_t)*__errno_location() : result;
}

/* Maps the control file that DLQ_PROF_DIR names and notes the process' identity. Once, from a
 * constructor. */
void dlqprof_start(void);

/* This process has a record file, made now if there was none. Returns its epoch, or 0. */
uint32_t dlqprof_attach(void);

/* It could not be made, and will not be tried again: no call needs a second look. Only while recording. */
int dlqprof_refused(void);

/* Appends to the connection table; returns its number for records (entry + 1), or 0. */
uint32_t dlqprof_conn_add(const struct dlqprof_conn *conn);
/* The number of the newest connection of that kind and id, or 0. */
uint32_t dlqprof_conn_find(uint32_t kind, uint64_t id);
struct dlqprof_conn *dlqprof_conn_at(uint32_t number);

/* Sets bits of the header's flags, now or when this process gets a file. */
void dlqprof_flag(uint32_t flags);

/* Writes one record into the calling thread's ring: seq and duration_ns are filled in here, the
 * latter from ts_ns. Does not change errno. */
void dlqprof_record(const struct dlqprof_record *record);

/* ---- between the recorder's own files ---- */

void dlqprof_fill_header(struct dlqprof_header *header);
void dlqprof_keep_identity(void);
/* The memory is there, or an access to it might end the process. */
int dlqprof_backed(void *start, size_t length);
/* Records that came while the file was being made, since the last call. */
uint32_t dlqprof_missed(void);
struct dlqprof_thread *dlqprof_thread_at(uint32_t index);

#endif
