/* Finds symbols by walking the loaded objects, instead of dlsym: before glibc 2.34 dlsym may not be
 * there, and ours is a wrapper itself. */
#include "sys.h"

#include "resolve.h"

#include <elf.h>
#include <link.h>

extern struct r_debug _r_debug WEAK; /* glibc */
extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *) WEAK;

static int with_lock;

struct wanted {
    const char *name;
    uint32_t gnu_hash, sysv_hash;
    int passed_us;
    void *found;
};

struct object {
    uintptr_t base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash, *sysv_hash;
    const uint16_t *versions;
};

/* glibc relocates the entries of the dynamic section, musl does not. */
static uintptr_t absolute(uintptr_t base, uintptr_t value)
{
    return value < base ? base + value : value;
}

static int read_object(struct object *object, uintptr_t base, const ElfW(Dyn) *dynamic)
{
    *object = (struct object){.base = base};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t at = absolute(base, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = (const ElfW(Sym) *)at;
        else if (dynamic->d_tag == DT_STRTAB)
            object->strings = (const char *)at;
        else if (dynamic->d_tag == DT_GNU_HASH)
            object->gnu_hash = (const uint32_t *)at;
        else if (dynamic->d_tag == DT_HASH)
            object->sysv_hash = (const uint32_t *)at;
        else if (dynamic->d_tag == DT_VERSYM)
            object->versions = (const uint16_t *)at;
    }
    return object->symbols && object->strings && (object->gnu_hash || object->sysv_hash);
}

static void *match(const struct object *object, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_NOTYPE))
        return NULL;
    if (binding != STB_GLOBAL && binding != STB_WEAK)
        return NULL;
    if (object->versions && (object->versions[index] & 0x8000)) /* an old version, not the default */
        return NULL;
    if (!text_equal(object->strings + symbol->st_name, name))
        return NULL;
    return (void *)(object->base + symbol->st_value);
}

static void *find_gnu(const struct object *object, const struct wanted *wanted)
{
    const uint32_t *table = object->gnu_hash;
    uint32_t buckets = table[0], first = table[1], bloom_words = table[2], shift = table[3];
    const uint64_t *bloom = (const uint64_t *)(table + 4);
    const uint32_t *bucket = (const uint32_t *)(bloom + bloom_words);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = wanted->gnu_hash, i;
    uint64_t word;
    if (!buckets || !bloom_words)
        return NULL;
    word = bloom[(hash / 64) % bloom_words];
    if (!(word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1))
        return NULL;
    i = bucket[hash % buckets];
    if (i < first)
        return NULL;
    for (;; i++) {
        uint32_t other = chain[i - first];
        if ((other | 1) == (hash | 1)) {
            void *found = match(object, i, wanted->name);
            if (found)
                return found;
        }
        if (other & 1)
            return NULL;
    }
}

static void *find_sysv(const struct object *object, const struct wanted *wanted)
{
    const uint32_t *table = object->sysv_hash;
    uint32_t buckets = table[0], i;
    if (!buckets)
        return NULL;
    for (i = table[2 + wanted->sysv_hash % buckets]; i; i = table[2 + buckets + i]) {
        void *found = match(object, i, wanted->name);
        if (found)
            return found;
    }
    return NULL;
}

static void look_into(struct wanted *wanted, uintptr_t base, const ElfW(Dyn) *dynamic)
{
    struct object object;
    if (!read_object(&object, base, dynamic))
        return;
    wanted->found = object.gnu_hash ? find_gnu(&object, wanted) : find_sysv(&object, wanted);
}

static int look_at_phdr(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wanted *wanted = data;
    int i;
    (void)size;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Dyn) *dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        if (dynamic == _DYNAMIC)
            wanted->passed_us = 1;
        else if (wanted->passed_us)
            look_into(wanted, info->dlpi_addr, dynamic);
    }
    return wanted->found != NULL;
}

static void walk_link_map(struct wanted *wanted)
{
    struct link_map *map;
    for (map = _r_debug.r_map; map && !wanted->found; map = map->l_next) {
        if (map->l_ld == _DYNAMIC)
            wanted->passed_us = 1;
        else if (wanted->passed_us && map->l_ld)
            look_into(wanted, map->l_addr, map->l_ld);
    }
}

void *dlqprof_next(const char *name)
{
    struct wanted wanted = {.name = name, .gnu_hash = 5381};
    const char *c;
    for (c = name; *c; c++) {
        uint32_t high;
        wanted.gnu_hash = wanted.gnu_hash * 33 + (unsigned char)*c;
        wanted.sysv_hash = (wanted.sysv_hash << 4) + (unsigned char)*c;
        high = wanted.sysv_hash & 0xf0000000;
        wanted.sysv_hash = (wanted.sysv_hash ^ high >> 24) & ~high;
    }
    /* Early, before sanitizers are ready for their own dl_iterate_phdr, there is one thread. */
    if (&_r_debug && (!LOAD(&with_lock) || !dl_iterate_phdr))
        walk_link_map(&wanted);
    else if (dl_iterate_phdr)
        dl_iterate_phdr(look_at_phdr, &wanted);
    return wanted.found;
}

#define NEXT_NAME(name) #name,
static const char *const names[NEXT_COUNT] = {WATCHED_CALLS(NEXT_NAME)};
void *dlqprof_next_calls[NEXT_COUNT];

void *dlqprof_resolve(enum dlqprof_call call)
{
    void *found = dlqprof_next(names[call]);
    STORE(&dlqprof_next_calls[call], found);
    return found;
}

void dlqprof_resolve_all(void)
{
    int call;
    for (call = 0; call < NEXT_COUNT; call++)
        dlqprof_resolve((enum dlqprof_call)call);
}

void dlqprof_resolve_with_lock(void)
{
    STORE(&with_lock, 1);
}
