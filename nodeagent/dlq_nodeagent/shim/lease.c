/* The instants at which a job must be notified, pressed and killed: by the agent's `stop`, or by
 * the master's silence. Only decides; guard.c acts. All instants are CLOCK_BOOTTIME nanoseconds. */
#include "shim.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void arm(struct countdown *down, int64_t kill_at, int64_t grace, int64_t term)
{
    down->kill_at = kill_at;
    down->notice_at = kill_at - grace;
    down->term_at = kill_at - smaller(term, grace / 2);
}

static int64_t next_of(const struct countdown *down)
{
    if (down->kill_at == 0)
        return INT64_MAX;
    if (!down->noticed)
        return down->notice_at;
    return down->termed ? down->kill_at : down->term_at;
}

/* A contact that cannot be read is a contact that was not renewed; one in the future is a lie. */
static void read_contact(struct lease *lease, int64_t now)
{
    int64_t contact = smaller(contact_read(lease->plan->contact, lease->boot_id), now);
    if (contact > lease->contact_ns)
        lease->contact_ns = contact;
    arm(&lease->hold, lease->contact_ns + lease->hold_ns,
        smaller(lease->plan->grace_ns, lease->hold_ns / 2), lease->plan->term_ns);
}

int lease_start(struct lease *lease, const struct plan *plan, const char *boot_id, int64_t now)
{
    *lease = (struct lease){.plan = plan, .boot_id = boot_id, .hold_ns = plan->hold_ns};
    lease->contact_ns = -1;
    read_contact(lease, now);
    return lease->contact_ns < 0 ? -1 : 0;
}

void lease_hold(struct lease *lease, int64_t hold_ns, int64_t now)
{
    lease->hold_ns = hold_ns;
    read_contact(lease, now);
}

void lease_stop(struct lease *lease, int64_t grace_ns, int64_t term_ns, int64_t now)
{
    lease->stop.noticed = true; /* the agent has notified the job already */
    lease->stop.termed = false;
    arm(&lease->stop, now + grace_ns, grace_ns, term_ns);
}

int64_t lease_next(const struct lease *lease)
{
    return smaller(next_of(&lease->hold), next_of(&lease->stop));
}

static enum due stop_due(struct lease *lease, int64_t now)
{
    if (now < next_of(&lease->stop))
        return DUE_NOTHING;
    if (now >= lease->stop.kill_at)
        return DUE_STOP_KILL;
    lease->stop.termed = true;
    return DUE_TERM;
}

static enum due hold_due(struct lease *lease, int64_t now)
{
    struct countdown *hold = &lease->hold;
    if (now >= next_of(hold))
        read_contact(lease, now);
    if (hold->noticed && now < hold->notice_at) {
        hold->noticed = hold->termed = false;
        return DUE_HOLD_WITHDRAWN;
    }
    if (now < next_of(hold))
        return DUE_NOTHING;
    if (!hold->noticed) {
        hold->noticed = true;
        return DUE_HOLD_NOTICE;
    }
    if (now >= hold->kill_at)
        return DUE_HOLD_KILL;
    hold->termed = true;
    return DUE_TERM;
}

enum due lease_due(struct lease *lease, int64_t now)
{
    enum due due = stop_due(lease, now);
    return due != DUE_NOTHING ? due : hold_due(lease, now);
}
