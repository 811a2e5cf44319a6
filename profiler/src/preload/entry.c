/* Where the preloaded library starts. */
#include "recorder.h"

#include "resolve.h"

__attribute__((constructor)) static void start(void)
{
    dlqprof_resolve_all();
    dlqprof_start();
    dlqprof_resolve_with_lock();
}
