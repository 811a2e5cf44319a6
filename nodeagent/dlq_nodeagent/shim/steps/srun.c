/* `srun` inside a job: asks rank 0 for a step, starts its tasks on each node of it, and passes bytes,
 * signals and exit codes. Outside of a job it becomes `dlq slurm srun`. */
#include "steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW_BYTES (64 << 10)
#define KILL_WAIT_MS 5000

extern char **environ;

struct node {
    int fd, index; /* -1: its tasks are over */
    struct part part;
    struct bytes heard;
    struct usage usage;
    uint64_t sent, taken;
};

struct rank {
    int node, out, err; /* files, or 1 and 2 */
    bool over, middle;  /* middle: of a line */
};

static struct options options;
static struct who who;
static struct grant grant;
static struct node nodes[MOST_NODES];
static struct rank ranks[MOST_TASKS];
static int control, signals, input, code, left;
static bool ending, tapped, input_over;
static int64_t kill_ms;
static struct bytes control_heard;

static _Noreturn void fail(const char *words)
{
    fprintf(stderr, "srun: error: %s\n", words);
    exit(1);
}

/* Outside of a job with compat = slurm: to the program that asks the master. */
static _Noreturn void delegate(int argc, char **argv)
{
    char path[4096 + 32];
    char **words = must_have(calloc((size_t)argc + 1, sizeof *words));
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    if (length > 0) {
        path[length] = '\0';
        strcpy(strrchr(path, '/'), "/../lib/slow/srun");
        memcpy(words, argv, (size_t)argc * sizeof *words);
        execv(path, words);
    }
    fprintf(stderr, "srun: error: this is no job with compat = slurm, and %s is not here\n", path);
    exit(127);
}

/* ---- the step ---- */

static void ask_who(int argc, char **argv)
{
    char words[256];
    struct frame frame;
    char *payload;
    int fd = dial_own(options.job, words, sizeof words);
    if (fd < 0)
        delegate(argc, argv);
    if (!send_frame(fd, ASK_WHO, 0, "", 0) || !receive_frame(fd, 10000, &frame, &payload) ||
        frame.type != SAY_WHO || !who_parse(&who, payload, frame.length))
        fail("the main process of this rank does not answer");
    close(fd);
}

static bool in_list(const char *name, char list[][MOST_NAME], int count)
{
    for (int at = 0; at < count; at++)
        if (strcmp(list[at], name) == 0)
            return true;
    return false;
}

static void choose_candidates(struct wish *wish)
{
    static char wanted[MOST_NODES][MOST_NAME], not[MOST_NODES][MOST_NAME];
    int want = options.nodelist == NULL ? 0 : hosts_expand(options.nodelist, wanted, MOST_NODES);
    int avoid = options.exclude == NULL ? 0 : hosts_expand(options.exclude, not, MOST_NODES);
    int found = 0, first = options.relative > 0 ? options.relative : 0;
    if (want < 0 || avoid < 0)
        fail("Invalid node list");
    for (int turn = 0; turn < 2; turn++)
        for (int node = first; node < who.node_count; node++) {
            bool named = in_list(who.peers[node].name, wanted, want);
            if (named != (turn == 0) || in_list(who.peers[node].name, not, avoid))
                continue;
            wish->candidates[wish->candidate_count++] = (uint16_t)node;
            found += named;
        }
    if (found < want)
        fail("Unable to create step: Requested node configuration is not available");
    if (want > 0 && (int)wish->nodes_min < want)
        wish->nodes_min = (uint32_t)want;
}

