/* The options of srun 22.05: with a meaning inside a job, without one there, and refused by name.
 */
#include "../soft_limits.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { SWITCH, VALUE, MAYBE }; /* MAYBE: a value only behind '=', or glued to the letter */
enum fate { DONE, IDLE, REFUSED };

struct option {
    const char *name;
    char letter;
    enum kind kind;
    enum fate fate;
    const char *why; /* of a refusal */
};

static const struct option OPTIONS[] = {
    /* with a meaning */
    {"ntasks", 'n', VALUE, DONE, 0},
    {"nodes", 'N', VALUE, DONE, 0},
    {"cpus-per-task", 'c', VALUE, DONE, 0},
    {"ntasks-per-node", 0, VALUE, DONE, 0},
    {"gpus-per-task", 0, VALUE, DONE, 0},
    {"gpus", 'G', VALUE, DONE, 0},
    {"gpus-per-node", 0, VALUE, DONE, 0},
    {"gres", 0, VALUE, DONE, 0},
    {"gpu-bind", 0, VALUE, DONE, 0},
    {"nodelist", 'w', VALUE, DONE, 0},
    {"exclude", 'x', VALUE, DONE, 0},
    {"relative", 'r', VALUE, DONE, 0},
    {"overlap", 0, SWITCH, DONE, 0},
    {"exclusive", 0, MAYBE, DONE, 0},
    {"exact", 0, SWITCH, DONE, 0},
    {"whole", 0, SWITCH, DONE, 0},
    {"jobid", 0, VALUE, DONE, 0},
    {"pty", 0, SWITCH, DONE, 0},
    {"label", 'l', SWITCH, DONE, 0},
    {"output", 'o', VALUE, DONE, 0},
    {"error", 'e', VALUE, DONE, 0},
    {"input", 'i', VALUE, DONE, 0},
    {"open-mode", 0, VALUE, DONE, 0},
    {"chdir", 'D', VALUE, DONE, 0},
    {"export", 0, VALUE, DONE, 0},
    {"propagate", 0, MAYBE, IDLE, 0},
    {"kill-on-bad-exit", 'K', MAYBE, DONE, 0},
    {"wait", 'W', VALUE, DONE, 0},
    {"unbuffered", 'u', SWITCH, DONE, 0},
    {"multi-prog", 0, SWITCH, DONE, 0},
    {"job-name", 'J', VALUE, DONE, 0},
    {"mpi", 0, VALUE, DONE, 0},
    {"distribution", 'm', VALUE, DONE, 0},
    {"overcommit", 'O', SWITCH, DONE, 0},
    {"quiet", 'Q', SWITCH, DONE, 0},
    {"quit-on-interrupt", 0, SWITCH, DONE, 0},
    {"version", 'V', SWITCH, DONE, 0},
    {"help", 'h', SWITCH, DONE, 0},
    {"usage", 0, SWITCH, DONE, 0},
    /* without one inside a job */
    {"account", 'A', VALUE, IDLE, 0},
    {"accel-bind", 0, VALUE, IDLE, 0},
    {"acctg-freq", 0, VALUE, IDLE, 0},
    {"bb", 0, VALUE, IDLE, 0},
    {"bbf", 0, VALUE, IDLE, 0},
    {"begin", 'b', VALUE, IDLE, 0},
    {"cluster-constraint", 0, VALUE, IDLE, 0},
    {"clusters", 'M', VALUE, IDLE, 0},
    {"comment", 0, VALUE, IDLE, 0},
    {"compress", 0, MAYBE, IDLE, 0},
    {"constraint", 'C', VALUE, IDLE, 0},
    {"contiguous", 0, SWITCH, IDLE, 0},
    {"core-spec", 'S', VALUE, IDLE, 0},
    {"cores-per-socket", 0, VALUE, IDLE, 0},
    {"cpu-bind", 0, VALUE, IDLE, 0},
    {"cpu_bind", 0, VALUE, IDLE, 0},
    {"cpu-freq", 0, VALUE, IDLE, 0},
    {"cpus-per-gpu", 0, VALUE, IDLE, 0},
    {"deadline", 0, VALUE, IDLE, 0},
    {"debugger-test", 0, SWITCH, IDLE, 0},
    {"delay-boot", 0, VALUE, IDLE, 0},
    {"dependency", 'd', VALUE, IDLE, 0},
    {"disable-status", 'X', SWITCH, IDLE, 0},
    {"extra-node-info", 'B', VALUE, IDLE, 0},
    {"get-user-env", 0, MAYBE, IDLE, 0},
    {"gid", 0, VALUE, IDLE, 0},
    {"gpu-freq", 0, VALUE, IDLE, 0},
    {"gres-flags", 0, VALUE, IDLE, 0},
    {"hint", 0, VALUE, IDLE, 0},
    {"hold", 'H', SWITCH, IDLE, 0},
    {"immediate", 'I', MAYBE, IDLE, 0},
    {"interactive", 0, SWITCH, IDLE, 0},
    {"launch-cmd", 0, SWITCH, IDLE, 0},
    {"launcher-opts", 0, VALUE, IDLE, 0},
    {"licenses", 'L', VALUE, IDLE, 0},
    {"mail-type", 0, VALUE, IDLE, 0},
    {"mail-user", 0, VALUE, IDLE, 0},
    {"max-exit-timeout", 0, VALUE, IDLE, 0},
    {"mcs-label", 0, VALUE, IDLE, 0},
    {"mem", 0, VALUE, IDLE, 0},
    {"mem-bind", 0, VALUE, IDLE, 0},
    {"mem_bind", 0, VALUE, IDLE, 0},
    {"mem-per-cpu", 0, VALUE, IDLE, 0},
    {"mem-per-gpu", 0, VALUE, IDLE, 0},
    {"mincpus", 0, VALUE, IDLE, 0},
    {"msg-timeout", 0, VALUE, IDLE, 0},
    {"network", 0, VALUE, IDLE, 0},
    {"nice", 0, MAYBE, IDLE, 0},
    {"no-kill", 'k', MAYBE, IDLE, 0},
    {"ntasks-per-core", 0, VALUE, IDLE, 0},
    {"ntasks-per-socket", 0, VALUE, IDLE, 0},
    {"oversubscribe", 's', SWITCH, IDLE, 0},
    {"partition", 'p', VALUE, IDLE, 0},
    {"power", 0, VALUE, IDLE, 0},
    {"prefer", 0, VALUE, IDLE, 0},
    {"preserve-env", 'E', SWITCH, IDLE, 0},
    {"priority", 0, VALUE, IDLE, 0},
    {"profile", 0, VALUE, IDLE, 0},
    {"qos", 'q', VALUE, IDLE, 0},
    {"reboot", 0, SWITCH, IDLE, 0},
    {"reservation", 0, VALUE, IDLE, 0},
    {"resv-ports", 0, MAYBE, IDLE, 0},
    {"slurmd-debug", 0, VALUE, IDLE, 0},
    {"sockets-per-node", 0, VALUE, IDLE, 0},
    {"spread-job", 0, SWITCH, IDLE, 0},
    {"switches", 0, VALUE, IDLE, 0},
    {"thread-spec", 0, VALUE, IDLE, 0},
    {"threads", 'T', VALUE, IDLE, 0},
    {"threads-per-core", 0, VALUE, IDLE, 0},
    {"time-min", 0, VALUE, IDLE, 0},
    {"tmp", 0, VALUE, IDLE, 0},
    {"tres-bind", 0, VALUE, IDLE, 0},
    {"use-min-nodes", 0, SWITCH, IDLE, 0},
    {"verbose", 'v', SWITCH, IDLE, 0},
    {"wckey", 0, VALUE, IDLE, 0},
    {"async", 0, SWITCH, IDLE, 0},
    {"time", 't', VALUE, DONE, 0},
    /* would change the work */
    {"bcast", 0, MAYBE, REFUSED, "copy the program before, by a step of its own"},
    {"bcast-exclude", 0, VALUE, REFUSED, "there is no --bcast"},
    {"send-libs", 0, MAYBE, REFUSED, "there is no --bcast"},
    {"container", 0, VALUE, REFUSED, "name the image when you submit: dlq submit --image"},
    {"container-image", 0, VALUE, REFUSED, "name the image when you submit: dlq submit --image"},
    {"epilog", 0, VALUE, REFUSED, "run it behind srun"},
    {"prolog", 0, VALUE, REFUSED, "run it before srun"},
    {"task-epilog", 0, VALUE, REFUSED, "run it in the task"},
    {"task-prolog", 0, VALUE, REFUSED, "run it in the task"},
    {"gpus-per-socket", 0, VALUE, REFUSED, "sockets are not counted here"},
    {"het-group", 0, VALUE, REFUSED, "a step has the nodes of one job"},
    {"pack-group", 0, VALUE, REFUSED, "a step has the nodes of one job"},
    {"no-allocate", 'Z', SWITCH, REFUSED, "a step has the nodes of its job"},
    {"ntasks-per-gpu", 0, VALUE, REFUSED, "say --gpus-per-task"},
    {"ntasks-per-tres", 0, VALUE, REFUSED, "say --gpus-per-task"},
    {"signal", 0, VALUE, REFUSED, "say it of the job: sbatch --signal"},
    {"test-only", 0, SWITCH, REFUSED, "nothing is tested inside a job"},
    {"tres-per-task", 0, VALUE, REFUSED, "say --gpus-per-task"},
    {"uid", 0, VALUE, REFUSED, "a step runs as its job's user"},
    {"x11", 0, MAYBE, REFUSED, "no display is forwarded"},
};

