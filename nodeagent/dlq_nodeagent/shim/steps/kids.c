/* A process for each connection: a hostile or slow one holds up no other. The main process keeps
 * the steps and the room on the nodes, and hears of both by short messages of its own children. */
#include "steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_KIDS 8192 /* the limit of processes of a job comes first */
#define MOST_STRANGERS 64 /* connections from other nodes that have not proved who they are */
#define REQUEST_MS 10000
#define BYE_MS 2000

enum { CONNECTION = 3, PARENT = 4 };

struct kid {
    pid_t pid; /* 0: a free place */
    int sock;
    bool stranger, waiting, holds;
    uint64_t order; /* of their connections */
    struct wish wish;
    struct grant *grant; /* of a step that runs */
    struct step *step;
};

static struct kid kids[MOST_KIDS];
static int top; /* all that are used are below it */
static struct room rooms[MOST_NODES];
static struct who *who;
static uint64_t next_order;
static int unix_listener, tcp_listener;
static bool closed; /* the script has ended: no step begins any more */

/* ---- messages ---- */

bool message_send(int sock, const struct message *message, int passed)
{
    struct iovec part = {(void *)message, sizeof *message};
    char room[CMSG_SPACE(sizeof passed)] = {0};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        whole.msg_control = room;
        whole.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof passed);
        memcpy(CMSG_DATA(head), &passed, sizeof passed);
    }
    return sendmsg(sock, &whole, MSG_NOSIGNAL) == (ssize_t)sizeof *message;
}

int message_receive(int sock, struct message *message, int *passed)
{
    struct iovec part = {message, sizeof *message};
    char room[CMSG_SPACE(sizeof *passed)] = {0};
    struct msghdr whole = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    *passed = -1;
    ssize_t got = recvmsg(sock, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got != (ssize_t)sizeof *message)
        return -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
    if (head != NULL && head->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(head), sizeof *passed);
    return 1;
}

/* ---- in the kid ---- */

static _Noreturn void serve(bool local)
{
    struct frame frame;
    struct message admitted = {.kind = KID_ADMITTED};
    char *payload;
    if (!(local ? admit_unix(CONNECTION) : admit_tcp(CONNECTION, who)) ||
        !receive_frame(CONNECTION, REQUEST_MS, &frame, &payload))
        _exit(1);
    message_send(PARENT, &admitted, -1);
    if (frame.type == ASK_WHO && local) {
        struct bytes told = {0};
        who_write(who, &told);
        send_frame(CONNECTION, SAY_WHO, 0, told.data, told.used);
        _exit(0);
    }
    if (frame.type == ASK_LAUNCH)
        tasks_serve(CONNECTION, who, payload, frame.length);
    if (frame.type == ASK_STEP && who->rank == 0)
        control_serve(CONNECTION, PARENT, payload, frame.length);
    if (frame.type == ASK_HOLD && who->rank == 0)
        hold_serve(CONNECTION, PARENT);
    if (frame.type == ASK_SIGNAL && who->rank == 0)
        signal_serve(CONNECTION, PARENT, payload);
    if (frame.type == ASK_ATTACH && who->rank == 0)
        attach_serve(CONNECTION, PARENT, payload);
    static const char words[] = "not here";
    send_frame(CONNECTION, SAY_REFUSED, 0, words, sizeof words);
    _exit(1);
}

static _Noreturn void become_kid(int connection, int sock, bool local, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(1);
    int low = fcntl(connection, F_DUPFD_CLOEXEC, 16), other = fcntl(sock, F_DUPFD_CLOEXEC, 16);
    if (low < 0 || other < 0 || dup3(low, CONNECTION, O_CLOEXEC) < 0 ||
        dup3(other, PARENT, O_CLOEXEC) < 0 || close_range(PARENT + 1, ~0u, 0) != 0)
        _exit(1);
    serve(local);
}

/* ---- in the main process ---- */

/* Connections of others must not keep those of the job out: beyond the limit the oldest one goes. */
static void drop_oldest_stranger(void)
{
    struct kid *oldest = NULL;
    int count = 0;
    for (int at = 0; at < top; at++)
        if (kids[at].pid != 0 && kids[at].stranger) {
            count++;
            if (oldest == NULL || kids[at].order < oldest->order)
                oldest = &kids[at];
        }
    if (count >= MOST_STRANGERS) {
        oldest->stranger = false;
        kill(oldest->pid, SIGKILL);
    }
}

