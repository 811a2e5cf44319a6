/* The name by which it is called says which program it is. */
#include "steps.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *name = argc == 0 ? "" : slash != NULL ? slash + 1 : argv[0];
    if (strcmp(name, "batch") == 0)
        return batch_main(argc, argv);
    if (strcmp(name, "sattach") == 0)
        return sattach_main(argc, argv);
    if (strcmp(name, "scancel") == 0)
        return scancel_main(argc, argv);
    if (strcmp(name, "srun") == 0)
        return srun_main(argc, argv);
    fprintf(stderr, "dlq-steps: call it as srun, sattach, scancel or batch\n");
    return 2;
}
