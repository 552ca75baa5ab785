// SPDX-License-Identifier: Apache-2.0
/*
 * The program check_kernels; see check.h, and --help for its arguments. Without
 * options it checks all kernels and prints TAP.
 */
#include "tests/src/kernels/check.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "src/kernels/cpu.h"
#include "src/kernels/dtype.h"
#include "tests/cross/digest.h"

static const struct family *const families[] = {
    &family_best, &family_convert,     &family_copy, &family_reduce,
    &family_rows, &family_elementwise, &family_gemm, &family_experts,
    &family_tile, &family_rounding,    &family_peak,
};
enum { FAMILIES = sizeof(families) / sizeof(families[0]) };

/* The kernel that runs now, for messages. */
static struct {
    const struct family *family;
    const struct kernel *kernel;
    int variant;
    int trial;
    bool failed;
    bool silent; /* print digests, and no differences */
    uint64_t digest;
} now;

static uint64_t seed = 1;

static const char *variant_name(const struct family *f, int v)
{
    return v == REFERENCE ? "reference" : f->variant(v);
}

const char *isa_variant(int v)
{
    return v < SHUNTI_ISA_COUNT ? shunti_isa_name((enum shunti_isa)v) : NULL;
}

static bool runs(const struct family *f, const struct kernel *k, int v)
{
    return f->runs ? f->runs(k, v) : shunti_isa_runs((enum shunti_isa)v);
}

/* -- memory ---------------------------------------------------------------- */

enum { GUARD = 128, PATTERN = 0xa5 };

static struct slot {
    unsigned char *room; /* SLOT_BYTES, followed by a page that is not mapped */
    unsigned char *at;
    size_t bytes;
} slots[SLOTS];

static void map_slot(struct slot *s)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    s->room = mmap(NULL, SLOT_BYTES + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->room == MAP_FAILED || mprotect(s->room + SLOT_BYTES, page, 0)) {
        perror("check_kernels: mmap");
        exit(EXIT_FAILURE);
    }
}

/* The guarded range: some bytes before and behind the memory that was asked
 * for. */
static unsigned char *guard_begin(const struct slot *s)
{
    return s->at - s->room > GUARD ? s->at - GUARD : s->room;
}

static unsigned char *guard_end(const struct slot *s)
{
    unsigned char *end = s->room + SLOT_BYTES;

    return end - (s->at + s->bytes) > GUARD ? s->at + s->bytes + GUARD : end;
}

void *memory(struct random *r, int slot, size_t bytes, size_t align)
{
    struct slot *s = &slots[slot];
    size_t shift = random_below(r, 128) / align * align;

    if (!s->room)
        map_slot(s);
    if (random_below(r, 2)) /* end at the page that is not mapped */
        shift = 0;
    else
        shift += align + GUARD;
    s->bytes = bytes;
    s->at = s->room + SLOT_BYTES - shift - bytes;
    s->at -= (uintptr_t)s->at % align;
    memset(guard_begin(s), PATTERN, (size_t)(guard_end(s) - guard_begin(s)));
    return s->at;
}

void expect_guards(int slot)
{
    const struct slot *s = &slots[slot];

    for (const unsigned char *p = guard_begin(s); p < guard_end(s); p++)
        if ((p < s->at || p >= s->at + s->bytes) && *p != PATTERN) {
            expect(false, "wrote at %td of %zu bytes", p - s->at, s->bytes);
            return;
        }
}

/* -- values ---------------------------------------------------------------- */

static void put_float(void *dst, size_t i, enum shunt_dtype dtype, double value)
{
    float narrow = (float)value;
    uint16_t half = dtype == SHUNT_F16 ? shunti_f32_to_f16(narrow)
                                       : shunti_f32_to_bf16(narrow);

    if (dtype == SHUNT_F64)
        memcpy((char *)dst + 8 * i, &value, 8);
    else if (dtype == SHUNT_F32)
        memcpy((char *)dst + 4 * i, &narrow, 4);
    else
        memcpy((char *)dst + 2 * i, &half, 2);
}

static bool is_float(enum shunt_dtype dtype)
{
    return dtype == SHUNT_F16 || dtype == SHUNT_BF16 || dtype == SHUNT_F32 ||
           dtype == SHUNT_F64;
}

