/* Sizes of ncclDataType_t, for both libraries that see NCCL. */
#ifndef DLQPROF_NCCL_TYPES_H
#define DLQPROF_NCCL_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 float8e4m3 float8e5m2 */
static inline size_t dlqprof_nccl_bytes(int type)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

#endif
