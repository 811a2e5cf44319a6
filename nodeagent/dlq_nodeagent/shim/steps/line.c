/* Connections between the programs of one job. On a node they are a unix socket in the attempt's
 * own directory, which other users cannot enter. Between nodes they are TCP, and both sides prove
 * that they know the attempt's key. The bytes that follow are not encrypted, as in Slurm. */
#include "steps.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_NAME "steps.sock"
#define HANDSHAKE_MS 10000
#define DIAL_MS 10000
#define DIAL_AGAIN_MS 50
#define STARTING_MS 60000
#define NONCE_BYTES 32

/* ---- unix ---- */

/* By a descriptor of the directory: the path may be longer than an address, and no link is followed
 * in its last part. */
static int open_address(const char *directory, struct sockaddr_un *address)
{
    int at = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    if (at >= 0 && (fstat(at, &info) != 0 || info.st_uid != geteuid())) {
        close(at);
        errno = EACCES;
        return -1;
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/" SOCKET_NAME, at);
    return at;
}

int listen_unix(const char *directory)
{
    struct sockaddr_un address;
    int at = open_address(directory, &address);
    if (at < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(077);
    unlinkat(at, SOCKET_NAME, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                 listen(fd, 128) == 0;
    umask(mask);
    int error = errno;
    close(at);
    if (bound)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

bool admit_unix(int fd)
{
    return same_user(fd);
}

int dial_unix(const char *directory)
{
    struct sockaddr_un address;
    struct stat info;
    int at = open_address(directory, &address);
    if (at < 0)
        return -1;
    int fd = -1;
    if (fstatat(at, SOCKET_NAME, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode) &&
        info.st_uid == geteuid())
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || !same_user(fd))) {
        close(fd);
        fd = -1;
    }
    close(at);
    return fd;
}

/* ---- tcp ---- */

static bool parse_address(const char *text, int port, struct sockaddr_storage *address,
                          socklen_t *size)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        *size = sizeof *four;
        return true;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    *size = sizeof *six;
    return inet_pton(AF_INET6, text, &six->sin6_addr) == 1;
}

/* A node that dies says nothing: after 20 s its connections are over. */
static void keep_alive(int fd)
{
    int one = 1, idle_s = 5, every_s = 5, count = 3, silent_ms = 20000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int listen_tcp(const char *text, int port)
{
    struct sockaddr_storage address;
    socklen_t size;
    int one = 1;
    if (!parse_address(text, port, &address, &size))
        return -1;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 128) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The rank that is asked is part of the proof: a relay cannot answer for another. */
static void prove(const struct who *who, const char *side, int asked,
                  const unsigned char nonces[2 * NONCE_BYTES], unsigned char out[32])
{
    char said[16 + 2 * NONCE_BYTES] = {0};
    snprintf(said, 16, "%s %d", side, asked);
    memcpy(said + 16, nonces, 2 * NONCE_BYTES);
    hmac_sha256(who->key, KEY_BYTES, said, sizeof said, out);
}

bool admit_tcp(int fd, const struct who *who)
{
    unsigned char nonces[2 * NONCE_BYTES], said[NONCE_BYTES + 32], wanted[32];
    keep_alive(fd);
    if (!who->has_key || getrandom(nonces, NONCE_BYTES, 0) != NONCE_BYTES ||
        !send_all(fd, nonces, NONCE_BYTES) || !receive_all(fd, said, sizeof said, HANDSHAKE_MS))
        return false;
    memcpy(nonces + NONCE_BYTES, said, NONCE_BYTES);
    prove(who, "asks", who->rank, nonces, wanted);
    if (!same_bytes(wanted, said + NONCE_BYTES, 32))
        return false;
    prove(who, "says", who->rank, nonces, wanted);
    return send_all(fd, wanted, 32);
}

static bool introduce(int fd, const struct who *who, int asked)
{
    unsigned char nonces[2 * NONCE_BYTES], said[NONCE_BYTES + 32], wanted[32];
    if (!receive_all(fd, nonces, NONCE_BYTES, HANDSHAKE_MS) ||
        getrandom(nonces + NONCE_BYTES, NONCE_BYTES, 0) != NONCE_BYTES)
        return false;
    memcpy(said, nonces + NONCE_BYTES, NONCE_BYTES);
    prove(who, "asks", asked, nonces, said + NONCE_BYTES);
    if (!send_all(fd, said, sizeof said) || !receive_all(fd, said, 32, HANDSHAKE_MS))
        return false;
    prove(who, "says", asked, nonces, wanted);
    return same_bytes(wanted, said, 32);
}

static bool connect_within(int fd, const struct sockaddr *address, socklen_t size, int timeout_ms)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (connect(fd, address, size) == 0)
        return true;
    if (errno != EINPROGRESS || poll(&wait, 1, timeout_ms) <= 0)
        return false;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

static int dial_tcp(const struct who *who, const struct peer *peer)
{
    struct sockaddr_storage address;
    socklen_t size;
    if (!parse_address(peer->address, peer->port, &address, &size))
        return -1;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    keep_alive(fd);
    if (connect_within(fd, (struct sockaddr *)&address, size, DIAL_MS) && introduce(fd, who, (int)(peer - who->peers)))
        return fd;
    close(fd);
    return -1;
}

int dial_once(const struct who *who, int node)
{
    return node == who->rank ? dial_unix(who->job_dir) : dial_tcp(who, &who->peers[node]);
}

int dial_peer(const struct who *who, int node, char *words, size_t size)
{
    int64_t until = now_ms() + STARTING_MS;
    int fd = dial_once(who, node);
    /* Ranks start at different times. The master ends the job if one does not. */
    while (fd < 0 && node != who->rank && now_ms() < until) {
        poll(NULL, 0, DIAL_AGAIN_MS);
        fd = dial_once(who, node);
    }
    if (fd < 0)
        snprintf(words, size, "node %s cannot be reached", who->peers[node].name);
    return fd;
}

/* ---- who the job is, from its main process to a program of it ---- */

static bool take_peer(struct who *who, const char *text)
{
    struct peer *peer = &who->peers[who->node_count];
    if (who->node_count == MOST_NODES ||
        sscanf(text, "%63s %63s %d %d %d", peer->name, peer->address, &peer->port, &peer->gpus,
               &peer->cpus) != 5)
        return false;
    who->node_count++;
    return true;
}

static bool take_key(struct who *who, const char *text)
{
    if (strlen(text) != 2 * KEY_BYTES)
        return false;
    for (int at = 0; at < KEY_BYTES; at++) {
        unsigned byte;
        if (sscanf(text + 2 * at, "%2x", &byte) != 1)
            return false;
        who->key[at] = (unsigned char)byte;
    }
    who->has_key = true;
    return true;
}

bool who_parse(struct who *who, char *records, size_t length)
{
    char *at = records, *value, *key;
    size_t count = 0;
    who->environment = must_have(calloc(length / 2 + 2, sizeof *who->environment));
    while ((key = record_next(&at, records + length, &value)) != NULL) {
        long number;
        if (strcmp(key, "peer") == 0 && !take_peer(who, value))
            return false;
        if (strcmp(key, "key") == 0 && !take_key(who, value))
            return false;
        if (strcmp(key, "rank") == 0 && parse_long(value, MOST_NODES - 1, &number))
            who->rank = (int)number;
        if (strcmp(key, "job") == 0)
            snprintf(who->job, sizeof who->job, "%s", value);
        if (strcmp(key, "user") == 0)
            snprintf(who->user, sizeof who->user, "%s", value);
        if (strcmp(key, "dir") == 0)
            snprintf(who->job_dir, sizeof who->job_dir, "%s", value);
        if (strcmp(key, "env") == 0)
            who->environment[count++] = strdup(value);
    }
    return who->node_count > 0 && who->rank < who->node_count;
}

void who_write(const struct who *who, struct bytes *bytes)
{
    char text[256];
    bytes_number(bytes, "rank", who->rank);
    bytes_record(bytes, "job", who->job);
    bytes_record(bytes, "user", who->user);
    bytes_record(bytes, "dir", who->job_dir);
    if (who->has_key) {
        for (int at = 0; at < KEY_BYTES; at++)
            snprintf(text + 2 * at, 3, "%02x", who->key[at]);
        bytes_record(bytes, "key", text);
    }
    for (int at = 0; at < who->node_count; at++) {
        const struct peer *peer = &who->peers[at];
        snprintf(text, sizeof text, "%s %s %d %d %d", peer->name, peer->address, peer->port,
                 peer->gpus, peer->cpus);
        bytes_record(bytes, "peer", text);
    }
    for (char **at = who->environment; *at != NULL; at++)
        bytes_record(bytes, "env", *at);
}
