/* dlq-stdin attach: started by `dlq exec`'s way in for a client of `dlq run`. Carries its bytes to the
 * rank's main process, and that one's words, or the terminal's screen, back. When the line is cut it
 * is killed, and nothing that it says could be taken for the end of the input. */
#include "stdin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define ROUND_MS 20
#define PATIENCE_ROUNDS 500 /* the rank may have started a moment ago */

static int connected(const char *path)
{
    struct sockaddr_un address;
    for (int round = 0; round < PATIENCE_ROUNDS; round++) {
        int fd = socket_at(path, &address);
        if (fd < 0)
            return -1;
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        if (errno != ENOENT && errno != ECONNREFUSED)
            return -1;
        poll(NULL, 0, ROUND_MS);
    }
    return -1;
}

static void put_head(struct flow *flow, char letter, size_t length)
{
    flow->bytes[0] = letter;
    for (int at = 1; at < HEAD; at++)
        flow->bytes[at] = (char)(length >> (8 * (HEAD - 1 - at)));
    flow->from = 0;
    flow->to = HEAD + length;
}

static void put_size(struct flow *flow)
{
    struct winsize size = {.ws_col = 80, .ws_row = 24};
    ioctl(0, TIOCGWINSZ, &size);
    char *at = flow->bytes + HEAD;
    at[0] = (char)(size.ws_col >> 8), at[1] = (char)size.ws_col;
    at[2] = (char)(size.ws_row >> 8), at[3] = (char)size.ws_row;
    put_head(flow, SIZE, 4);
}

static int become_raw(void)
{
    struct termios settings;
    sigset_t resized;
    if (tcgetattr(0, &settings) == 0) {
        cfmakeraw(&settings);
        tcsetattr(0, TCSANOW, &settings);
    }
    sigemptyset(&resized);
    sigaddset(&resized, SIGWINCH);
    sigprocmask(SIG_BLOCK, &resized, NULL);
    return signalfd(-1, &resized, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Reads into an empty flow; false: there is no more. The keys of a terminal get a head. */
static bool fill(struct flow *flow, int fd, bool keys)
{
    ssize_t got = read(fd, flow->bytes + (keys ? HEAD : 0), PIECE);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    flow->from = 0;
    flow->to = (size_t)got;
    if (keys && got > 0)
        put_head(flow, DATA, (size_t)got);
    return got > 0;
}

static bool is_empty(const struct flow *flow)
{
    return flow->from == flow->to;
}

/* Until the rank closes the socket, or the reader of our output has gone. */
static int carry(int rank, int resized)
{
    static struct flow in, out;
    bool keys = resized >= 0, open_in = true, open_out = true;
    if (keys)
        put_size(&in);
    while (open_out || !is_empty(&out)) {
        struct pollfd fds[] = {
            {.fd = is_empty(&in) && open_in ? 0 : -1, .events = POLLIN},
            {.fd = open_out || !is_empty(&in) ? rank : -1,
             .events = (short)((is_empty(&in) ? 0 : POLLOUT) |
                               (is_empty(&out) && open_out ? POLLIN : 0))},
            {.fd = is_empty(&out) ? -1 : 1, .events = POLLOUT},
            {.fd = is_empty(&in) ? resized : -1, .events = POLLIN}};
        poll(fds, 4, -1);
        struct signalfd_siginfo info;
        if (fds[3].revents != 0 && read(resized, &info, sizeof info) > 0)
            put_size(&in);
        else if (fds[0].revents != 0)
            open_in = fill(&in, 0, keys);
        if (fds[1].revents & (POLLIN | POLLHUP | POLLERR) && is_empty(&out) && open_out)
            open_out = fill(&out, rank, false);
        if (!is_empty(&in) && flow_out(&in, rank) != 0)
            in.from = in.to = 0, open_in = false;
        if (!is_empty(&out) && flow_out(&out, 1) != 0)
            return 1;
    }
    return 0;
}

int attach_main(const char *path)
{
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "dlq-stdin-attach");
    int rank = connected(path);
    if (rank < 0) {
        dprintf(2, "dlq: the job's stdin cannot be reached: %s\n", strerror(errno));
        return 1;
    }
    int resized = isatty(0) ? become_raw() : -1;
    for (int fd = 0; fd < 2; fd++)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(rank, F_SETFL, O_NONBLOCK);
    return carry(rank, resized);
}