enum { OPTION_COUNT = sizeof OPTIONS / sizeof *OPTIONS };

static const struct option *by_name(const char *name, size_t length, int *matches)
{
    const struct option *found = NULL;
    *matches = 0;
    for (int at = 0; at < OPTION_COUNT; at++)
        if (strncmp(OPTIONS[at].name, name, length) == 0) {
            if (strlen(OPTIONS[at].name) == length) {
                *matches = 1;
                return &OPTIONS[at];
            }
            found = &OPTIONS[at];
            ++*matches;
        }
    return *matches == 1 ? found : NULL;
}

static const struct option *by_letter(char letter)
{
    for (int at = 0; at < OPTION_COUNT; at++)
        if (OPTIONS[at].letter == letter)
            return &OPTIONS[at];
    return NULL;
}

static bool is(const struct option *option, const char *name)
{
    return strcmp(option->name, name) == 0;
}

static int wrong(const char *format, const char *first, const char *second)
{
    fprintf(stderr, "srun: error: ");
    fprintf(stderr, format, first, second);
    fprintf(stderr, "\n");
    return 2;
}

/* A count; of `type:count` and `gpu:type:count` the last number. */
static bool count_in(const char *text, int *out)
{
    const char *colon = strrchr(text, ':');
    long number;
    if (!parse_long(colon != NULL ? colon + 1 : text, 100000, &number))
        return false;
    *out = (int)number;
    return true;
}

