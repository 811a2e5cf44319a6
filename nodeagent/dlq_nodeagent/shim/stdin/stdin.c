/* dlq-stdin: the main process of a rank 0 whose stdin, or whose terminal, is its client's.
 *
 *   dlq-stdin pipe|terminal SOCKET -- COMMAND...
 *   dlq-stdin attach SOCKET
 *
 * Runs the rank's program, forwards signals, and ends as the program did. The client comes by
 * `dlq-stdin attach`, and may come again when its line was cut. With a pipe it is told how many bytes
 * were taken, so none is lost and none comes twice. A terminal's program starts when its client is
 * there; its screen goes to our stdout, too, and so to `dlq logs`.
 * It is part of the job: a restart or a silence of agent and master changes nothing here. */
#include "stdin.h"

#include "../passing_on.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#define ABSENT_MS 120000 /* a terminal without a client does not begin */
#define FAREWELL_MS 10000
#define NO_CLIENT 1

static struct {
    bool terminal;
    char **command;
    pid_t pid;          /* 0: not started */
    int input, screen;  /* what the program reads, and a terminal's other direction (the same); -1 */
    int door, client;   /* -1: none */
    struct flow in, out;
    char head[HEAD], size[4];
    size_t head_used, size_used, frame_left;
    int64_t taken, told;
    bool at_end, told_end;
} our = {.input = -1, .screen = -1, .client = -1, .told = -1};

int flow_out(struct flow *flow, int fd)
{
    while (flow->from < flow->to) {
        ssize_t wrote = write(fd, flow->bytes + flow->from, flow->to - flow->from);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return errno == EAGAIN ? 0 : -1;
        flow->from += (size_t)wrote;
    }
    return 0;
}

int socket_at(const char *path, struct sockaddr_un *address)
{
    char directory[4096];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash - path) >= sizeof directory) {
        errno = EINVAL;
        return -1;
    }
    memcpy(directory, path, (size_t)(slash - path));
    directory[slash - path] = '\0';
    static int at = -1; /* kept: the address names it */
    if (at < 0)
        at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -1;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d%.64s", at, slash);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int fail(const char *what)
{
    dprintf(2, "dlq: %s: %s\n", what, strerror(errno));
    return 125;
}

static bool is_empty(const struct flow *flow)
{
    return flow->from == flow->to;
}

/* ---- the program ---- */

static void in_terminal(int slave)
{
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; fd++)
        dup2(slave, fd);
}