static void take_connection(int listener, bool local)
{
    int pair[2], connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct kid *place = NULL;
    if (connection < 0)
        return;
    for (int at = 0; at < MOST_KIDS && place == NULL; at++)
        if (kids[at].pid == 0)
            place = &kids[at];
    if (!local)
        drop_oldest_stranger();
    if (place == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        close(connection);
        return;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_kid(connection, pair[1], local, parent);
    close(connection);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return;
    }
    top = place - kids >= top ? (int)(place - kids) + 1 : top;
    *place = (struct kid){.pid = pid, .sock = pair[0], .stranger = !local, .order = next_order++};
}

void kids_begin(struct who *ours, int unix_fd, int tcp_fd)
{
    who = ours;
    unix_listener = unix_fd;
    tcp_listener = tcp_fd;
    for (int node = 0; node < who->node_count; node++)
        rooms[node] = (struct room){.cpus = who->peers[node].cpus, .gpus = who->peers[node].gpus};
}

static void refuse(struct kid *kid, const char *why)
{
    struct message message = {.kind = TO_REFUSE};
    snprintf(message.text, sizeof message.text, "%s", why);
    message_send(kid->sock, &message, -1);
    kid->waiting = false;
}

static void try_step(struct kid *kid, bool first)
{
    const char *why = "";
    struct message message = {.kind = TO_GRANT};
    if (closed) {
        refuse(kid, "Job/step already completing or completed");
        return;
    }
    enum fit fit = layout_fit(&kid->wish, rooms, who->node_count, &message.grant, &why);
    if (fit == NEVER) {
        refuse(kid, why);
        return;
    }
    kid->waiting = fit == BUSY;
    if (fit == FITS) {
        kid->step = records_begin(&kid->wish, &message.grant, who);
        if (kid->step == NULL) {
            kid->waiting = true; /* 1,000 steps run at once */
        } else {
            message.grant.step = kid->step->number;
            kid->grant = must_have(malloc(sizeof *kid->grant));
            *kid->grant = message.grant;
            layout_take(&kid->wish, kid->grant, rooms, 1);
            message_send(kid->sock, &message, -1);
            return;
        }
    }
    message.kind = TO_WAIT;
    if (first)
        message_send(kid->sock, &message, -1);
}

static int by_order(const void *left, const void *right)
{
    uint64_t one = kids[*(const int *)left].order, other = kids[*(const int *)right].order;
    return (one > other) - (one < other);
}

/* In the order in which they came. */
static void try_waiting(void)
{
    static int waiting[MOST_KIDS];
    int count = 0;
    for (int at = 0; at < top; at++)
        if (kids[at].pid != 0 && kids[at].waiting)
            waiting[count++] = at;
    qsort(waiting, (size_t)count, sizeof *waiting, by_order);
    for (int at = 0; at < count; at++)
        try_step(&kids[waiting[at]], false);
}

void kids_close(void)
{
    closed = true;
    try_waiting();
}

static void step_over(struct kid *kid, int code)
{
    if (kid->step == NULL)
        return;
    records_end(kid->step, code);
    layout_take(&kid->wish, kid->grant, rooms, -1);
    free(kid->grant);
    kid->grant = NULL;
    kid->step = NULL;
    try_waiting();
}

static bool wish_is_sane(struct wish *wish)
{
    wish->name[sizeof wish->name - 1] = wish->command[sizeof wish->command - 1] = '\0';
    wish->nodelist[sizeof wish->nodelist - 1] = '\0';
    bool sane = wish->candidate_count <= (uint32_t)who->node_count &&
                wish->cpus_per_task < 100000 && wish->gpus_per_task <= MOST_GPUS &&
                wish->gpus_per_node <= MOST_GPUS && wish->gpus < 65536 &&
                wish->nodes_min <= MOST_NODES && wish->tasks_per_node <= MOST_TASKS;
    for (uint32_t at = 0; sane && at < wish->candidate_count; at++)
        sane = wish->candidates[at] < who->node_count;
    return sane;
}

static void attach(struct kid *kid, uint32_t number, int passed)
{
    struct message message = {.kind = TO_TAP};
    for (int at = 0; at < top; at++)
        if (kids[at].pid != 0 && kids[at].step != NULL && kids[at].step->number == number) {
            message_send(kids[at].sock, &message, passed);
            message.kind = TO_BYE;
            message_send(kid->sock, &message, -1);
            return;
        }
    refuse(kid, "Invalid job id specified");
}

/* To one step, to the batch script, or to both and all steps. */
static void pass_signal(struct kid *kid, struct message *message)
{
    struct message to_step = {.kind = TO_SIGNAL, .number = message->number};
    struct message done = {.kind = TO_BYE};
    bool full = strcmp(message->text, "full") == 0, batch = strcmp(message->text, "batch") == 0;
    bool reached = (full || batch) && batch_signal((int)message->number);
    long wanted = -1;
    bool is_step = parse_long(message->text, UINT32_MAX, &wanted);
    for (int at = 0; at < top; at++)
        if (kids[at].pid != 0 && kids[at].step != NULL &&
            (full || (is_step && kids[at].step->number == (uint32_t)wanted)))
            reached = message_send(kids[at].sock, &to_step, -1) || reached;
    if (reached)
        message_send(kid->sock, &done, -1);
    else
        refuse(kid, "Invalid job id specified");
}

