/* Submits jobs through libslurm: slurm_client COUNT NAME USER_ID SHAPES.
 * They are of one GPU, or with SHAPES > 1 of 1 to 8 GPUs with so many sizes of memory in turn.
 * Says "ready" when it knows the cluster, begins at a line on stdin, says "done", and ends at the
 * end of stdin. dlq_client.py does the same. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int submit(const char *name, int user, int shapes, int number) {
    static char *widths[] = {"gres:gpu:1", "gres:gpu:2", "gres:gpu:4", "gres:gpu:8"};
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    job_desc_msg_t job;
    submit_response_msg_t *answer = NULL;
    slurm_init_job_desc_msg(&job);
    job.name = (char *)name;
    job.user_id = job.group_id = user;
    job.work_dir = "/tmp";
    job.std_out = job.std_err = "/dev/null";
    job.script = "#!/bin/sh\ntrue\n";
    job.environment = environment;
    job.env_size = 1;
    job.time_limit = 60;
    job.tres_per_job = widths[shapes > 1 ? number % 4 : 0];
    if (shapes > 1)
        job.pn_min_memory = 16 * (1 + number % shapes); /* MiB */
    job.min_nodes = job.max_nodes = 1;
    while (slurm_submit_batch_job(&job, &answer)) {
        if (errno != EAGAIN && errno != ESLURM_ERROR_ON_DESC_TO_RECORD_COPY)
            return errno;
    }
    slurm_free_submit_response_response_msg(answer);
    return 0;
}

int main(int argc, char **argv) {
    char line[8];
    if (argc != 5)
        return 2;
    slurm_init(NULL);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    for (int left = atoi(argv[1]); left > 0; left--) {
        int error = submit(argv[2], atoi(argv[3]), atoi(argv[4]), left);
        if (error) {
            fprintf(stderr, "slurm_client: %s\n", slurm_strerror(error));
            return 1;
        }
    }
    puts("done");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
    return 0;
}