static void make_wish(struct wish *wish)
{
    int job_nodes = who.node_count, each = options.tasks_per_node;
    char words[128];
    if (options.nodes_min > job_nodes) {
        snprintf(words, sizeof words, "Only allocated %d nodes asked for %d", job_nodes, options.nodes_min);
        fail(words);
    }
    int least = options.nodes_min > 0 ? options.nodes_min : options.tasks_said ? 1 : job_nodes;
    int most = options.nodes_max > 0 ? options.nodes_max : job_nodes;
    int tasks = options.tasks > 0 && (options.tasks_said || !options.nodes_said) ? options.tasks
                : least * (each > 0 ? each : 1);
    if (tasks < least)
        least = tasks;
    wish->nodes_min = (uint32_t)least;
    wish->nodes_max = (uint32_t)(most < least ? least : most);
    wish->tasks = (uint32_t)tasks;
    wish->tasks_per_node = (uint32_t)each;
    wish->cpus_per_task = (uint32_t)options.cpus_per_task;
    wish->gpus_per_task = (uint32_t)options.gpus_per_task;
    wish->gpus_per_node = (uint32_t)options.gpus_per_node;
    wish->gpus = (uint32_t)options.gpus;
    wish->flags = (options.overlap ? SHARES : 0) | (options.exact || options.cpus_per_task > 0 ? EXACT : 0) |
                  (options.overcommit ? OVERCOMMITS : 0) | (options.no_gpus ? NO_GPUS : 0);
    const char *slash = strrchr(options.command[0], '/');
    snprintf(wish->name, sizeof wish->name, "%s",
             options.name != NULL ? options.name : slash != NULL ? slash + 1 : options.command[0]);
    choose_candidates(wish);
}

static void get_step(void)
{
    static struct wish wish;
    char words[512];
    struct frame frame;
    char *payload;
    bool waited = false;
    make_wish(&wish);
    control = dial_peer(&who, 0, words, sizeof words);
    if (control < 0 || !send_frame(control, ASK_STEP, 0, &wish, sizeof wish))
        fail(words);
    for (;;) {
        if (!receive_frame(control, -1, &frame, &payload))
            fail("the job has ended");
        if (frame.type == SAY_WAIT && !options.quiet)
            fprintf(stderr, "srun: Job %s step creation temporarily disabled, retrying (Requested nodes are busy)\n",
                    who.job);
        waited = waited || frame.type == SAY_WAIT;
        if (frame.type == SAY_REFUSED) {
            snprintf(words, sizeof words, "Unable to create step for job %s: %s", who.job, payload);
            fail(words);
        }
        if (frame.type == SAY_GRANT && frame.length == sizeof grant)
            break;
        free(payload);
    }
    memcpy(&grant, payload, sizeof grant);
    free(payload);
    if (waited && !options.quiet)
        fprintf(stderr, "srun: Step created for job %s\n", who.job);
}

/* ---- the tasks' places, files and variables ---- */

static void place_tasks(void)
{
    int next = 0, given[MOST_NODES] = {0};
    for (uint32_t at = 0; at < grant.count; at++)
        nodes[at] = (struct node){.fd = -1, .index = (int)at, .part = grant.parts[at]};
    for (int rank = 0, at = 0; options.cyclic && rank < MOST_TASKS && next >= 0; at = (at + 1) % (int)grant.count) {
        if (given[at] < grant.parts[at].tasks) {
            ranks[rank++].node = at;
            given[at]++;
        }
        int total = 0;
        for (uint32_t each = 0; each < grant.count; each++)
            total += grant.parts[each].tasks - given[each];
        next = total == 0 ? -1 : next;
        left = rank;
    }
    for (uint32_t at = 0; !options.cyclic && at < grant.count; at++)
        for (int task = 0; task < grant.parts[at].tasks; task++)
            ranks[left++].node = (int)at;
}

