/* The launch of a step: the places of its tasks, their files, and their variables. */
#include "srun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* ---- places ---- */

/* `chunk` tasks for each node in turn: 1 is cyclic, a plane's size is plane. */
static void place_in_turn(int chunk)
{
    int given[MOST_NODES] = {0}, total = 0;
    for (uint32_t at = 0; at < srun.grant.count; at++)
        total += srun.grant.parts[at].tasks;
    for (int at = 0; srun.rank_count < total; at = (at + 1) % (int)srun.grant.count)
        for (int each = 0; each < chunk && given[at] < srun.grant.parts[at].tasks; each++) {
            srun.ranks[srun.rank_count++].node = at;
            given[at]++;
        }
}

/* As Slurm: cyclic where each node has one task, else block. */
static const char *distribution(void)
{
    uint32_t tasks = 0;
    for (uint32_t at = 0; at < srun.grant.count; at++)
        tasks += srun.grant.parts[at].tasks;
    bool one_each = !srun.options.block && tasks <= srun.grant.count;
    return srun.options.plane > 0 ? "plane" : srun.options.cyclic || one_each ? "cyclic" : "block";
}

void launch_place(void)
{
    for (uint32_t at = 0; at < srun.grant.count; at++)
        srun.nodes[at] = (struct node){.fd = -1, .index = (int)at, .part = srun.grant.parts[at]};
    if (srun.options.plane > 0 || srun.options.cyclic)
        place_in_turn(srun.options.plane > 0 ? srun.options.plane : 1);
    else
        place_in_turn(MOST_TASKS);
    srun.left = srun.rank_count;
}

/* ---- files ---- */

static const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

/* One sign of a pattern for a task, at most 79 bytes; false: it is none. */
static bool fill_sign(char sign, int width, int rank, char *out)
{
    int node = srun.ranks[rank].node;
    switch (sign) {
    case 't': sprintf(out, "%0*d", width, rank); break;
    case 'n': sprintf(out, "%0*d", width, node); break;
    case 's': sprintf(out, "%0*u", width, srun.grant.step); break;
    case 'j': sprintf(out, "%0*ld", width, atol(srun.who.job)); break;
    case 'J': sprintf(out, "%.24s.%u", srun.who.job, srun.grant.step); break;
    case 'A': sprintf(out, "%.24s", variable("SLURM_ARRAY_JOB_ID", srun.who.job)); break;
    case 'a': sprintf(out, "%.24s", variable("SLURM_ARRAY_TASK_ID", "4294967294")); break;
    case 'N': sprintf(out, "%s", srun_host(node)); break;
    case 'u': sprintf(out, "%s", srun.who.user); break;
    case 'x': sprintf(out, "%.64s", variable("SLURM_JOB_NAME", "")); break;
    case '%': strcpy(out, "%"); break;
    default: return false;
    }
    return true;
}

static void fill(const char *pattern, int rank, char *out, size_t size)
{
    size_t used = 0;
    for (; *pattern != '\0' && used + 80 < size; pattern++) {
        int width = 0;
        const char *at = pattern + 1;
        while (*pattern == '%' && *at >= '0' && *at <= '9')
            width = 10 * (width > 10 ? 10 : width) + *at++ - '0';
        if (*pattern == '%' && fill_sign(*at, width > 10 ? 10 : width, rank, out + used)) {
            used += strlen(out + used);
            pattern = at;
        } else {
            out[used++] = *pattern;
        }
    }
    out[used] = '\0';
}

/* A pattern, or the number of the one task whose stream is kept. */
static bool is_of_each_task(const char *pattern)
{
    long number;
    return strstr(pattern, "%") != NULL || parse_long(pattern, MOST_TASKS, &number);
}

/* Whether both streams go to files of one name: they share it, and wipe out nothing of each other. */
static bool is_one_file(const char *output, const char *error)
{
    long number;
    return output != NULL && error != NULL && strcmp(output, error) == 0 && *output != '\0' &&
           strcmp(output, "all") != 0 && !parse_long(output, MOST_TASKS, &number);
}

