/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104): a program that knows the attempt's key may start its
 * tasks. */
#include "steps.h"

#include <string.h>

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct sha256 {
    uint32_t state[8];
    unsigned char block[64];
    uint64_t length;
};

static uint32_t turned(uint32_t value, int by)
{
    return (value >> by) | (value << (32 - by));
}

static void mix(struct sha256 *sum)
{
    uint32_t w[64], s[8];
    for (int at = 0; at < 16; at++)
        w[at] = (uint32_t)sum->block[4 * at] << 24 | (uint32_t)sum->block[4 * at + 1] << 16 |
                (uint32_t)sum->block[4 * at + 2] << 8 | sum->block[4 * at + 3];
    for (int at = 16; at < 64; at++) {
        uint32_t a = turned(w[at - 15], 7) ^ turned(w[at - 15], 18) ^ (w[at - 15] >> 3);
        uint32_t b = turned(w[at - 2], 17) ^ turned(w[at - 2], 19) ^ (w[at - 2] >> 10);
        w[at] = w[at - 16] + a + w[at - 7] + b;
    }
    memcpy(s, sum->state, sizeof s);
    for (int at = 0; at < 64; at++) {
        uint32_t e = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
        uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + ROUND[at] + w[at];
        uint32_t a = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
        uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int at = 0; at < 8; at++)
        sum->state[at] += s[at];
}

static void begin(struct sha256 *sum)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *sum = (struct sha256){0};
    memcpy(sum->state, first, sizeof first);
}

static void add(struct sha256 *sum, const void *data, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        sum->block[sum->length++ % 64] = ((const unsigned char *)data)[at];
        if (sum->length % 64 == 0)
            mix(sum);
    }
}

static void end(struct sha256 *sum, unsigned char out[32])
{
    uint64_t bits = sum->length * 8;
    unsigned char count[8];
    add(sum, "\x80", 1);
    while (sum->length % 64 != 56)
        add(sum, "", 1);
    for (int at = 0; at < 8; at++)
        count[at] = (unsigned char)(bits >> (56 - 8 * at));
    add(sum, count, 8);
    for (int at = 0; at < 32; at++)
        out[at] = (unsigned char)(sum->state[at / 4] >> (24 - 8 * (at % 4)));
}

void hmac_sha256(const void *key, size_t key_length, const void *data, size_t length,
                 unsigned char out[32])
{
    unsigned char inner[64] = {0}, outer[64];
    struct sha256 sum;
    memcpy(inner, key, key_length < 64 ? key_length : 64);
    for (int at = 0; at < 64; at++) {
        outer[at] = inner[at] ^ 0x5c;
        inner[at] ^= 0x36;
    }
    begin(&sum);
    add(&sum, inner, 64);
    add(&sum, data, length);
    end(&sum, out);
    begin(&sum);
    add(&sum, outer, 64);
    add(&sum, out, 32);
    end(&sum, out);
}

bool same_bytes(const void *left, const void *right, size_t length)
{
    unsigned char differs = 0;
    for (size_t at = 0; at < length; at++)
        differs |= ((const unsigned char *)left)[at] ^ ((const unsigned char *)right)[at];
    return differs == 0;
}