static bool take_nodes(struct options *options, const char *text)
{
    char *end;
    long least = strtol(text, &end, 10), most = least;
    if (end == text || (*end != '\0' && *end != '-'))
        return false;
    if (*end == '-' && !parse_long(end + 1, MOST_NODES, &most))
        return false;
    options->nodes_min = (int)least;
    options->nodes_max = (int)most;
    options->nodes_said = true;
    return least >= 1 && most >= least;
}

static bool take_gres(struct options *options, const char *text)
{
    const char *gpu = strstr(text, "gpu");
    if (strcmp(text, "none") == 0) {
        options->no_gpus = true;
        return true;
    }
    if (gpu == NULL)
        return false;
    if (strchr(gpu, ':') == NULL)
        options->gpus_per_node = 1;
    else if (!count_in(text, &options->gpus_per_node))
        return false;
    options->no_gpus = options->gpus_per_node == 0;
    return true;
}

static bool take_gpus(struct options *options, int *which, const char *text)
{
    bool good = count_in(text, which);
    options->no_gpus = options->no_gpus || (good && *which == 0);
    return good;
}

static bool take_layout(struct options *options, const char *text)
{
    size_t length = strcspn(text, ":,=");
    options->cyclic = strncmp(text, "cyclic", length) == 0;
    options->block = strncmp(text, "block", length) == 0;
    if (strncmp(text, "plane", length) == 0)
        options->plane = text[length] == '=' ? atoi(text + length + 1) : 0;
    return options->cyclic || options->plane > 0 || options->block || *text == '*';
}

