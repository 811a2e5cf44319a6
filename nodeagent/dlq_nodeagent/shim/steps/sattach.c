/* `sattach`: not there yet. */
#include "steps.h"

#include <stdio.h>

int sattach_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "sattach: error: dlq has no sattach yet\n");
    return 1;
}