static void fill(const char *pattern, int rank, char *out, size_t size)
{
    size_t used = 0;
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *index = getenv("SLURM_ARRAY_TASK_ID");
    for (; *pattern != '\0' && used + 80 < size; pattern++) {
        int width = 0;
        const char *at = pattern + 1;
        if (*pattern != '%') {
            out[used++] = *pattern;
            continue;
        }
        while (*at >= '0' && *at <= '9' && width < 10)
            width = 10 * width + *at++ - '0';
        width = width > 10 ? 10 : width;
        pattern = at;
        const char *name = getenv("SLURM_JOB_NAME");
        int node = rank < 0 ? 0 : ranks[rank].node;
        switch (*at) {
        case 't': used += (size_t)sprintf(out + used, "%0*d", width, rank < 0 ? 0 : rank); break;
        case 'n': used += (size_t)sprintf(out + used, "%0*d", width, node); break;
        case 's': used += (size_t)sprintf(out + used, "%0*u", width, grant.step); break;
        case 'j': used += (size_t)sprintf(out + used, "%0*ld", width, atol(who.job)); break;
        case 'J': used += (size_t)sprintf(out + used, "%s.%u", who.job, grant.step); break;
        case 'A': used += (size_t)sprintf(out + used, "%.24s", array != NULL ? array : who.job); break;
        case 'a': used += (size_t)sprintf(out + used, "%.24s", index != NULL ? index : "4294967294"); break;
        case 'N': used += (size_t)sprintf(out + used, "%s", who.peers[nodes[node].part.node].name); break;
        case 'u': used += (size_t)sprintf(out + used, "%s", who.user); break;
        case 'x': used += (size_t)sprintf(out + used, "%.64s", name != NULL ? name : ""); break;
        case '%': out[used++] = '%'; break;
        default: out[used++] = '%'; pattern = at - 1; break;
        }
    }
    out[used] = '\0';
}

static int open_for(const char *pattern, int rank, int other)
{
    char path[4200];
    if (pattern == NULL || *pattern == '\0' || strcmp(pattern, "all") == 0)
        return other;
    fill(strcmp(pattern, "none") == 0 ? "/dev/null" : pattern, rank, path, sizeof path);
    bool again = rank > 0 && strstr(pattern, "%") == NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (options.truncate && !again ? O_TRUNC : O_APPEND), 0666);
    if (fd < 0) {
        fprintf(stderr, "srun: error: Could not open stdout file: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return fd;
}

static bool is_the_ranks_own(const char *variable)
{
    static const char *const PREFIXES[] = {"SLURM", "DLQ_", "PET_", "MASTER_", "NODE_RANK=", "NNODES=",
                                           "NPROC_PER_NODE=", "CUDA_VISIBLE_DEVICES="};
    for (size_t at = 0; at < sizeof PREFIXES / sizeof *PREFIXES; at++)
        if (strncmp(variable, PREFIXES[at], strlen(PREFIXES[at])) == 0)
            for (char **own = who.environment; *own != NULL; own++)
                if (strcmp(*own, variable) == 0)
                    return true;
    return false;
}

/* Variables that the user has changed or added; each node knows its own of the job. */
static void add_environment(struct bytes *out)
{
    const char *words = options.export != NULL ? options.export : "ALL";
    bool all = strstr(words, "ALL") != NULL;
    for (char **at = environ; *at != NULL && strcmp(words, "NONE") != 0; at++) {
        size_t length = strcspn(*at, "=");
        bool named = false;
        for (const char *word = words; *word != '\0'; word += strcspn(word, ","), word += *word == ',')
            named = named || (strcspn(word, ",=") == length && strncmp(word, *at, length) == 0);
        if ((all || named || strncmp(*at, "PATH=", 5) == 0) && !is_the_ranks_own(*at))
            bytes_record(out, "env", *at);
    }
    char *copy = strdup(words), *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;)
        if (strchr(word, '=') != NULL)
            bytes_record(out, "env", word);
    free(copy);
}

static void add_variable(struct bytes *out, const char *name, const char *value)
{
    char text[8192];
    snprintf(text, sizeof text, "%s=%s", name, value);
    bytes_record(out, "env", text);
}

static void add_count(struct bytes *out, const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    add_variable(out, name, text);
}