/* M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; 0 is no limit. */
static bool take_time(struct options *options, const char *text)
{
    long days = 0, part[3] = {0};
    int count = 0, used = 0;
    const char *dash = strchr(text, '-'), *at = dash == NULL ? text : dash + 1;
    if (dash != NULL && (sscanf(text, "%ld%n", &days, &used) != 1 || text + used != dash))
        return false;
    while (count < 3 && sscanf(at, "%ld%n", &part[count], &used) == 1 && part[count] >= 0) {
        count++;
        at += used;
        if (*at != ':')
            break;
        at++;
    }
    if (count == 0 || *at != '\0' || days < 0)
        return false;
    bool hours_first = dash != NULL || count == 3;
    long seconds = hours_first ? 3600 * part[0] + 60 * part[1] + part[2] : 60 * part[0] + part[1];
    options->time_s = 86400 * days + seconds;
    return true;
}

static bool take_mode(struct options *options, const char *text)
{
    options->append = strncmp("append", text, strlen(text)) == 0;
    options->mode_said = options->append || strncmp("truncate", text, strlen(text)) == 0;
    return options->mode_said && *text != '\0';
}

static bool take_mpi(const char *text)
{
    return strcmp(text, "none") == 0 || strcmp(text, "openmpi") == 0;
}

static bool take_bind(struct options *options, const char *text)
{
    const char *kind = strncmp(text, "verbose,", 8) == 0 ? text + 8 : text;
    options->gpu_bind = kind;
    return strcmp(kind, "none") == 0 || strcmp(kind, "closest") == 0 ||
           strncmp(kind, "single:", 7) == 0 || strncmp(kind, "map_gpu:", 8) == 0;
}

static bool take_number(const char *text, int least, int *out)
{
    long number;
    if (!parse_long(text, 1000000, &number) || number < least)
        return false;
    *out = (int)number;
    return true;
}

/* False: its value means nothing. */
/* ALL, NONE, or names; a word that is none is told as Slurm tells it. */
static bool take_propagate(struct options *o, const char *value)
{
    char *words = must_have(strdup(value != NULL ? value : "ALL")), *rest = words;
    bool all = *words == '\0' || strcmp(words, "ALL") == 0, good = true;
    o->limits = all ? ~0u : 0;
    for (char *word; !all && strcmp(value, "NONE") != 0 && (word = strsep(&rest, ", ")) != NULL;) {
        const char *name = strncmp(word, "RLIMIT_", 7) == 0 ? word + 7 : word;
        int kind = soft_limit_kind(name, strlen(name));
        if (kind >= 0)
            o->limits |= 1u << kind;
        else if (*word != '\0' && good) {
            fprintf(stderr, "srun: error: Bad rlimit name: %.64s\n", word);
            good = false;
        }
    }
    free(words);
    return good;
}

