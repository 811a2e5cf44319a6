/* System calls made directly: they touch no errno, no other preloaded library, and need no libc. */
#ifndef DLQPROF_SYS_H
#define DLQPROF_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)

/* Of one writer's own counter: a load and a store are cheaper than a locked instruction. */
#define GROW(p, v) STORE((p), LOAD(p) + (v))

/* The result, or -errno. */
#if defined(__x86_64__)
static inline long sys6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long sys6(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "the profiler knows x86-64 and aarch64"
#endif

#define ARG(x) ((long)(uintptr_t)(x))
#define SYS0(n) sys6(n, 0, 0, 0, 0, 0, 0)
#define SYS1(n, a) sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b) sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c) sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(n, a, b, c, d, e) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define SYS6(n, a, b, c, d, e, f) \
    sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* ---- the few string functions that are needed, without a library ---- */

static inline size_t text_length(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    return n;
}

static inline int text_equal(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static inline int text_starts(const char *text, const char *prefix)
{
    while (*prefix && *text == *prefix)
        text++, prefix++;
    return *prefix == 0;
}

/* Copies the fitting part and always ends with a zero; returns its length. */
static inline size_t text_copy(char *to, size_t room, const char *from)
{
    size_t n = 0;
    while (n + 1 < room && from[n]) {
        to[n] = from[n];
        n++;
    }
    to[n] = 0;
    return n;
}

/* Decimal digits without an end; returns how many (at most 20). */
static inline size_t text_number(char *to, uint64_t number)
{
    char digits[20];
    size_t n = 0, i;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    for (i = 0; i < n; i++)
        to[i] = digits[n - 1 - i];
    return n;
}

#endif