static void add_step(struct bytes *out)
{
    char list[8192] = "", each[8192] = "";
    for (uint32_t at = 0; at < grant.count; at++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", at > 0 ? "," : "", who.peers[grant.parts[at].node].name);
        uint32_t same = 1;
        while (at + same < grant.count && grant.parts[at + same].tasks == grant.parts[at].tasks)
            same++;
        if (at == 0 || grant.parts[at - 1].tasks != grant.parts[at].tasks) {
            used = strlen(each);
            snprintf(each + used, sizeof each - used, same > 1 ? "%s%d(x%u)" : "%s%d", at > 0 ? "," : "",
                     grant.parts[at].tasks, same);
        }
    }
    static const char *const STEP[] = {"SLURM_STEP_ID", "SLURM_STEPID"};
    static const char *const TASKS[] = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"};
    static const char *const EACH[] = {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"};
    static const char *const COUNT[] = {"SLURM_NNODES", "SLURM_STEP_NUM_NODES"};
    for (int at = 0; at < 2; at++) {
        add_count(out, STEP[at], grant.step);
        add_variable(out, EACH[at], each);
        add_count(out, COUNT[at], grant.count);
    }
    for (int at = 0; at < 3; at++)
        add_count(out, TASKS[at], left);
    add_variable(out, "SLURM_STEP_NODELIST", list);
    add_variable(out, "SLURM_NODELIST", list);
    add_variable(out, "SLURM_DISTRIBUTION", options.cyclic ? "cyclic" : "block");
    if (options.cpus_per_task > 0)
        add_count(out, "SLURM_CPUS_PER_TASK", options.cpus_per_task);
}

static void launch(struct node *node)
{
    struct bytes out = {0};
    char text[4200], words[256];
    bytes_number(&out, "step", grant.step);
    snprintf(text, sizeof text, "%llx", (unsigned long long)node->part.gpus);
    bytes_record(&out, "gpus", text);
    bytes_number(&out, "gpus_per_task", options.gpus_per_task);
    bytes_record(&out, "gpu_bind", options.gpu_bind != NULL ? options.gpu_bind : "");
    mode_t mask = umask(0);
    umask(mask);
    bytes_number(&out, "umask", mask);
    if (options.chdir == NULL && getcwd(text, sizeof text) == NULL)
        strcpy(text, "/");
    bytes_record(&out, "cwd", options.chdir != NULL ? options.chdir : text);
    add_environment(&out);
    add_step(&out);
    for (char **word = options.command; *word != NULL; word++)
        bytes_record(&out, "arg", *word);
    for (int rank = 0; rank < left; rank++)
        if (ranks[rank].node == node->index) {
            bytes_number(&out, "task", rank);
            bytes_record(&out, "input", "yes");
        }
    node->fd = dial_peer(&who, node->part.node, words, sizeof words);
    if (node->fd < 0 || !send_frame(node->fd, ASK_LAUNCH, 0, out.data, out.used))
        fail(words);
    bytes_free(&out);
}

/* ---- the end of tasks ---- */

static void send_to_all(enum frame_type type, const void *data, size_t length)
{
    for (uint32_t at = 0; at < grant.count; at++)
        if (nodes[at].fd >= 0)
            send_frame(nodes[at].fd, type, ALL_TASKS, data, length);
}

static void signal_all(uint32_t number)
{
    send_to_all(TELL_SIGNAL, &number, sizeof number);
}

static void end_step(void)
{
    if (ending)
        return;
    ending = true;
    kill_ms = now_ms() + KILL_WAIT_MS;
    if (!options.quiet)
        fprintf(stderr, "srun: launch/slurm: _step_signal: Terminating StepId=%s.%u\n", who.job, grant.step);
    signal_all(SIGCONT);
    signal_all(SIGTERM);
}

static void task_over(int rank, int status)
{
    const char *name = who.peers[nodes[ranks[rank].node].part.node].name;
    int own = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ranks[rank].over)
        return;
    ranks[rank].over = true;
    left--;
    if (own == 0)
        return;
    if (WIFSIGNALED(status))
        fprintf(stderr, "srun: error: %s: task %d: %s\n", name, rank, strsignal(WTERMSIG(status)));
    else
        fprintf(stderr, "srun: error: %s: task %d: Exited with exit code %d\n", name, rank, own);
    code = own > code ? own : code;
    if (options.kill_on_bad_exit && left > 0)
        end_step();
}

