/* Who listens on a port? The kernel answers for one port in microseconds. /proc/net/tcp, for hosts
 * that do not let us ask, is a walk over a table of all connections that there may be. */
#include "listening.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENING 0x0A
#define ANSWER_BYTES 16384

struct address {
    uint32_t part[4]; /* as on the wire; of IPv4 the first one alone */
    bool is_6;
};

static bool is_any(const struct address *at)
{
    return (at->part[0] | at->part[1] | at->part[2] | at->part[3]) == 0;
}

static bool is_v4_loopback(const struct address *at)
{
    bool disguised = at->is_6 && (at->part[0] | at->part[1]) == 0 && at->part[2] == htonl(0xffff);
    return at->part[disguised ? 3 : 0] == htonl(INADDR_LOOPBACK) && (disguised || !at->is_6);
}

static bool is_v6_loopback(const struct address *at)
{
    return at->is_6 && (at->part[0] | at->part[1] | at->part[2]) == 0 && at->part[3] == htonl(1);
}

/* 127.0.0.1 reaches a socket of IPv6 too if that is open to all, or is IPv4 in disguise. One that
 * is open to all of IPv6 alone may stand beside another program's of IPv4: 127.0.0.1 is that. */
static void add(const struct address *at, unsigned long inode, bool has_4, struct listeners *found)
{
    if (found->count == MOST_LISTENERS)
        return;
    if (!is_any(at) && !is_v4_loopback(at) && !is_v6_loopback(at))
        return;
    bool on_6 = is_v6_loopback(at) || (at->is_6 && has_4 && is_any(at));
    found->each[found->count++] = (struct listener){inode, on_6};
}

/* ---- the kernel's answer ---- */

static bool ask(int line, int family, int port)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } request = {
        .head = {.nlmsg_len = sizeof request,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = (uint8_t)family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = 1u << LISTENING,
                 .id.idiag_sport = htons((uint16_t)port)},
    };
    return send(line, &request, sizeof request, 0) == (ssize_t)sizeof request;
}

/* One message. True: there are more. */
static bool take(const struct nlmsghdr *head, int port, bool has_4, struct listeners *found)
{
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return false; /* the end, or an error */
    const struct inet_diag_msg *one = NLMSG_DATA(head);
    struct address at = {.is_6 = one->idiag_family == AF_INET6};
    memcpy(at.part, one->id.idiag_src, at.is_6 ? 16 : 4);
    if (one->idiag_state == LISTENING && one->id.idiag_sport == htons((uint16_t)port))
        add(&at, one->idiag_inode, has_4, found);
    return true;
}

/* False: it does not answer. */
static bool asked(int line, int family, int port, struct listeners *found)
{
    static char answer[ANSWER_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
    bool has_4 = found->count > 0; /* IPv4 comes first */
    if (!ask(line, family, port))
        return false;
    for (;;) {
        ssize_t got = recv(line, answer, sizeof answer, 0);
        if (got <= 0)
            return false;
        size_t left = (size_t)got;
        const struct nlmsghdr *head = (const void *)answer;
        for (; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left))
            if (!take(head, port, has_4, found))
                return head->nlmsg_type == NLMSG_DONE;
    }
}

static bool ask_kernel(int port, struct listeners *found)
{
    int line = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (line < 0)
        return false;
    bool done = asked(line, AF_INET, port, found) && asked(line, AF_INET6, port, found);
    close(line);
    return done;
}

/* ---- the tables ---- */

/* Four hexadecimal words, or one; each as it lies in memory. */
static bool read_address(const char *text, struct address *at)
{
    *at = (struct address){.is_6 = strlen(text) == 32};
    for (size_t word = 0; word < (at->is_6 ? 4 : 1); word++)
        if (sscanf(text + 8 * word, "%8x", &at->part[word]) != 1)
            return false;
    return true;
}

static void read_table(const char *path, int port, struct listeners *found)
{
    char line[512], text[64];
    unsigned place, state;
    unsigned long inode;
    struct address at;
    bool has_4 = found->count > 0; /* the table of IPv4 comes first */
    FILE *table = fopen(path, "re");
    if (table == NULL)
        return;
    while (fgets(line, sizeof line, table) != NULL) {
        if (sscanf(line, " %*d: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*u %*u %lu", text,
                   &place, &state, &inode) != 4)
            continue;
        if (state == LISTENING && (int)place == port && read_address(text, &at))
            add(&at, inode, has_4, found);
    }
    fclose(table);
}

void find_listeners(int port, struct listeners *found)
{
    found->count = 0;
    if (ask_kernel(port, found))
        return;
    found->count = 0;
    read_table("/proc/net/tcp", port, found);
    read_table("/proc/net/tcp6", port, found);
}