static void hear(struct kid *kid, struct message *message, int passed)
{
    switch (message->kind) {
    case KID_ADMITTED: kid->stranger = false; break;
    case KID_WISH:
        kid->wish = message->wish;
        if (kid->step != NULL || !wish_is_sane(&kid->wish))
            refuse(kid, "Invalid request");
        else
            try_step(kid, true);
        break;
    case KID_ATTACH: attach(kid, message->number, passed); break;
    case KID_SIGNAL:
        message->text[sizeof message->text - 1] = '\0';
        pass_signal(kid, message);
        break;
    case KID_HOLD: kid->holds = true; break;
    case KID_USAGE:
        if (kid->step != NULL) {
            kid->step->usage = message->usage;
            records_touch();
        }
        break;
    case KID_OVER: step_over(kid, (int)(message->number & 0xff)); break;
    }
    if (passed >= 0)
        close(passed);
}

static void part_with(struct kid *kid)
{
    step_over(kid, 128 + SIGKILL); /* its srun has gone without a word */
    close(kid->sock);
    kid->sock = -1;
    kid->waiting = kid->holds = kid->stranger = false;
}

int kids_poll(struct pollfd *fds, int most)
{
    int count = 0;
    fds[count++] = (struct pollfd){.fd = unix_listener, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = tcp_listener, .events = POLLIN};
    for (int at = 0; at < top && count < most; at++)
        fds[count++] =
            (struct pollfd){.fd = kids[at].pid != 0 ? kids[at].sock : -1, .events = POLLIN};
    return count;
}

void kids_turn(const struct pollfd *fds, int count)
{
    for (int at = 2; at < count; at++) {
        struct kid *kid = &kids[at - 2];
        struct message message;
        int passed, got = 1;
        if (fds[at].revents == 0 || kid->pid == 0 || kid->sock != fds[at].fd)
            continue;
        while (kid->sock >= 0 && (got = message_receive(kid->sock, &message, &passed)) > 0)
            hear(kid, &message, passed);
        if (got < 0)
            part_with(kid);
    }
    if (fds[0].revents != 0)
        take_connection(unix_listener, true);
    if (fds[1].revents != 0)
        take_connection(tcp_listener, false);
}

void kids_reaped(pid_t pid)
{
    for (int at = 0; at < top; at++)
        if (kids[at].pid == pid) {
            struct message message;
            int passed;
            while (kids[at].sock >= 0 && message_receive(kids[at].sock, &message, &passed) > 0)
                hear(&kids[at], &message, passed);
            if (kids[at].sock >= 0)
                part_with(&kids[at]);
            kids[at].pid = 0;
            while (top > 0 && kids[top - 1].pid == 0)
                top--;
        }
}

void kids_hear(void)
{
    struct message message;
    int passed;
    for (int at = 0; at < top; at++)
        while (kids[at].pid != 0 && kids[at].sock >= 0 &&
               message_receive(kids[at].sock, &message, &passed) > 0)
            hear(&kids[at], &message, passed);
}

int kids_signal(int number)
{
    struct message message = {.kind = TO_SIGNAL, .number = (uint32_t)number};
    int reached = 0;
    for (int at = 0; at < top; at++)
        if (kids[at].pid != 0 && kids[at].step != NULL)
            reached += message_send(kids[at].sock, &message, -1);
    return reached;
}

int kids_running(void)
{
    int count = 0;
    for (int at = 0; at < top; at++)
        count += kids[at].pid != 0 && kids[at].step != NULL;
    return count;
}

void kids_bye(int code)
{
    struct message message = {.kind = TO_BYE, .number = (uint32_t)code};
    int64_t until = now_ms() + BYE_MS;
    for (int at = 0; at < top; at++) {
        struct kid *kid = &kids[at];
        if (kid->pid != 0 && kid->step != NULL)
            records_end(kid->step, 128 + SIGTERM); /* the job ends under it */
        if (kid->pid != 0 && kid->holds)
            message_send(kid->sock, &message, -1);
    }
    for (int at = 0; at < top; at++) {
        struct pollfd wait = {.fd = kids[at].sock, .events = 0};
        int64_t left = until - now_ms();
        if (kids[at].pid != 0 && kids[at].holds && left > 0)
            poll(&wait, 1, (int)left);
    }
}
