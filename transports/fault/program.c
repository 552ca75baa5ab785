// SPDX-License-Identifier: Apache-2.0
/*
 * SHUNT_FAULT: words separated by commas, such as
 * "nomap,delay=200,reorder,seed=7". The table below is the documentation.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/fault/program.h"

enum word {
    NOMAP,
    NOGET,
    APART,
    BADGET,
    FULL,
    DELAY,
    FIXED,
    REORDER,
    SEED,
    FAIL,
    DIE,
    FADE,
    SILENCE,
    RANK,
    PEER
};

static const struct {
    const char *name;
    const char *value; /* NULL: takes no value */
    const char *help;
} words[] = {
    [NOMAP] = {"nomap", NULL,
               "peers' memory is neither mapped nor read: all goes by put"},
    [NOGET] = {"noget", NULL, "peers' plain memory cannot be read"},
    [APART] = {"apart", NULL, "peers are not reached (SHUNT_ERR_UNSUPPORTED)"},
    [BADGET] = {"badget", "N",
                "each N-th read of peers' plain memory fails "
                "(SHUNT_ERR_SYSTEM)"},
    [FULL] = {"full", "USEC",
              "there is no room for a read of plain memory until USEC after it "
              "was first asked for"},
    [DELAY] = {"delay", "USEC",
               "a put takes effect at a random time up to USEC later, and a "
               "read of plain memory begins then; puts to one peer stay in "
               "order"},
    [FIXED] = {"fixed", NULL, "the delay is always USEC"},
    [REORDER] = {"reorder", NULL,
                 "puts on different channels overtake each other (with delay, "
                 "or within 100 us)"},
    [SEED] = {"seed", "N", "another sequence of random times"},
    [FAIL] = {"fail", "N", "the N-th put fails (SHUNT_ERR_SYSTEM), once"},
    [DIE] = {"die", "N", "from the N-th put on, its peer looks lost"},
    [FADE] =
        {"fade", "USEC",
         "USEC after it was opened, its peers look lost (of `peer`, if that "
         "is given, only that one)"},
    [SILENCE] = {"silence", "N",
                 "from the N-th put on, nothing is delivered any more, and no "
                 "peer is woken; implies nomap"},
    [RANK] = {"rank", "R", "all of this on rank R only"},
    [PEER] = {"peer", "R",
              "puts to rank R only, which are delayed, counted and struck"},
};

#define NWORDS (sizeof(words) / sizeof(words[0]))

void fault_program_words(char *text, size_t len)
{
    size_t used = 0;

    for (size_t i = 0; i < NWORDS && used < len; i++) {
        int n = snprintf(text + used, len - used, "%s%s%s%s: %s", i ? "\n" : "",
                         words[i].name, words[i].value ? "=" : "",
                         words[i].value ? words[i].value : "", words[i].help);

        used += n > 0 ? (size_t)n : 0;
    }
}

/* Returns the number of a word, or NWORDS if there is no such word. */
static size_t find(const char *word, size_t len)
{
    size_t i;

    for (i = 0; i < NWORDS; i++) {
        if (strlen(words[i].name) == len && !strncmp(words[i].name, word, len))
            break;
    }
    return i;
}

static bool number(const char *text, size_t len, uint64_t *value)
{
    uint64_t v = 0;

    if (len == 0 || len > 12)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    *value = v;
    return true;
}

static void set(struct fault_program *program, enum word word, uint64_t value)
{
    switch (word) {
    case NOMAP:
        program->nomap = true;
        break;
    case NOGET:
        program->noget = true;
        break;
    case APART:
        program->apart = true;
        break;
    case BADGET:
        program->badget = value;
        break;
    case FULL:
        program->full = value * 1000;
        break;
    case DELAY:
        program->delay = value * 1000;
        break;
    case FIXED:
        program->fixed = true;
        break;
    case REORDER:
        program->reorder = true;
        break;
    case SEED:
        program->seed = value;
        break;
    case FAIL:
        program->fail = value;
        break;
    case DIE:
        program->die = value;
        break;
    case FADE:
        program->fade = value * 1000;
        break;
    case SILENCE:
        program->silence = value;
        program->nomap = true;
        break;
    case RANK:
        program->rank = value < 1 << 30 ? (int)value : 1 << 30;
        break;
    case PEER:
        program->peer = value < 1 << 30 ? (int)value : 1 << 30;
        break;
    }
}

static void complain(char *why, size_t why_len, const char *word, size_t len)
{
    int n = snprintf(why, why_len,
                     "SHUNT_FAULT: \"%.*s\" is not understood; words are",
                     (int)len, word);

    for (size_t i = 0; i < NWORDS && n > 0 && (size_t)n < why_len; i++)
        n += snprintf(why + n, why_len - (size_t)n, " %s%s%s", words[i].name,
                      words[i].value ? "=" : "",
                      words[i].value ? words[i].value : "");
}

bool fault_program_parse(const char *text, struct fault_program *program,
                         char *why, size_t why_len)
{
    *program = (struct fault_program){.rank = -1, .peer = -1};
    if (!text)
        text = "";
    while (*text) {
        size_t len = strcspn(text, ",");
        size_t name = strcspn(text, "=,");
        size_t word = find(text, name);
        uint64_t value = 0;

        if (len > 0) {
            bool has_value = name < len;

            if (word == NWORDS || has_value != !!words[word].value ||
                (has_value &&
                 !number(text + name + 1, len - name - 1, &value))) {
                complain(why, why_len, text, len);
                return false;
            }
            set(program, (enum word)word, value);
        }
        text += len;
        text += *text == ',';
    }
    if (program->reorder && program->delay == 0)
        program->delay = 100000;
    return true;
}