static bool take(struct options *o, const struct option *option, const char *value)
{
    if (is(option, "ntasks"))
        return o->tasks_said = take_number(value, 1, &o->tasks);
    if (is(option, "nodes"))
        return take_nodes(o, value);
    if (is(option, "cpus-per-task"))
        return take_number(value, 1, &o->cpus_per_task);
    if (is(option, "ntasks-per-node"))
        return take_number(value, 1, &o->tasks_per_node);
    if (is(option, "gpus-per-task"))
        return take_gpus(o, &o->gpus_per_task, value);
    if (is(option, "gpus"))
        return take_gpus(o, &o->gpus, value);
    if (is(option, "gpus-per-node"))
        return take_gpus(o, &o->gpus_per_node, value);
    if (is(option, "gres"))
        return take_gres(o, value);
    if (is(option, "gpu-bind"))
        return take_bind(o, value);
    if (is(option, "relative"))
        return take_number(value, 0, &o->relative);
    if (is(option, "wait"))
        return take_number(value, 0, &o->wait_s);
    if (is(option, "distribution"))
        return take_layout(o, value);
    if (is(option, "mpi"))
        return take_mpi(value);
    if (is(option, "time"))
        return take_time(o, value);
    if (is(option, "open-mode"))
        return take_mode(o, value);
    if (is(option, "kill-on-bad-exit"))
        o->kill_on_bad_exit = value == NULL || strcmp(value, "0") != 0;
    else if (is(option, "nodelist"))
        o->nodelist = value;
    else if (is(option, "exclude"))
        o->exclude = value;
    else if (is(option, "jobid"))
        o->job = value;
    else if (is(option, "chdir"))
        o->chdir = value;
    else if (is(option, "output"))
        o->output = value;
    else if (is(option, "error"))
        o->error = value;
    else if (is(option, "input"))
        o->input = value;
    else if (is(option, "export"))
        o->export = value;
    else if (is(option, "job-name"))
        o->name = value;
    else if (is(option, "overlap"))
        o->overlap = true;
    else if (is(option, "exclusive") || is(option, "exact"))
        o->exact = true;
    else if (is(option, "whole"))
        o->exact = false;
    else if (is(option, "pty"))
        o->pty = true;
    else if (is(option, "label"))
        o->label = true;
    else if (is(option, "unbuffered"))
        o->unbuffered = true;
    else if (is(option, "multi-prog"))
        o->multi_prog = true;
    else if (is(option, "overcommit"))
        o->overcommit = true;
    else if (is(option, "quiet"))
        o->quiet = true;
    else if (is(option, "quit-on-interrupt"))
        o->quit_on_interrupt = true;
    return true;
}

static int use(struct options *options, const struct option *option, const char *value)
{
    if (option->fate == REFUSED)
        return wrong("--%s: dlq's srun does not do that inside a job: %s", option->name,
                     option->why);
    if (is(option, "version")) {
        puts("slurm-wlm 22.05.8");
        return 1;
    }
    if (is(option, "help") || is(option, "usage")) {
        puts("Usage: srun [OPTIONS...] executable [args...]");
        return 1;
    }
    if (is(option, "mpi") && strcmp(value, "list") == 0) {
        puts("MPI plugin types are...\n\tnone");
        return 1;
    }
    if (is(option, "mpi") && !take_mpi(value))
        return wrong("Invalid MPI type '%s', --mpi=list for acceptable types%s", value, "");
    if (is(option, "propagate") && !take_propagate(options, value))
        return wrong("--%s=%s is not valid.", option->name, value);
    if (option->fate == DONE && !take(options, option, value))
        return wrong("Invalid value for --%s: '%s'", option->name, value);
    return 0;
}

