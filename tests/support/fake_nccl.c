/* A fake libnccl.so.2 for two processes of one host, over the memory of fake_cuda.c.
 *
 * The ranks of a process give their numbers to one sum. The two processes send their sums to each
 * other by a socket, and really wait for each other. FAKE_NCCL plants a fault in a process:
 *
 *   version|22105           the version it says
 *   wrong|COUNT             of the COUNTth all-reduce, one number is wrong, on this side
 *   slow|MILLISECONDS       each all-reduce takes so much longer
 *   error|FUNCTION|CODE     this function fails
 *   hang|FUNCTION           it never comes back
 *   async|CODE              an all-reduce never comes back, and the communicator has this error
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_LOCAL 64
enum { OK = 0, SYSTEM = 2, INVALID = 4, USAGE = 5 };

typedef struct {
    char internal[128];
} unique_id;

struct give {
    const float *from;
    float *to;
    size_t count;
};

static int door = -1, line = -1, node, depth, joining, giving, reduced;
static unsigned short meeting;
static struct give gives[MAX_LOCAL];
static char comm_of_all;

static int planted(const char *kind, const char *name, int *number)
{
    char copy[128], *word, *next;
    const char *told = getenv("FAKE_NCCL");

    if (!told)
        return 0;
    snprintf(copy, sizeof copy, "%s", told);
    word = strtok_r(copy, "|", &next);
    if (!word || strcmp(word, kind))
        return 0;
    word = strtok_r(NULL, "|", &next);
    if (name) {
        if (!word || strcmp(word, name))
            return 0;
        word = strtok_r(NULL, "|", &next);
    }
    *number = word ? atoi(word) : 0;
    return 1;
}

static int fault(const char *name)
{
    int code = OK;

    if (planted("hang", name, &code))
        for (;;)
            pause();
    return planted("error", name, &code) ? code : OK;
}

int ncclGetVersion(int *version)
{
    int number = 22105;

    planted("version", NULL, &number);
    *version = number;
    return fault("ncclGetVersion");
}

const char *ncclGetErrorString(int code)
{
    static const char *const words[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage", "remote process exited or there was a network error",
        "NCCL operation in progress"};

    return code >= 0 && code < 8 ? words[code] : "unknown result code";
}

int ncclGetUniqueId(unique_id *id)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int code = fault("ncclGetUniqueId");

    if (code)
        return code;
    if ((door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0 ||
        bind(door, (struct sockaddr *)&at, size) || listen(door, 1) ||
        getsockname(door, (struct sockaddr *)&at, &size))
        return SYSTEM;
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &at.sin_port, sizeof at.sin_port);
    return OK;
}

int ncclCommInitRank(void **comm, int ranks, unique_id id, int rank)
{
    int code = fault("ncclCommInitRank");

    if (code)
        return code;
    if (rank < 0 || rank >= ranks || depth < 1 || joining >= MAX_LOCAL)
        return INVALID;
    if (!joining)
        node = rank > 0;
    memcpy(&meeting, id.internal, sizeof meeting);
    joining++;
    *comm = &comm_of_all;
    return OK;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int sum, void *comm,
                  void *stream)
{
    int code = fault("ncclAllReduce");

    (void)stream;
    if (code)
        return code;
    if (comm != &comm_of_all || type != 7 || sum || depth < 1 || giving >= MAX_LOCAL)
        return USAGE;
    gives[giving].from = from;
    gives[giving].to = to;
    gives[giving++].count = count;
    return OK;
}

static int join_other(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = meeting};

    joining = 0;
    if (node == 0)
        return (line = accept(door, NULL, NULL)) < 0 ? SYSTEM : OK;
    if ((line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        return SYSTEM;
    return connect(line, (struct sockaddr *)&at, sizeof at) ? SYSTEM : OK;
}

static int move(char *data, size_t bytes, int out)
{
    while (bytes) {
        ssize_t n = out ? send(line, data, bytes, MSG_NOSIGNAL) : recv(line, data, bytes, 0);

        if (n <= 0)
            return 6; /* ncclRemoteError */
        data += n;
        bytes -= (size_t)n;
    }
    return OK;
}

static int reduce(void)
{
    size_t count = gives[0].count, bytes = count * sizeof(float), k;
    float *mine = calloc(count, sizeof(float)), *its = calloc(count, sizeof(float));
    int i, rc, number = 0, local = giving;

    giving = 0;
    reduced++;
    if (planted("async", NULL, &number))
        for (;;)
            pause();
    if (planted("slow", NULL, &number))
        usleep((useconds_t)number * 1000);
    for (i = 0; i < local; i++)
        for (k = 0; k < count; k++)
            mine[k] += gives[i].from[k];
    rc = move((char *)(node ? its : mine), bytes, !node);
    if (!rc)
        rc = move((char *)(node ? mine : its), bytes, node);
    for (i = 0; !rc && i < local; i++)
        for (k = 0; k < count; k++)
            gives[i].to[k] = mine[k] + its[k];
    if (!rc && planted("wrong", NULL, &number) && number == reduced)
        gives[local - 1].to[count - 1] += 1.0f;
    free(mine);
    free(its);
    return rc;
}

int ncclGroupStart(void)
{
    depth++;
    return fault("ncclGroupStart");
}

int ncclGroupEnd(void)
{
    int code = fault("ncclGroupEnd");

    if (code || --depth)
        return code;
    if (joining)
        return join_other();
    return giving ? reduce() : OK;
}

int ncclCommGetAsyncError(void *comm, int *code)
{
    (void)comm;
    *code = OK;
    planted("async", NULL, code);
    return OK;
}
