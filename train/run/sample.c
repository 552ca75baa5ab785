// SPDX-License-Identifier: Apache-2.0
/*
 * Sampling. For each byte the whole context is computed again. That is more
 * work than to keep keys and values, but a lot less code.
 */
#include "train/run/sample.h"

#include "train/base/error.h"
#include "train/workload/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contexts are padded to a multiple of this, so that few shapes of products are
 * needed. Attention is causal, so the padding does not matter. */
enum { STEP = 32 };

static uint8_t pick(const float *logits, double temperature, double uniform)
{
    double p[VOCABULARY], sum = 0;
    int top = 0;

    for (int v = 1; v < VOCABULARY; v++)
        if (logits[v] > logits[top])
            top = v;
    if (temperature <= 0)
        return (uint8_t)top;
    for (int v = 0; v < VOCABULARY; v++)
        sum += p[v] = exp(((double)logits[v] - logits[top]) / temperature);
    double left = uniform * sum;
    for (int v = 0; v < VOCABULARY; v++) {
        left -= p[v];
        if (left < 0)
            return (uint8_t)v;
    }
    return (uint8_t)top;
}

/* Fill `context` with the end of the text. Returns how many of its bytes are
 * text. */
static size_t last_bytes(const uint8_t *text, size_t length, size_t seq,
                         uint8_t *context, size_t *filled)
{
    size_t n = length < seq ? length : seq;

    *filled = (n + STEP - 1) / STEP * STEP;
    *filled = *filled < seq ? *filled : seq;
    memset(context, 0, seq);
    memcpy(context, text + length - n, n);
    return n;
}

/* Exchange the signals that asked ranks to stop. asked: (ranks) scratch. */
static int ask_all(struct trainer *t, int own, uint8_t *asked, int *any)
{
    const uint8_t mine = (uint8_t)own;

    if (team_gather(t->team, &mine, asked, 1))
        return -1;
    for (int r = 0; r < t->team->size; r++)
        *any = asked[r] > *any ? asked[r] : *any;
    return 0;
}

int sample_text(struct trainer *t, const uint8_t *prompt, size_t prompt_bytes,
                size_t count, double temperature,
                const volatile sig_atomic_t *stop, struct sample *sample)
{
    size_t seq = t->o->model.seq, length = prompt_bytes;
    uint64_t key = random_key(t->o->seed, "sample");
    uint8_t *context = malloc(seq);
    uint8_t *all = malloc(length + count + 1);
    uint8_t *asked = malloc((size_t)t->team->size);
    int st = 0;

    memset(sample, 0, sizeof(*sample));
    if (!context || !all || !asked) {
        free(context);
        free(all);
        free(asked);
        return train_error("out of memory");
    }
    if (length)
        memcpy(all, prompt, length);
    else
        all[length++] = '\n'; /* the first byte needs something before it */
    sample->prompt = length;
    for (size_t i = 0; i < count && st == 0; i++) {
        size_t rows, n = last_bytes(all, length, seq, context, &rows);
        size_t sequences = t->team->rank == 0;

        st = ask_all(t, *stop, asked, &sample->stopped);
        if (st != 0 || sample->stopped)
            break;
        t->model.forward_only = true;
        st = model_forward(&t->model, sequences, rows, 1, context, NULL, NULL);
        if (st != 0)
            break;
        model_release(&t->model);
        t->model.forward_only = false;
        if (t->team->rank != 0)
            continue;
        const float *logits = t->model.rows.probs + (n - 1) * VOCABULARY;
        all[length++] = pick(logits, temperature, random_uniform(key, i));
    }
    free(context);
    free(asked);
    sample->length = length;
    if (st == 0 && t->team->rank == 0)
        sample->bytes = all;
    else
        free(all);
    return st;
}

char *sample_show(const uint8_t *bytes, size_t count)
{
    char *text = malloc(4 * count + 1), *to = text;

    if (!text) {
        train_error("out of memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n' || (bytes[i] >= 32 && bytes[i] < 127))
            *to++ = (char)bytes[i];
        else
            to += sprintf(to, "\\x%02x", bytes[i]);
    }
    *to = '\0';
    return text;
}