void ordinary(struct random *r, void *dst, size_t count, enum shunt_dtype dtype)
{
    int exponent = (int)random_below(r, 21) - 10;

    if (!is_float(dtype)) {
        random_elements(r, dst, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_next(r);
        /* The sum of four numbers of 12 bits, scaled to -2 .. 2, and never
         * 0. */
        double sum = (double)((bits & 0xfff) + (bits >> 12 & 0xfff) +
                              (bits >> 24 & 0xfff) + (bits >> 36 & 0xfff));

        put_float(dst, i, dtype, ldexp(sum - 8190.5, exponent - 12));
    }
}

void values(struct random *r, void *dst, size_t count, enum shunt_dtype dtype)
{
    static const double special[] = {
        INFINITY, -INFINITY, NAN,     0.0,    -0.0,   1.0,
        0x1p-140, -0x1p-149, 0x1p-16, 1.7e38, -1e-45, 0x1p-1040,
    };
    uint64_t mixture = random_below(r, 4);

    if (mixture == 0 || !is_float(dtype)) {
        random_elements(r, dst, count, dtype);
        return;
    }
    ordinary(r, dst, count, dtype);
    if (mixture != 1)
        return;
    for (size_t i = random_below(r, 9); i < count;
         i += 1 + random_below(r, 40)) {
        put_float(dst, i, dtype, special[random_below(r, 12)]);
        /* This NaN becomes an infinity if its lower half is cut off. */
        if (dtype == SHUNT_F32 && random_below(r, 8) == 0)
            memcpy((char *)dst + 4 * i, &(uint32_t){0x7f800001}, 4);
    }
}

/* -- expectations ---------------------------------------------------------- */

void expect(bool good, const char *format, ...)
{
    va_list args;

    if (good || now.failed || now.silent)
        return;
    now.failed = true;
    printf("# %s by %s, --seed %llu, case %d: ", now.kernel->name,
           variant_name(now.family, now.variant), (unsigned long long)seed,
           now.trial);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

static bool is_nan(const unsigned char *at, enum shunt_dtype dtype)
{
    return dtype == SHUNT_FP8_E4M3 ? (*at & 0x7f) == 0x7f
                                   : digest_is_nan(at, dtype);
}

void expect_same(const char *what, const void *got, const void *want,
                 size_t count, enum shunt_dtype dtype)
{
    size_t size = shunt_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        const unsigned char *x = (const unsigned char *)got + i * size;
        const unsigned char *y = (const unsigned char *)want + i * size;
        uint64_t a = 0, b = 0;
        bool nan = is_nan(y, dtype);

        memcpy(&a, x, size);
        memcpy(&b, y, size);
        now.digest = (now.digest ^ (nan ? 0xff : b)) * 0x100000001b3u;
        if (a != b && !(nan && is_nan(x, dtype))) {
            expect(false, "%s: element %zu of %zu is %0*llx, not %0*llx", what,
                   i, count, (int)size * 2, (unsigned long long)a,
                   (int)size * 2, (unsigned long long)b);
            return;
        }
    }
}

/* -- checking -------------------------------------------------------------- */

/* The text that crashed() prints, as a signal handler. */
static char last_words[256];
static size_t last_words_length;

static void prepare_to_crash(void)
{
    int n = snprintf(last_words, sizeof(last_words),
                     "# %s by %s, --seed %llu, case %d: a signal; it reads or "
                     "writes past the end\n",
                     now.kernel->name, variant_name(now.family, now.variant),
                     (unsigned long long)seed, now.trial);

    last_words_length = (size_t)n < sizeof(last_words) ? (size_t)n : 0;
}

static void trials(const struct family *f, const struct kernel *k, int v)
{
    now.family = f;
    now.kernel = k;
    now.variant = v;
    now.failed = false;
    now.digest = DIGEST_BEGIN;
    for (now.trial = 0; now.trial < f->trials && !now.failed; now.trial++) {
        struct random r = {seed * 0x2545f4914f6cdd1d + (uint64_t)now.trial};

        prepare_to_crash();
        f->trial(k, v, &r);
    }
}

static void crashed(int signal)
{
    (void)signal;
    if (write(STDOUT_FILENO, last_words, last_words_length) < 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_FAILURE);
}

static bool wanted(const struct family *f, const struct kernel *k, int n,
                   char **names)
{
    char full[128];

    snprintf(full, sizeof(full), "%s %s", f->name, k->name);
    for (int i = 0; i < n; i++)
        if (strstr(full, names[i]))
            return true;
    return n == 0;
}

/* Calls `each` for all kernels that `names` select. */
static void each_kernel(int n, char **names,
                        void (*each)(const struct family *f,
                                     const struct kernel *k))
{
    for (int i = 0; i < FAMILIES; i++)
        for (const struct kernel *k = families[i]->kernels; k->name; k++)
            if (wanted(families[i], k, n, names))
                each(families[i], k);
}

static int cases, failures;

static void check_kernel(const struct family *f, const struct kernel *k)
{
    for (int v = 0; f->variant(v); v++) {
        if (!runs(f, k, v))
            continue;
        trials(f, k, v);
        failures += now.failed;
        printf("%sok %d - %s %s: %s\n", now.failed ? "not " : "", ++cases,
               f->name, k->name, f->variant(v));
        fflush(stdout);
    }
}

static void print_digest(const struct family *f, const struct kernel *k)
{
    if (!f->digests)
        return;
    now.silent = true;
    trials(f, k, REFERENCE);
    printf("%-11s %-24s %016llx\n", f->name, k->name,
           (unsigned long long)now.digest);
}

/* -- timing ---------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_calls(const struct family *f, const struct kernel *k, int v,
                         size_t calls)
{
    double start = seconds();

    for (size_t i = 0; i < calls; i++)
        f->once(k, v, false);
    return seconds() - start;
}

/* Seconds of a call. Takes the best of several rounds of at least a
 * millisecond, so that other work of the CPU does not count. */
static double time_variant(const struct family *f, const struct kernel *k,
                           int v)
{
    size_t calls = 1;
    double best;

    while ((best = time_calls(f, k, v, calls)) < 1e-3 && calls < 1u << 30)
        calls *= 2;
    for (int i = 0; i < 15; i++)
        best = fmin(best, time_calls(f, k, v, calls));
    return best / (double)calls;
}

static void bench_kernel(const struct family *f, const struct kernel *k)
{
    double work = f->once(k, REFERENCE, true);
    double time = time_variant(f, k, REFERENCE), reference = work / time;
    char name[64];

    snprintf(name, sizeof(name), "%s %s", f->name, k->name);
    printf("%-30s %-10s %12.0f %9.2f %s\n", name, "reference", time * 1e9,
           reference / 1e9, f->flops ? "GF/s" : "GB/s");
    for (int v = 0; f->variant(v); v++) {
        if (!runs(f, k, v))
            continue;
        work = f->once(k, v, true);
        time = time_variant(f, k, v);
        printf("%-30s %-10s %12.0f %9.2f %s %8.2f\n", "", f->variant(v),
               time * 1e9, work / time / 1e9, f->flops ? "GF/s" : "GB/s",
               work / time / reference);
    }
    fflush(stdout);
}

/* -- the program ----------------------------------------------------------- */

static void print_machine(void)
{
    FILE *info = fopen("/proc/cpuinfo", "r");
    char line[256] = "", *colon;

    printf("# CPU: ");
    while (info && fgets(line, sizeof(line), info))
        if (!strncmp(line, "model name", 10) && (colon = strchr(line, ':'))) {
            line[strcspn(line, "\n")] = '\0';
            printf("%s,", colon + 2);
            break;
        }
    if (info)
        fclose(info);
    for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
        if (shunti_isa_runs((enum shunti_isa)i))
            printf(" %s", shunti_isa_name((enum shunti_isa)i));
    printf("; kernels use %s\n# compiled by %s\n",
           shunti_isa_name(shunti_isa()), __VERSION__);
}

static int usage(FILE *to, int status)
{
    fputs(
        "usage: check_kernels [--seed N] [NAME...]\n"
        "       check_kernels --bench [NAME...]\n"
        "       check_kernels --digests [--seed N] [NAME...]\n"
        "       check_kernels --chosen\n"
        "\n"
        "Checks every variant of every kernel that this CPU runs against a\n"
        "plain reference, over random cases. NAME: only kernels whose name\n"
        "has this in it, as \"rows\" or \"rows sum\".\n"
        "\n"
        "  --seed N   of the random cases; 0: another one each time\n"
        "  --bench    times each variant and the reference: ns of a call,\n"
        "             GB/s or GF/s, and how many times the reference's speed\n"
        "  --digests  of the reference's results, which must be the same on\n"
        "             every CPU\n"
        "  --chosen   the instruction set that kernels use here\n",
        to);
    return status;
}

static void begin_checks(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        signal(signals[i], crashed);
    print_machine();
    printf("# --seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"bench", no_argument, NULL, 'b'},
        {"chosen", no_argument, NULL, 'c'},
        {"digests", no_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},
        {"seed", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    void (*each)(const struct family *, const struct kernel *) = check_kernel;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'b':
            each = bench_kernel;
            break;
        case 'c':
            puts(shunti_isa_name(shunti_isa()));
            return EXIT_SUCCESS;
        case 'd':
            each = print_digest;
            break;
        case 'h':
            return usage(stdout, EXIT_SUCCESS);
        case 's':
            seed = strtoull(optarg, NULL, 10);
            break;
        default:
            return usage(stderr, 2);
        }
    if (seed == 0)
        seed = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    if (each == check_kernel) {
        begin_checks();
    } else if (each == bench_kernel) {
        print_machine();
        printf("%-30s %-10s %12s %14s %8s\n", "# kernel", "variant", "ns",
               "rate", "factor");
    }
    each_kernel(argc - optind, argv + optind, each);
    if (each == check_kernel)
        printf("1..%d\n", cases);
    return failures || (each == check_kernel && !cases) ? EXIT_FAILURE
                                                        : EXIT_SUCCESS;
}
