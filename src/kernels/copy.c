// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of payload, through the cache or past it.
 */
#include "src/kernels/copy.h"

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "src/kernels/cpu.h"

/* The sanitizers check memcpy(), but no non-temporal stores and no assembly. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIN 1
#endif
#endif

/*
 * Above these sizes another kind of copy is faster. On a Zen 5 server (2 MiB of
 * second-level cache for both cores, 32 MiB of third), two cores copying at
 * once, GB/s:
 *
 *     bytes     memcpy  movsb  non-temporal
 *     256 KiB      127    125            40
 *     1 MiB         57     67            37
 *     16 MiB        28     43            33
 *     64 MiB        12     20            16
 *
 * glibc (2.36) stops using `rep movsb` at the size of the second-level cache.
 * It uses non-temporal stores from 3/4 of the size that it assumes for the last
 * level, here 300 MB.
 */
#define MOVSB_MIN ((size_t)512 << 10)
#define STREAM_MIN ((size_t)16 << 20)

#if defined(__SSE2__) && !defined(PLAIN)

void shunti_copy_stream(void *dst, const void *src, size_t bytes)
{
    unsigned char *d = dst;
    const unsigned char *s = src;
    size_t head = -(uintptr_t)d & 63;

    if (bytes < 256) {
        memcpy(d, s, bytes);
        return;
    }
    /* Whole lines only: a partly written line would be read and merged. */
    memcpy(d, s, head);
    d += head;
    s += head;
    bytes -= head;
    for (; bytes >= 64; bytes -= 64, d += 64, s += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
        __m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));

        _mm_stream_si128((__m128i *)(void *)d, a);
        _mm_stream_si128((__m128i *)(void *)(d + 16), b);
        _mm_stream_si128((__m128i *)(void *)(d + 32), c);
        _mm_stream_si128((__m128i *)(void *)(d + 48), e);
    }
    memcpy(d, s, bytes);
}

void shunti_copy_fence(void)
{
    _mm_sfence();
}

#else

void shunti_copy_stream(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void shunti_copy_fence(void)
{
}

#endif

static void copy_movsb(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__) && !defined(PLAIN)
    __asm__ volatile("rep movsb"
                     : "+D"(dst), "+S"(src), "+c"(bytes)
                     :
                     : "memory");
    /* Stores of `rep movsb` may be weakly ordered among themselves, but not
     * with later stores: no fence is needed. */
#else
    memcpy(dst, src, bytes);
#endif
}

void shunti_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes < MOVSB_MIN) {
        memcpy(dst, src, bytes);
    } else if (shunti_cpu_has_fast_movsb()) {
        size_t head = -(uintptr_t)dst & 63;

        memcpy(dst, src, head);
        copy_movsb((unsigned char *)dst + head,
                   (const unsigned char *)src + head, bytes - head);
    } else if (bytes < STREAM_MIN) {
        memcpy(dst, src, bytes);
    } else {
        shunti_copy_stream(dst, src, bytes);
        shunti_copy_fence();
    }
}