static void node_over(struct node *node, bool whole)
{
    close(node->fd);
    node->fd = -1;
    if (!whole)
        fprintf(stderr, "srun: error: Node failure on %s\n", who.peers[node->part.node].name);
    for (int rank = 0; rank < MOST_TASKS && !whole; rank++)
        if (ranks[rank].out > 0 && ranks[rank].node == node->index)
            task_over(rank, SIGKILL);
}

/* ---- bytes ---- */

static void write_whole(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t put = write(fd, data, length);
        if (put < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (put < 0 && errno != EINTR)
            return;
        else if (put > 0) {
            data += put;
            length -= (size_t)put;
        }
    }
}

static void print(int rank, int fd, const char *data, size_t length)
{
    char label[16];
    int width = snprintf(label, sizeof label, "%d: ", rank);
    struct bytes out = {0};
    while (options.label && length > 0) {
        const char *end = memchr(data, '\n', length);
        size_t part = end == NULL ? length : (size_t)(end - data) + 1;
        if (!ranks[rank].middle)
            bytes_add(&out, label, (size_t)width);
        bytes_add(&out, data, part);
        ranks[rank].middle = end == NULL;
        data += part;
        length -= part;
    }
    write_whole(fd, options.label ? out.data : data, options.label ? out.used : length);
    bytes_free(&out);
}

static void obey(struct node *node, const struct frame *frame, const char *payload)
{
    struct task_end end;
    uint32_t number;
    bool known = frame->task < MOST_TASKS && ranks[frame->task].node == node->index;
    bool output = frame->type == SAY_OUT || frame->type == SAY_ERR;
    if (output && known)
        print(frame->task, frame->type == SAY_OUT ? ranks[frame->task].out : ranks[frame->task].err, payload,
              frame->length);
    if (tapped && (output || frame->type == SAY_EXIT))
        send_frame(control, frame->type, frame->task, payload, frame->length);
    if (frame->type == SAY_EXIT && known && frame->length == sizeof end) {
        memcpy(&end, payload, sizeof end);
        node->usage.cpu_us += end.usage.cpu_us;
        if (end.usage.rss_bytes > node->usage.rss_bytes)
            node->usage.rss_bytes = end.usage.rss_bytes;
        task_over(frame->task, (int)end.status);
    } else if (frame->type == SAY_USAGE && frame->length == sizeof node->usage) {
        send_frame(control, STEP_USAGE, 0, payload, frame->length);
    } else if (frame->type == SAY_TAKEN && frame->length == sizeof number) {
        memcpy(&number, payload, sizeof number);
        node->taken += number;
    }
}

static void hear(struct node *node)
{
    struct frame frame = {0};
    char *payload;
    int got = bytes_read(&node->heard, node->fd, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&node->heard, &frame, &payload, MOST_FRAME_BYTES)) > 0) {
        obey(node, &frame, payload);
        free(payload);
        if (frame.type == SAY_DONE) {
            node_over(node, true);
            return;
        }
    }
    if (got < 0)
        node_over(node, false);
}

static void hear_control(void)
{
    struct frame frame;
    char *payload;
    int got = bytes_read(&control_heard, control, PIECE_BYTES);
    while (got >= 0 && (got = bytes_next(&control_heard, &frame, &payload, PIECE_BYTES)) > 0) {
        uint32_t number = 0;
        memcpy(&number, payload, frame.length < sizeof number ? frame.length : sizeof number);
        if (frame.type == STEP_SIGNAL)
            signal_all(number);
        else if (frame.type == STEP_TAP)
            tapped = number != 0;
        free(payload);
    }
    if (got < 0)
        control = -1;
}