/* Slurm's own variables that stand for options. */
static void take_variables(struct options *options)
{
    static const char *const NAMES[][2] = {
        {"SLURM_NTASKS", "ntasks"},
        {"SLURM_NTASKS_PER_NODE", "ntasks-per-node"},
        {"SRUN_CPUS_PER_TASK", "cpus-per-task"},
        {"SLURM_JOB_NUM_NODES", "nodes"},
        {"SLURM_DISTRIBUTION", "distribution"},
        {"SLURM_GPUS_PER_TASK", "gpus-per-task"},
        {"SLURM_GPU_BIND", "gpu-bind"},
        {"SLURM_EXPORT_ENV", "export"},
        {"SRUN_EXPORT_ENV", "export"}, /* behind the other: it wins */
        {"SLURM_STEP_GRES", "gres"},
        {"SLURM_OVERLAP", "overlap"},
        {"SLURM_EXCLUSIVE", "exclusive"},
        {"SLURM_UNBUFFEREDIO", "unbuffered"},
        {"SLURM_TIMELIMIT", "time"},
        {"SLURM_WAIT", "wait"},
        {"SLURM_KILL_BAD_EXIT", "kill-on-bad-exit"},
        {"SLURM_WORKING_DIR", "chdir"},
        {"SLURM_OPEN_MODE", "open-mode"},
        {"SLURM_STDOUTMODE", "output"},
        {"SLURM_STDERRMODE", "error"},
        {"SLURM_STDINMODE", "input"},
        {"SLURM_LABELIO", "label"},
        {"SLURM_EXACT", "exact"},
        {"SLURM_OVERCOMMIT", "overcommit"},
        {"SLURM_JOB_ID", "jobid"},
    };
    for (size_t at = 0; at < sizeof NAMES / sizeof *NAMES; at++) {
        const char *value = getenv(NAMES[at][0]);
        int matches;
        if (value != NULL && *value != '\0')
            take(options, by_name(NAMES[at][1], strlen(NAMES[at][1]), &matches), value);
    }
    options->tasks_said = options->nodes_said = false;
}

/* One word that begins with a dash; `next` is the word behind it. Counts the words it used. */
static int read_word(struct options *options, const char *word, const char *next, int *used)
{
    const struct option *option;
    const char *value = NULL;
    int matches = 0;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        option = by_name(word + 2, length, &matches);
        value = word[2 + length] == '=' ? word + 3 + length : NULL;
    } else {
        option = by_letter(word[1]);
        while (option != NULL && option->kind == SWITCH && word[2] != '\0') { /* `-lu` */
            int code = use(options, option, NULL);
            if (code != 0)
                return code;
            option = by_letter((++word)[1]);
        }
        if (word[2] != '\0' && option != NULL)
            value = word + 2 + (word[2] == '=');
    }
    if (option == NULL) {
        fprintf(stderr,
                matches > 1 ? "srun: option '%s' is ambiguous\n"
                            : "srun: unrecognized option '%s'\n",
                word);
        fprintf(stderr, "Try \"srun --help\" for more information\n");
        return 256;
    }
    *used = 1;
    if (option->kind == VALUE && value == NULL) {
        if (next == NULL) {
            fprintf(stderr,
                    "srun: option '%s' requires an argument\nTry \"srun --help\" for more "
                    "information\n",
                    word);
            return 256;
        }
        value = next;
        *used = 2;
    }
    return use(options, option, value);
}

int options_read(int argc, char **argv, struct options *options)
{
    int at = 1;
    bool closed = false;
    *options = (struct options){.relative = -1, .limits = ~0u};
    take_variables(options);
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        int used = 1;
        if (strcmp(argv[at], "--") == 0) {
            at++;
            closed = true;
            break;
        }
        int code = read_word(options, argv[at], at + 1 < argc ? argv[at + 1] : NULL, &used);
        if (code != 0)
            return code;
        at += used;
    }
    options->command = argv + at;
    if (at == argc) {
        fprintf(stderr, "srun: fatal: No command given to execute.\n");
        return 2;
    }
    /* As in Slurm it is no word of the program, but behind `--`: a rank's command comes so. */
    for (int word = at; word < argc && !closed; word++)
        if (strcmp(argv[word], ":") == 0)
            return wrong("`:` begins another part of the step: %s%s",
                         "a step has the nodes of one job", "");
    return 0;
}
