/* The file of `srun --multi-prog`: lines of task numbers, a program, and its arguments. */
#include "srun.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 256

static const char *file;

static _Noreturn void refuse(const char *why, int line)
{
    fprintf(stderr, "srun: error: %s\nsrun: error: Line %d of configuration file %s invalid\n", why,
            line, file);
    exit(1);
}

static _Noreturn void no_record(int task)
{
    char why[256];
    snprintf(why, sizeof why, "Configuration file %.160s invalid, no record for task id %d", file, task);
    srun_fail(why);
}

/* The next word of a line, with its quotes taken off; NULL at the end. */
static char *next_word(char **at)
{
    while (isspace((unsigned char)**at))
        ++*at;
    if (**at == '\0' || **at == '#')
        return NULL;
    char *word = *at, *out = *at, quote = '\0';
    for (; **at != '\0' && (quote != '\0' || !isspace((unsigned char)**at)); ++*at) {
        if (quote == '\0' && (**at == '\'' || **at == '"'))
            quote = **at;
        else if (quote != '\0' && **at == quote)
            quote = '\0';
        else {
            if (**at == '\\' && quote != '\'' && (*at)[1] != '\0')
                ++*at;
            *out++ = **at;
        }
    }
    if (**at != '\0')
        ++*at;
    *out = '\0';
    return word;
}

/* %t is the task, and %o its place among the tasks of its line. */
static char *fill(const char *word, int task, int offset)
{
    struct bytes out = {0};
    char number[16];
    for (; *word != '\0'; word++) {
        bool sign = word[0] == '%' && (word[1] == 't' || word[1] == 'o');
        if (sign) {
            snprintf(number, sizeof number, "%d", word[1] == 't' ? task : offset);
            bytes_add(&out, number, strlen(number));
            word++;
        } else {
            bytes_add(&out, word, 1);
        }
    }
    bytes_add(&out, "", 1);
    return out.data;
}

static void give(int task, int offset, char **words, int count, int line)
{
    char why[64];
    if (task >= srun.rank_count) {
        snprintf(why, sizeof why, "Invalid task id, %d >= ntasks", task);
        refuse(why, line);
    }
    if (srun.ranks[task].words != NULL) {
        snprintf(why, sizeof why, "Duplicate task %d", task);
        refuse(why, line);
    }
    srun.ranks[task].words = must_have(calloc((size_t)count + 1, sizeof *words));
    for (int at = 0; at < count; at++)
        srun.ranks[task].words[at] = fill(words[at], task, offset);
}

/* "0-1,4" or "*", which means every task without a line. */
static void give_tasks(const char *tasks, char **words, int count, int line)
{
    int offset = 0;
    for (int task = 0; strcmp(tasks, "*") == 0 && task < srun.rank_count; task++)
        if (srun.ranks[task].words == NULL)
            give(task, offset++, words, count, line);
    for (const char *at = tasks; *tasks != '*' && *at != '\0';) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (!isdigit((unsigned char)*at) || (*end != '\0' && *end != ',') || last < first ||
            last > MOST_TASKS)
            refuse("Invalid task list", line);
        for (long task = first; task <= last; task++)
            give((int)task, offset++, words, count, line);
        at = *end == ',' ? end + 1 : end;
    }
}

void programs_read(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *lines = fopen(path, "re");
    file = path;
    if (lines == NULL)
        srun_fail("Unable to read the configuration file of --multi-prog");
    for (int line = 1; getline(&text, &size, lines) >= 0; line++) {
        char *words[MOST_WORDS], *at = text, *tasks = next_word(&at);
        int count = 0;
        while (tasks != NULL && count < MOST_WORDS && (words[count] = next_word(&at)) != NULL)
            count++;
        if (tasks != NULL && count == 0)
            refuse("No program", line);
        if (tasks != NULL)
            give_tasks(tasks, words, count, line);
    }
    free(text);
    fclose(lines);
    for (int task = 0; task < srun.rank_count; task++)
        if (srun.ranks[task].words == NULL)
            no_record(task);
}
