/* mock_nccl PLUGIN VERSION: loads a profiler plugin as NCCL of that interface version does, and reports
 * collectives to it. Events are laid out byte by byte from NCCL's published headers, not from the
 * plugin's own source. Prints the plugin's answers. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLL = 1 << 1, P2P = 1 << 2, PROXY_STEP = 1 << 4, COLL_API = 1 << 9, P2P_API = 1 << 10 };

struct plugin {
    const char *name;
    void *init;
    int (*start)(void *context, void **handle, void *event);
    int (*stop)(void *handle);
    int (*state)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};
typedef int init_v1(void **, int *);
typedef int init_v4(void **, int *, const char *, uint64_t, int, int, int, void *);
typedef int init_v5(void **, uint64_t, int *, const char *, int, int, int, void *);

static unsigned char event[256];
static char buffer[64];

static void put(size_t offset, const void *value, size_t size)
{
    memcpy(event + offset, value, size);
}
static void put_8(size_t offset, uint8_t value)
{
    put(offset, &value, 1);
}
static void put_int(size_t offset, int value)
{
    put(offset, &value, 4);
}
static void put_64(size_t offset, uint64_t value)
{
    put(offset, &value, 8);
}
static void put_word(size_t offset, const char *word)
{
    put(offset, &word, 8);
}

/* An AllReduce of 1000 float16 with number 5, or a Send of 70 int8 to rank 3. */
static uint64_t lay_out(int version, int p2p)
{
    memset(event, 0x5a, sizeof event); /* nothing is zero by chance */
    put_int(16, 1);
    if (version == 5) {
        put_64(0, p2p ? P2P_API : COLL_API);
        put_word(24, p2p ? "Send" : "AllReduce");
        put_64(32, p2p ? 70 : 1000);
        put_word(40, p2p ? "ncclInt8" : "ncclFloat16");
        if (!p2p)
            put_int(48, 0);
        put_8(p2p ? 56 : 64, p2p); /* captured into a graph */
        return p2p ? P2P_API : COLL_API;
    }
    put_8(0, p2p ? P2P : COLL);
    if (version == 4) {
        if (p2p) {
            put_word(24, "Send");
            put_word(32, buffer);
            put_word(40, "ncclInt8");
            put_64(48, 70);
            put_int(56, 3);
        } else {
            put_64(24, 5);
            put_word(32, "AllReduce");
            put_word(40, buffer);
            put_64(56, 1000);
            put_int(64, 0);
            put_word(72, "ncclFloat16");
        }
        return p2p ? P2P : COLL;
    }
    put_word(24, "world");
    put_64(32, 0xabcdef);
    if (p2p) {
        if (version == 1) {
            put_8(40, 6);
            put_8(56, 0);
        } else {
            put_word(40, "Send");
            put_word(56, "ncclInt8");
        }
        put_word(48, buffer);
        put_64(64, 70);
        put_int(72, 3);
        return P2P;
    }
    put_64(40, 5);
    put_word(56, buffer);
    put_64(72, 1000);
    put_int(80, 0);
    if (version == 1) {
        put_8(48, 4);
        put_8(84, 6);
    } else {
        put_word(48, "AllReduce");
        put_word(88, "ncclFloat16");
    }
    return COLL;
}

static int init(const struct plugin *plugin, int version, void **context, int *mask)
{
    if (version == 5)
        return ((init_v5 *)plugin->init)(context, 0xabcdef, mask, "world", 2, 4, 1, NULL);
    if (version == 4)
        return ((init_v4 *)plugin->init)(context, mask, "world", 0xabcdef, 2, 4, 1, NULL);
    return ((init_v1 *)plugin->init)(context, mask);
}

int main(int argc, char **argv)
{
    int version = argc > 2 ? atoi(argv[2]) : 0, mask = -1, p2p;
    char name[32];
    const struct plugin *plugin;
    void *library, *context = NULL, *handle;
    snprintf(name, sizeof name, "ncclProfiler_v%d", version);
    library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    plugin = library ? dlsym(library, name) : NULL;
    if (!plugin) {
        printf("no plugin: %s\n", dlerror());
        return 1;
    }
    printf("init %d", init(plugin, version, &context, &mask));
    printf(" mask %x\n", (unsigned)mask);
    for (p2p = 0; p2p < 2; p2p++) {
        uint64_t type = lay_out(version, p2p);
        handle = buffer;
        if (!(mask & (int)type))
            continue;
        printf("start %d", plugin->start(context, &handle, event));
        printf(" handle %d\n", handle != NULL);
    }
    put_64(0, version == 5 ? PROXY_STEP : 0x5a5a5a5a5a5a5a00 + PROXY_STEP); /* not asked for */
    printf("start %d\n", plugin->start(context, &handle, event));
    printf("state %d stop %d\n", plugin->state(NULL, 1, NULL), plugin->stop(NULL));
    printf("finalize %d\n", plugin->finalize(context));
    return dlclose(library);
}
