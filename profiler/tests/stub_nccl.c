/* A libnccl.so.2 that does nothing: each function under both of its names, as in the real one.
 *
 * `stubStartPlugin` starts the profiler plugin of NCCL_PROFILER_PLUGIN, as NCCL 2.28 does.
 * `stubCapture` then tells it of one all-reduce in a graph. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "../src/plugin/nccl_abi.h"

static const struct plugin_v5 *plugin;
static void *context;

#define BOTH(name) \
    int p##name(void); \
    int name(void) __attribute__((weak, alias("p" #name))); \
    int p##name(void)

BOTH(ncclAllReduce)
{
    return 0;
}
BOTH(ncclSend)
{
    return 5; /* ncclInvalidUsage: refused */
}
BOTH(ncclBcast)
{
    return 0;
}
int ncclCommCount(void *comm, int *count)
{
    *count = *(int *)comm;
    return 0;
}
int ncclCommUserRank(void *comm, int *rank)
{
    *rank = ((int *)comm)[1];
    return 0;
}

int stubStartPlugin(void)
{
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int mask = 0;

    plugin = library ? dlsym(library, "ncclProfiler_v5") : NULL;
    return !plugin || plugin->init(&context, 1, &mask, "stub", 1, 1, 0, NULL);
}

int stubCapture(size_t count)
{
    struct event_v5 event = {.type = EVENT_COLL_API};
    void *handle;

    if (!plugin)
        return 1;
    event.coll_api.function = "AllReduce";
    event.coll_api.count = count;
    event.coll_api.datatype = "ncclFloat16";
    event.coll_api.captured = true;
    return plugin->start_event(context, &handle, &event);
}
