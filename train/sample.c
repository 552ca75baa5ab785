// SPDX-License-Identifier: Apache-2.0
/*
 * Sampling: the whole context is computed again for each byte. That is more
 * work than keeping keys and values, and a lot less program.
 */
#include "train/sample.h"

#include "train/error.h"
#include "train/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contexts are padded to a multiple of this, so that not every byte needs new
 * matrix shapes. Attention is causal, so the padding does not matter. */
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

/* Fills `context` with the end of the text; returns how many bytes count. */
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

int sample_text(struct trainer *t, const uint8_t *prompt, size_t prompt_bytes,
                size_t count, double temperature, struct sample *sample)
{
    size_t seq = t->o->model.seq, length = prompt_bytes;
    uint64_t key = random_key(t->o->seed, "sample");
    uint8_t *context = malloc(seq);
    uint8_t *all = malloc(length + count + 1);

    memset(sample, 0, sizeof(*sample));
    if (!context || !all) {
        free(context);
        free(all);
        return train_error("out of memory");
    }
    if (length)
        memcpy(all, prompt, length);
    else
        all[length++] = '\n'; /* something must come before the first byte */
    sample->prompt = length;
    for (size_t i = 0; i < count; i++) {
        size_t rows, n = last_bytes(all, length, seq, context, &rows);
        size_t sequences = t->team->rank == 0;
        if (model_forward(&t->model, sequences, rows, context, NULL, NULL)) {
            free(context);
            free(all);
            return -1;
        }
        model_release(&t->model);
        if (t->team->rank != 0)
            continue;
        const float *logits = t->model.probs + (n - 1) * VOCABULARY;
        all[length++] = pick(logits, temperature, random_uniform(key, i));
    }
    free(context);
    sample->length = length;
    if (t->team->rank == 0)
        sample->bytes = all;
    else
        free(all);
    return 0;
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
