// SPDX-License-Identifier: Apache-2.0
/* The text: reading it, holding out parts, and sampling; and its bigram
 * model. */
#include "train/base/error.h"
#include "train/run/bigram.h"
#include "train/run/xz.h"
#include "train/step/data.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/shunt-text-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(text, .init = set_up, .fini = tear_down, .timeout = 30);

static char *put(const char *name, const char *content)
{
    static char path[8][256];
    static int next;
    char *p = path[next++ % 8];

    snprintf(p, sizeof(path[0]), "%s/%s", folder, name);
    for (char *slash = p + strlen(folder) + 1; (slash = strchr(slash, '/'));
         slash++) {
        *slash = '\0';
        mkdir(p, 0777);
        *slash = '/';
    }
    FILE *f = fopen(p, "w");
    cr_assert(f);
    fputs(content, f);
    fclose(f);
    return p;
}

static void expect(const struct text *t, const char *want)
{
    cr_assert_eq(t->length, strlen(want));
    cr_assert_eq(memcmp(t->bytes, want, t->length), 0);
}

Test(text, files_in_the_order_given)
{
    char *paths[] = {put("b", "second"), put("a", "first"), put("empty", "")};
    struct text t;

    cr_assert_eq(text_read_files(paths, 3, &t), 0, "%s", train_error_text());
    expect(&t, "secondfirst");
    text_free(&t);
}

Test(text, missing_file_is_named)
{
    char *paths[] = {put("a", "x"), "/nonexistent/book.txt"};
    struct text t;

    cr_assert_eq(text_read_files(paths, 2, &t), -1);
    cr_assert(strstr(train_error_text(), "/nonexistent/book.txt"));
    cr_assert_null(t.bytes);
}

Test(text, a_folder_is_no_file)
{
    char *paths[] = {folder};
    struct text t;

    cr_assert_eq(text_read_files(paths, 1, &t), -1);
    cr_assert(strstr(train_error_text(), folder));
}

Test(text, tree_takes_sources_in_order_of_paths)
{
    struct text t;

    put("src/z.c", "3");
    put("src/a.h", "2");
    put("README.md", "1");
    put("src/meson.build", "+");
    put("src/z.o", "no");
    put("src/.hidden.c", "no");
    put(".git/config.c", "no");
    put("build/build.ninja", "no");
    put("build/generated.c", "no");
    cr_assert_eq(text_read_tree(folder, &t), 0);
    expect(&t, "12+3"); /* README.md src/a.h src/meson.build src/z.c */
    cr_assert_eq(t.files, 4);
    cr_assert_eq(t.end[0], 1);
    cr_assert_eq(t.end[3], 4);
    text_free(&t);
}

static struct text numbered(size_t n)
{
    struct text t = {malloc(n), n, NULL, 0};

    for (size_t i = 0; i < n; i++)
        t.bytes[i] = (uint8_t)(i / 2048);
    return t;
}

Test(text, a_tenth_is_held_out_and_nothing_is_lost)
{
    struct text t = numbered(2048 * 40 + 100);
    struct data d;

    cr_assert_eq(data_split(&t, 64, &d), 0);
    const struct held *h = &d.held[HELD_BLOCKS];
    cr_assert_eq(h->length, 4 * 2048u);
    cr_assert_eq(d.held[HELD_FILES].length, 0);
    cr_assert_eq(d.ntrain + h->length, t.length);
    for (size_t i = 0; i < h->length; i++)
        cr_assert_eq(h->bytes[i] % 10, 9);
    for (size_t i = 0; i < d.ntrain; i++)
        cr_assert_neq(d.train[i] % 10, 9);
    /* Windows must share a byte, stay inside of the text, and be spread over
     * all of the text. */
    size_t n = data_windows(h, 64);
    cr_assert_eq(n, (4 * 2048u - 1) / 64);
    cr_assert_eq(data_window(h, 1, n, 64), h->bytes + 64);
    cr_assert_leq(data_window(h, n - 1, n, 64) + 65, h->bytes + h->length);
    for (size_t i = 0; i < 4; i++)
        cr_assert_leq(*data_window(h, i, 4, 64), 10 * i + 9);
    cr_assert_eq(*data_window(h, 3, 4, 64), 29);
    data_free(&d);
    text_free(&t);
}

/* The ninth of twenty files is held out as a whole. Held-out blocks are from
 * the other files. */