static int start(const struct winsize *size)
{
    int ends[2] = {-1, -1}; /* the program's, and ours */
    if (our.terminal) {
        ends[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (ends[1] < 0 || grantpt(ends[1]) != 0 || unlockpt(ends[1]) != 0)
            return -1;
        ioctl(ends[1], TIOCSWINSZ, size);
        ends[0] = ioctl(ends[1], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    } else if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    our.pid = ends[0] < 0 ? -1 : fork();
    if (our.pid < 0)
        return -1;
    if (our.pid == 0) {
        if (our.terminal)
            in_terminal(ends[0]);
        else
            dup2(ends[0], 0);
        run_program(our.command);
    }
    close(ends[0]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    our.input = ends[1];
    our.screen = our.terminal ? ends[1] : -1;
    return 0;
}

/* Whether a line of the kernel's report on the program has this signal. */
static bool has_signal(const char *line, int number)
{
    char path[64], text[4096] = "";
    snprintf(path, sizeof path, "/proc/%d/status", (int)our.pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    const char *found = got > 0 ? strstr(text, line) : NULL;
    return found != NULL && (strtoull(found + strlen(line), NULL, 16) >> (number - 1)) & 1;
}

/* A shell at a terminal ignores SIGTERM, and leaves at SIGHUP; other programs may have to save. */
static bool leaves_at_hangup(void)
{
    return has_signal("\nSigIgn:", SIGTERM) || has_signal("\nSigCgt:", SIGHUP);
}

/* Before the program has begun, a signal that would end it ends us. */
static bool ends_programs(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT ||
           number == SIGUSR1 || number == SIGUSR2;
}

static void forward(int signals)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (our.pid == 0 && ends_programs(number))
            exit(end_as(number)); /* the status of a program that this signal has ended */
        if (our.pid <= 0 || number == SIGCHLD)
            continue;
        kill(our.pid, number);
        if (our.terminal && number == SIGTERM && leaves_at_hangup())
            kill(our.pid, SIGHUP);
    }
}

/* ---- the client ---- */

static void let_client_go(void)
{
    if (our.client >= 0)
        close(our.client);
    our.client = -1;
}

static void welcome(void)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    int fd = accept4(our.door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != getuid()) {
        close(fd);
        return;
    }
    let_client_go(); /* the one before is behind a cut line */
    our.client = fd;
    our.head_used = our.size_used = our.frame_left = 0;
    our.out.from = our.out.to = 0;
    our.told = -1;
    our.told_end = false;
}

static void close_input(void)
{
    if (our.input >= 0 && !our.terminal) {
        close(our.input);
        our.input = -1;
    }
    our.in.from = our.in.to = 0;
}

/* A line for a client with a pipe, when the last one has gone. */
static void tell(void)
{
    if (our.terminal || our.client < 0 || !is_empty(&our.out))
        return;
    char *line = our.out.bytes;
    int length = 0;
    if (our.told != our.taken)
        length = sprintf(line, "taken %lld\n", (long long)our.taken);
    if (our.input < 0 && !our.told_end)
        length += sprintf(line + length, our.at_end ? "end\n" : "closed\n");
    our.told = our.taken;
    our.told_end = our.input < 0;
    our.out.from = 0;
    our.out.to = (size_t)length;
}

static void resize(void)
{
    const unsigned char *at = (const unsigned char *)our.size;
    struct winsize size = {.ws_col = (unsigned short)(at[0] << 8 | at[1]),
                           .ws_row = (unsigned short)(at[2] << 8 | at[3])};
    if (our.pid == 0) {
        if (start(&size) != 0)
            _exit(fail("cannot give a terminal"));
    } else {
        ioctl(our.screen, TIOCSWINSZ, &size);
    }
}

/* The head of the next frame, or what comes without data. False: the client must go. */
static bool hear_head(void)
{
    ssize_t got = read(our.client, our.head + our.head_used, HEAD - our.head_used);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    our.head_used += (size_t)got;
    if (got == 0 || our.head_used < HEAD)
        return got > 0;
    our.head_used = 0;
    for (int at = 1; at < HEAD; at++)
        our.frame_left = our.frame_left << 8 | (unsigned char)our.head[at];
    if (our.head[0] == END) {
        our.at_end = true;
        close_input();
    }
    if (our.head[0] == SIZE)
        return our.terminal && our.frame_left == sizeof our.size;
    return our.frame_left <= (our.head[0] == DATA ? PIECE : 0);
}

static bool hear_body(void)
{
    bool data = our.head[0] == DATA;
    char *into = data ? our.in.bytes : our.size + our.size_used;
    ssize_t got = read(our.client, into, our.frame_left);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    our.frame_left -= (size_t)got;
    if (data) {
        our.taken += got;
        our.in.from = 0;
        our.in.to = our.input < 0 ? 0 : (size_t)got; /* what nobody reads is taken all the same */
    } else if ((our.size_used += (size_t)got) == sizeof our.size) {
        our.size_used = 0;
        resize();
    }
    return got > 0;
}

static void serve(short events)
{
    if (our.client >= 0 && (events & (POLLIN | POLLHUP | POLLERR)) && is_empty(&our.in) &&
        !(our.frame_left > 0 ? hear_body() : hear_head()))
        let_client_go();
    if (our.client >= 0 && flow_out(&our.out, our.client) != 0)
        let_client_go();
}

/* A piece of the screen, for the log and for the client. False: there is none now. */
static bool show(void)
{
    ssize_t got = read(our.screen, our.out.bytes, PIECE);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) { /* the last program has closed it */
        our.screen = -1;
        return false;
    }
    write_whole(1, our.out.bytes, (size_t)got);
    our.out.from = 0;
    our.out.to = our.client < 0 ? 0 : (size_t)got;
    return true;
}