static bool window_open(void)
{
    for (uint32_t at = 0; at < grant.count; at++)
        if (nodes[at].fd >= 0 && nodes[at].sent - nodes[at].taken >= WINDOW_BYTES)
            return false;
    return !input_over;
}

static void read_input(void)
{
    char piece[16384];
    ssize_t got = read(input, piece, sizeof piece);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    input_over = got <= 0;
    if (input_over)
        send_to_all(TELL_IN_END, "", 0);
    else
        send_to_all(TELL_IN, piece, (size_t)got);
    for (uint32_t at = 0; at < grant.count && got > 0; at++)
        nodes[at].sent += (uint64_t)got;
}

static void hear_signals(void)
{
    static int64_t interrupt_ms;
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        bool twice = info.ssi_signo == SIGINT && now_ms() - interrupt_ms < 1000;
        if (info.ssi_signo == SIGINT && !twice && !options.quit_on_interrupt) {
            interrupt_ms = now_ms();
            fprintf(stderr, "srun: interrupt (one more within 1 sec to abort)\n");
        } else if (info.ssi_signo == SIGINT)
            end_step();
        else
            signal_all(info.ssi_signo);
    }
}

static void pump(void)
{
    static struct pollfd fds[MOST_NODES + 3];
    for (uint32_t alive = grant.count; alive > 0;) {
        fds[0] = (struct pollfd){.fd = signals, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = control, .events = POLLIN};
        fds[2] = (struct pollfd){.fd = window_open() ? input : -1, .events = POLLIN};
        for (uint32_t at = 0; at < grant.count; at++)
            fds[3 + at] = (struct pollfd){.fd = nodes[at].fd, .events = POLLIN};
        int64_t wait = kill_ms == 0 ? -1 : kill_ms - now_ms();
        poll(fds, grant.count + 3, wait < -1 ? 0 : (int)wait);
        if (fds[0].revents != 0)
            hear_signals();
        if (fds[1].revents != 0)
            hear_control();
        if (fds[2].revents != 0)
            read_input();
        alive = 0;
        for (uint32_t at = 0; at < grant.count; at++) {
            if (nodes[at].fd >= 0 && fds[3 + at].revents != 0)
                hear(&nodes[at]);
            alive += nodes[at].fd >= 0;
        }
        if (kill_ms != 0 && now_ms() >= kill_ms) {
            signal_all(SIGKILL);
            kill_ms = 0;
        }
    }
}

int srun_main(int argc, char **argv)
{
    sigset_t caught;
    int stop = options_read(argc, argv, &options);
    if (stop != 0)
        return stop - 1;
    if (options.pty || options.multi_prog || options.plane > 0)
        fail("--pty, --multi-prog and --distribution=plane are not there yet");
    ask_who(argc, argv);
    get_step();
    place_tasks();
    for (int rank = 0; rank < left; rank++) {
        ranks[rank].out = open_for(options.output, rank, 1);
        ranks[rank].err = options.error != NULL ? open_for(options.error, rank, 2)
                          : options.output != NULL ? ranks[rank].out : 2;
    }
    if (options.input != NULL && (input = open(options.input, O_RDONLY | O_CLOEXEC)) < 0)
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
    sigemptyset(&caught);
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        sigaddset(&caught, numbers[at]);
    sigprocmask(SIG_BLOCK, &caught, NULL);
    signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    for (uint32_t at = 0; at < grant.count; at++)
        launch(&nodes[at]);
    pump();
    uint32_t over = (uint32_t)code;
    if (control >= 0)
        send_frame(control, STEP_OVER, 0, &over, sizeof over);
    return code;
}