Test(text, whole_files_are_held_out)
{
    enum { FILES = 20, BYTES = 5000 };
    struct text t = {malloc(FILES * BYTES), FILES * BYTES,
                     malloc(FILES * sizeof(uint64_t)), FILES};
    struct data d;
    size_t seen[256] = {0};

    for (size_t i = 0; i < t.length; i++)
        t.bytes[i] = (uint8_t)(i / BYTES);
    for (size_t i = 0; i < FILES; i++)
        t.end[i] = (i + 1) * BYTES;
    cr_assert_eq(data_split(&t, 64, &d), 0, "%s", train_error_text());
    cr_assert_eq(d.files, 1);
    cr_assert_eq(d.held[HELD_FILES].length, BYTES);
    for (int kind = 0; kind < HELD; kind++)
        for (size_t i = 0; i < d.held[kind].length; i++)
            seen[d.held[kind].bytes[i]]++;
    for (size_t i = 0; i < d.ntrain; i++) {
        cr_assert_neq(d.train[i], 8, "training sees the file");
        seen[d.train[i]]++;
    }
    for (size_t i = 0; i < FILES; i++)
        cr_assert_eq(seen[i], BYTES, "%zu bytes of file %zu", seen[i], i);
    cr_assert_gt(d.held[HELD_BLOCKS].length, t.length / 14);
    size_t prompt;
    cr_assert_eq(*data_prompt(&d, &prompt), 8);
    cr_assert_gt(prompt, 60);

    /* The hash must cover the ends of files, which decide what is held out. */
    uint64_t hash = text_hash(&t);
    t.end[3]--;
    cr_assert_neq(text_hash(&t), hash);
    data_free(&d);
    text_free(&t);
}

Test(text, too_short_says_how_much_is_needed)
{
    struct text t = numbered(5000);
    struct data d;

    cr_assert_eq(data_split(&t, 64, &d), -1);
    cr_assert(strstr(train_error_text(), "5000"));
    cr_assert(strstr(train_error_text(), "--data"));
    text_free(&t);
}

Test(text, sequences_are_a_function_of_seed_step_and_place)
{
    struct text t = numbered(2048 * 40);
    struct data d;
    size_t equal = 0;

    cr_assert_eq(data_split(&t, 64, &d), 0);
    const uint8_t *one = data_sequence(&d, 1, 5, 3, 64);
    cr_assert_eq(one, data_sequence(&d, 1, 5, 3, 64));
    for (size_t i = 0; i < 1000; i++) {
        const uint8_t *s = data_sequence(&d, 1, 5 + i / 16, i % 16, 64);
        cr_assert_geq(s, d.train);
        cr_assert_leq(s + 65, d.train + d.ntrain);
        equal += s == one;
        equal += data_sequence(&d, 2 + i, 5, 3, 64) == one;
    }
    cr_assert_lt(equal, 4); /* `one` itself, and hardly another */
    data_free(&d);
    text_free(&t);
}

static double bigrams(const struct data *d)
{
    const struct held *h = &d->held[HELD_BLOCKS];

    return bigram_loss(d, h, data_windows(h, 64), 64);
}

/* A text of one letter must have an entropy of 0. A text of 2^k equally likely
 * letters must have k bits a byte, of which bigrams can learn nothing. */
Test(text, bigram_of_texts_whose_entropy_is_known)
{
    struct text t = numbered(2048 * 100);
    struct data d;
    uint64_t state = 7;

    memset(t.bytes, 'x', t.length);
    cr_assert_eq(data_split(&t, 64, &d), 0);
    cr_assert_lt(bigrams(&d), 0.01);
    data_free(&d);

    for (size_t i = 0; i < t.length; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        t.bytes[i] = (uint8_t)('a' + (state >> 62));
    }
    cr_assert_eq(data_split(&t, 64, &d), 0);
    cr_assert_float_eq(bigrams(&d), log(4), 0.01);
    data_free(&d);

    /* Each letter determines the next one: bigrams can predict it, single
     * letters cannot. */
    for (size_t i = 0; i < t.length; i++)
        t.bytes[i] = (uint8_t)(i * 37);
    cr_assert_eq(data_split(&t, 64, &d), 0);
    cr_assert_lt(bigrams(&d), 0.05);
    data_free(&d);
    text_free(&t);
}

static double xz(const struct data *d)
{
    size_t windows[HELD] = {0, data_windows(&d->held[HELD_BLOCKS], 64)};
    double loss[HELD];

    xz_loss(d, windows, 64, loss);
    cr_assert(isnan(loss[HELD_FILES]), "%g of no windows", loss[HELD_FILES]);
    return loss[HELD_BLOCKS];
}

/* xz must need two bits for a letter that cannot be predicted, and almost none
 * if the training text has the same letters. */
Test(text, xz_of_texts_whose_entropy_is_known)
{
    struct text t = numbered(2048 * 100);
    struct data d;
    uint64_t state = 7;

    for (size_t i = 0; i < t.length; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        t.bytes[i] = (uint8_t)('a' + (state >> 62));
    }
    cr_assert_eq(data_split(&t, 64, &d), 0);
    if (xz_there()) {
        double loss = xz(&d);
        cr_assert(loss > 0.98 * log(4) && loss < 1.2 * log(4), "%g", loss);
    } else {
        cr_assert(isnan(xz(&d)));
    }
    data_free(&d);

    /* Held-out blocks repeat the block before them. */
    for (size_t b = 9; b < 100; b += 10)
        memcpy(t.bytes + b * 2048, t.bytes + (b - 1) * 2048, 2048);
    cr_assert_eq(data_split(&t, 64, &d), 0);
    if (xz_there())
        cr_assert_lt(xz(&d), 0.05 * log(4));
    data_free(&d);
    text_free(&t);
}