/* ---- */

/* Until the program has ended; its status. */
static int stay(int signals)
{
    int status;
    for (;;) {
        tell();
        bool room = is_empty(&our.out);
        struct pollfd fds[] = {
            {.fd = signals, .events = POLLIN},
            {.fd = our.door, .events = POLLIN},
            {.fd = our.client,
             .events = (short)((is_empty(&our.in) ? POLLIN : 0) | (room ? 0 : POLLOUT))},
            {.fd = is_empty(&our.in) && our.terminal ? -1 : our.input,
             .events = is_empty(&our.in) ? 0 : POLLOUT},
            {.fd = room ? our.screen : -1, .events = POLLIN}};
        if (poll(fds, 5, our.pid == 0 ? ABSENT_MS : -1) == 0 && our.pid == 0) {
            dprintf(2, "dlq: no client has come to this terminal\n");
            exit(NO_CLIENT);
        }
        if (fds[0].revents != 0)
            forward(signals);
        if (our.pid > 0 && waitpid(our.pid, &status, WNOHANG) == our.pid)
            return status;
        if (fds[2].revents != 0)
            serve(fds[2].revents);
        if (fds[1].revents != 0)
            welcome();
        if (fds[3].revents & POLLERR && !our.terminal)
            close_input(); /* the program reads no more */
        else if (!is_empty(&our.in) && our.input >= 0 && flow_out(&our.in, our.input) != 0)
            close_input();
        if (fds[4].revents != 0)
            show();
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The rest of the screen goes out; then the client has a bounded time to take it. */
static void say_farewell(void)
{
    int64_t until = now_ms() + FAREWELL_MS;
    while (our.screen >= 0 || !is_empty(&our.out)) {
        if (is_empty(&our.out) && (our.screen < 0 || !show()))
            break;
        struct pollfd its = {.fd = our.client, .events = POLLOUT};
        if (our.client >= 0 && !is_empty(&our.out))
            poll(&its, 1, now_ms() < until ? (int)(until - now_ms()) : 0);
        if (our.client < 0 || flow_out(&our.out, our.client) != 0 || now_ms() >= until)
            let_client_go(), our.out.from = our.out.to = 0;
    }
    if (our.client < 0 || !our.terminal)
        return;
    shutdown(our.client, SHUT_WR);
    char rest[512];
    struct pollfd its = {.fd = our.client, .events = POLLIN};
    while (now_ms() < until && poll(&its, 1, (int)(until - now_ms())) > 0)
        if (read(our.client, rest, sizeof rest) <= 0)
            return;
}

static int open_door(const char *path)
{
    struct sockaddr_un address;
    our.door = socket_at(path, &address);
    if (our.door < 0)
        return -1;
    mode_t mask = umask(077);
    unlink(path);
    int failed = bind(our.door, (struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (failed != 0 || listen(our.door, 4) != 0)
        return -1;
    return fcntl(our.door, F_SETFL, O_NONBLOCK);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "attach") == 0)
        return attach_main(argv[2]);
    if (argc < 5 || strcmp(argv[3], "--") != 0) {
        dprintf(2, "dlq-stdin: pipe|terminal SOCKET -- COMMAND...\n");
        return 125;
    }
    our.terminal = strcmp(argv[1], "terminal") == 0;
    our.command = argv + 4;
    int signals = catch_all();
    if (signals < 0 || open_door(argv[2]) != 0)
        return fail("cannot take a client's stdin");
    if (!our.terminal && start(NULL) != 0)
        return fail("cannot start");
    int status = stay(signals);
    say_farewell();
    return end_as(status);
}
