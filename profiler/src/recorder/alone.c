/* Functions that compilers make of loops and assignments, so that no library is needed for them.
 * Hidden: the program keeps its own. */
#include <stddef.h>

#ifndef DLQPROF_HOSTED
void *memset(void *to, int value, size_t n)
{
    volatile unsigned char *byte = to;
    while (n--)
        *byte++ = (unsigned char)value;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    volatile unsigned char *byte = to;
    const unsigned char *other = from;
    while (n--)
        *byte++ = *other++;
    return to;
}

size_t strlen(const char *text)
{
    const volatile char *end = text;
    while (*end)
        end++;
    return (size_t)(end - text);
}
#endif