/* A file of the user's, opened with the user's rights. `other`: where there is none. */
static int open_for(const char *pattern, int rank, int other)
{
    char path[4200];
    long number;
    if (pattern == NULL || *pattern == '\0' || strcmp(pattern, "all") == 0)
        return other;
    if (parse_long(pattern, MOST_TASKS, &number))
        return number == rank ? other : open("/dev/null", O_WRONLY | O_CLOEXEC);
    fill(strcmp(pattern, "none") == 0 ? "/dev/null" : pattern, rank, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (srun.options.append ? O_APPEND : O_TRUNC),
                  0666);
    if (fd < 0) {
        fprintf(stderr, "srun: error: Could not open stdout file: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return fd;
}

static bool has_input(int rank)
{
    long number;
    const char *input = srun.options.input;
    if (srun.options.pty)
        return rank == 0;
    return input == NULL || !parse_long(input, MOST_TASKS, &number) || number == rank;
}

void launch_open_files(void)
{
    const char *output = srun.options.output, *error = srun.options.error,
               *input = srun.options.input;
    long number;
    char path[4200];
    if (!srun.options.mode_said) /* a later attempt does not wipe out the first one's */
        srun.options.append = getenv("SLURM_RESTART_COUNT") != NULL;
    raise_files();
    for (int rank = 0; rank < srun.rank_count; rank++) {
        struct rank *task = &srun.ranks[rank], *first = &srun.ranks[0];
        bool shares = rank > 0 && output != NULL && !is_of_each_task(output);
        task->out = shares ? first->out : open_for(output, rank, 1);
        shares = rank > 0 && error != NULL && !is_of_each_task(error);
        task->err = shares           ? first->err
                    : error != NULL && !is_one_file(output, error)
                        ? open_for(error, rank, 2)
                    : task->out != 1 ? task->out
                                     : 2;
    }
    if (input == NULL || strcmp(input, "all") == 0 || parse_long(input, MOST_TASKS, &number))
        return;
    fill(strcmp(input, "none") == 0 ? "/dev/null" : input, 0, path, sizeof path);
    srun.input = open(path, O_RDONLY | O_CLOEXEC);
    if (srun.input < 0) {
        fprintf(stderr, "srun: error: Could not open stdin file: %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

/* ---- variables ---- */

static bool is_the_ranks_own(const char *variable)
{
    static const char *const PREFIXES[] = {"SLURM",
                                           "DLQ_",
                                           "PET_",
                                           "MASTER_",
                                           "NODE_RANK=",
                                           "NNODES=",
                                           "NPROC_PER_NODE=",
                                           "CUDA_VISIBLE_DEVICES="};
    for (size_t at = 0; at < sizeof PREFIXES / sizeof *PREFIXES; at++)
        if (strncmp(variable, PREFIXES[at], strlen(PREFIXES[at])) == 0)
            for (char **own = srun.who.environment; *own != NULL; own++)
                if (strcmp(*own, variable) == 0)
                    return true;
    return false;
}

/* Variables that the user has changed or added; each node knows its own of the job. */
static void add_environment(struct bytes *out)
{
    const char *words = srun.options.export != NULL ? srun.options.export : "ALL";
    bool all = strstr(words, "ALL") != NULL;
    for (char **at = environ; *at != NULL && strcmp(words, "NONE") != 0; at++) {
        size_t length = strcspn(*at, "=");
        bool named = false;
        for (const char *word = words; *word != '\0';
             word += strcspn(word, ","), word += *word == ',')
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

/* The tasks of each node as Slurm writes them: `4(x2),2`. */
static void count_tasks(char *out, size_t size)
{
    size_t used = 0;
    for (uint32_t at = 0, same; at < srun.grant.count && used < size; at += same) {
        const struct part *part = &srun.grant.parts[at];
        for (same = 1; at + same < srun.grant.count && part[same].tasks == part->tasks; same++)
            ;
        used += (size_t)snprintf(out + used, size - used, same > 1 ? "%s%d(x%u)" : "%s%d",
                                 at > 0 ? "," : "", part->tasks, same);
    }
}

static void add_step(struct bytes *out)
{
    static char list[MOST_NODES * MOST_NAME], each[8192];
    const struct peer *own = &srun.who.peers[srun.who.rank];
    grant_nodes(&srun.who, &srun.grant, list, sizeof list);
    count_tasks(each, sizeof each);
    static const char *const STEP[] = {"SLURM_STEP_ID", "SLURM_STEPID"};
    static const char *const TASKS[] = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"};
    static const char *const EACH[] = {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"};
    static const char *const COUNT[] = {"SLURM_NNODES", "SLURM_STEP_NUM_NODES"};
    static const char *const PORT[] = {"SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT"};
    for (int at = 0; at < 2; at++) {
        add_count(out, STEP[at], srun.grant.step);
        add_variable(out, EACH[at], each);
        add_count(out, COUNT[at], srun.grant.count);
        add_count(out, PORT[at], own->port);
    }
    for (int at = 0; at < 3; at++)
        add_count(out, TASKS[at], srun.rank_count);
    add_variable(out, "SLURM_STEP_NODELIST", list);
    add_variable(out, "SLURM_DISTRIBUTION", distribution());
    add_variable(out, "SLURM_SRUN_COMM_HOST", own->address);
    add_variable(out, "SLURM_LAUNCH_NODE_IPADDR", own->address);
    add_count(out, "SLURM_PRIO_PROCESS", getpriority(PRIO_PROCESS, 0));
    if (srun.options.cpus_per_task > 0)
        add_count(out, "SLURM_CPUS_PER_TASK", srun.options.cpus_per_task);
}

/* ---- the launch ---- */

static void add_terminal(struct bytes *out)
{
    struct winsize size = {.ws_col = 80, .ws_row = 24};
    ioctl(0, TIOCGWINSZ, &size);
    bytes_record(out, "terminal", "yes");
    bytes_number(out, "columns", size.ws_col);
    bytes_number(out, "rows", size.ws_row);
}

static void add_tasks(struct bytes *out, int node)
{
    for (int rank = 0; rank < srun.rank_count; rank++) {
        if (srun.ranks[rank].node != node)
            continue;
        bytes_number(out, "task", rank);
        if (has_input(rank))
            bytes_record(out, "input", "yes");
        for (char **word = srun.ranks[rank].words; word != NULL && *word != NULL; word++)
            bytes_record(out, "arg", *word);
    }
}

static void add_limits(struct bytes *out)
{
    char text[RLIM_NLIMITS * 20] = "";
    size_t used = 0;
    for (int kind = 0; kind < RLIM_NLIMITS; kind++) {
        struct rlimit own = {RLIM_INFINITY, RLIM_INFINITY};
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", kind > 0 ? "," : "");
        if ((srun.options.limits & 1u << kind) == 0)
            continue; /* empty: the tasks keep those of their job */
        if (kind == RLIMIT_NOFILE)
            own.rlim_cur = files_before();
        else
            getrlimit(kind, &own);
        used += (size_t)snprintf(text + used, sizeof text - used, "%llx",
                                 (unsigned long long)own.rlim_cur);
    }
    bytes_record(out, "limits", text);
}

static void launch(struct node *node)
{
    struct bytes out = {0};
    char text[4200], words[256];
    bytes_number(&out, "step", srun.grant.step);
    snprintf(text, sizeof text, "%llx", (unsigned long long)node->part.gpus);
    bytes_record(&out, "gpus", text);
    bytes_number(&out, "gpus_per_task", srun.options.gpus_per_task);
    bytes_record(&out, "gpu_bind", srun.options.gpu_bind != NULL ? srun.options.gpu_bind : "");
    mode_t mask = umask(0);
    umask(mask);
    bytes_number(&out, "umask", mask);
    add_limits(&out);
    if (srun.options.chdir == NULL && getcwd(text, sizeof text) == NULL)
        strcpy(text, "/");
    bytes_record(&out, "cwd", srun.options.chdir != NULL ? srun.options.chdir : text);
    if (srun.options.pty)
        add_terminal(&out);
    add_environment(&out);
    add_step(&out);
    for (char **word = srun.options.command; !srun.options.multi_prog && *word != NULL; word++)
        bytes_record(&out, "arg", *word);
    add_tasks(&out, node->index);
    if (out.used > MOST_FRAME_BYTES)
        srun_fail("the arguments and the environment are larger than 4 MiB");
    node->fd = dial_peer(&srun.who, node->part.node, words, sizeof words);
    if (node->fd < 0)
        srun_fail(words);
    if (!send_frame(node->fd, ASK_LAUNCH, 0, out.data, out.used))
        srun_fail("the line to a node of the step is gone");
    bytes_free(&out);
}

void launch_all(void)
{
    for (uint32_t at = 0; at < srun.grant.count; at++)
        launch(&srun.nodes[at]);
}
