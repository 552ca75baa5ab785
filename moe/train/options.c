// SPDX-License-Identifier: Apache-2.0
//
// One table: what an option is called, what it takes, what it means and where
// it goes. --help prints it; parsing walks it.
#include "options.h"

#include "error.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_UNASKED = 8 };

enum kind { SIZE, FLOAT, DOUBLE, TEXT, FLAG, FILES, CHOICE, SEED };

struct row {
    const char *name;
    const char *takes; // what its argument is called; NULL: none
    enum kind kind;
    size_t offset;       // of its field in struct options
    double least;        // numbers: smallest value
    const char *choices; // CHOICE: "first|second"; the field is true for second
    const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct row rows[] = {
    {NULL, NULL, SIZE, 0, 0, NULL, "Text"},
    {"data", "FILE", FILES, 0, 0, NULL,
     "train on this text; may be given several times, and other arguments are "
     "taken as files too. Without it: this project's own sources and "
     "documents"},
    {"root", "FOLDER", TEXT, AT(root), 0, NULL,
     "where the project's own text is (default: where it was built)"},

    {NULL, NULL, SIZE, 0, 0, NULL, "Model"},
    {"layers", "N", SIZE, AT(model.layers), 1, NULL, "layers"},
    {"dim", "N", SIZE, AT(model.dim), 2, NULL, "width of the model"},
    {"heads", "N", SIZE, AT(model.heads), 1, NULL, "attention heads"},
    {"seq", "N", SIZE, AT(model.seq), 2, NULL, "positions of a sequence"},
    {"experts", "N", SIZE, AT(model.experts), 1, NULL, "experts of each layer"},
    {"topk", "N", SIZE, AT(model.topk), 1, NULL,
     "experts that each token goes to"},
    {"expert-hidden", "N", SIZE, AT(model.expert_hidden), 1, NULL,
     "hidden width of an expert"},
    {"shared-expert", "N", SIZE, AT(model.shared_hidden), 0, NULL,
     "hidden width of an expert that every token goes to; 0: none"},
    {"renormalise", "WHETHER", CHOICE, AT(model.renormalise), 0, "no|yes",
     "divide the weights of a token's experts by their sum"},
    {"balance", "X", FLOAT, AT(model.balance), 0, NULL,
     "weight of the load-balancing loss"},
    {"balance-over", "WHAT", CHOICE, AT(balance_share), 0, "batch|share",
     "count loads over the whole batch, or over each share of it"},
    {"zloss", "X", FLOAT, AT(model.zloss), 0, NULL,
     "weight of the router's z-loss"},
    {"bias-rate", "X", FLOAT, AT(model.bias_rate), 0, NULL,
     "balance by a bias on the choice that moves this much a step; 0: none"},

    {NULL, NULL, SIZE, 0, 0, NULL, "Training"},
    {"steps", "N", SIZE, AT(steps), 1, NULL,
     "steps to train (default: 400, or those of the checkpoint)"},
    {"minutes", "X", DOUBLE, AT(minutes), 0, NULL,
     "in place of --steps: as many as fit into X minutes, which is decided "
     "once "
     "after 8 of them"},
    {"batch", "N", SIZE, AT(batch), 1, NULL,
     "sequences of a step, over all ranks (default: 8, or what is above that "
     "and a multiple of the ranks)"},
    {"lr", "X", FLOAT, AT(optimizer.lr), 0, NULL, "highest learning rate"},
    {"lr-end", "X", FLOAT, AT(optimizer.lr_end), 0, NULL,
     "learning rate of the last step, as a part of the highest"},
    {"warmup", "N", SIZE, AT(optimizer.warmup), 1, NULL,
     "steps in which the learning rate rises"},
    {"decay", "X", FLOAT, AT(optimizer.decay), 0, NULL, "weight decay"},
    {"beta1", "X", FLOAT, AT(optimizer.beta1), 0, NULL, "AdamW's first beta"},
    {"beta2", "X", FLOAT, AT(optimizer.beta2), 0, NULL, "AdamW's second beta"},
    {"clip", "X", FLOAT, AT(optimizer.clip), 0, NULL,
     "largest norm of the gradient; 0: no clipping"},
    {"seed", "N", SEED, AT(seed), 0, NULL,
     "decides initial weights and the order of the text"},

    {NULL, NULL, SIZE, 0, 0, NULL, "Ranks"},
    {"shares", "N", SIZE, AT(shares), 1, NULL,
     "sum the batch in so many parts, a multiple of the ranks: runs with equal "
     "shares give the same bits on any number of ranks (default: 4, or as many "
     "as ranks)"},
    {"nodes", "N", SIZE, AT(nodes), 1, NULL,
     "add the shares up as if on so many nodes: so a run on one host has the "
     "bits of one on N (default: as many as there are)"},
    {"dtype", "TYPE", CHOICE, AT(bf16), 0, "f32|bf16",
     "what rows travel as between tokens and experts"},
    {"wire", "TYPE", CHOICE, AT(fp8), 0, "payload|fp8",
     "fp8: dispatched rows travel as e4m3 with a scale for each 128 elements"},
    {"capacity-factor", "X", DOUBLE, AT(capacity_factor), 0, NULL,
     "drop what exceeds X times an expert's even share, for each rank; 0, the "
     "default: drop nothing"},
    {"drop", "WHAT", CHOICE, AT(drop_by_weight), 0, "position|weight",
     "drop the last tokens, or those with the smallest weights"},
    {"gemm", "NAME", TEXT, AT(gemm), 0, NULL,
     "matrix products by xsmm, blas or naive (default: the best there is)"},

    {NULL, NULL, SIZE, 0, 0, NULL, "Output"},
    {"checkpoint", "FOLDER", TEXT, AT(checkpoint), 0, NULL,
     "write checkpoints here"},
    {"checkpoint-every", "N", SIZE, AT(checkpoint_every), 1, NULL,
     "steps between checkpoints; there is one at the end in any case"},
    {"resume", NULL, FLAG, AT(resume), 0, NULL,
     "go on from the checkpoint in --checkpoint, if there is one"},
    {"log", "FILE", TEXT, AT(log), 0, NULL, "write metrics as lines of JSON"},
    {"report", "FILE", TEXT, AT(report), 0, NULL,
     "write a report with plots, as one HTML file"},
    {"eval-every", "N", SIZE, AT(eval_every), 1, NULL,
     "steps between validations (default: ten or fewer in a run)"},
    {"eval-bytes", "N", SIZE, AT(eval_bytes), 1, NULL,
     "bytes to validate on, at most, of whole unseen files and of unseen "
     "blocks "
     "together"},
    {"sample", "N", SIZE, AT(sample), 0, NULL,
     "bytes of text to generate at the end; 0: none"},
    {"prompt", "TEXT", TEXT, AT(prompt), 0, NULL,
     "what the sample follows (default: a piece of the validation text)"},
    {"temperature", "X", DOUBLE, AT(temperature), 0, NULL,
     "of the sample; 0: always the likeliest byte"},
    {"print-every", "N", SIZE, AT(print_every), 1, NULL,
     "steps between lines of progress, where there is no terminal"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct options defaults = {
    .model =
        {
            .layers = 4,
            .dim = 192,
            .heads = 4,
            .seq = 256,
            .experts = 8,
            .topk = 2,
            .expert_hidden = 256,
            .shared_hidden = 128,
            .renormalise = true,
            .balance = 0.01f,
            .zloss = 0.001f,
        },
    .optimizer =
        {
            .lr = 3e-3f,
            .lr_end = 0.05f,
            .warmup = 20,
            .beta1 = 0.9f,
            .beta2 = 0.95f,
            .eps = 1e-8f,
            .decay = 0.1f,
            .clip = 1.0f,
        },
    .seed = 1,
    .checkpoint_every = 100,
    .eval_bytes = 32768,
    .sample = 400,
    .temperature = 0.7,
    .print_every = 20,
};

// -- help ---------------------------------------------------------------------

// Prints `text` from column 27 to 79, on as many lines as it takes.
static void wrap(const char *text)
{
    enum { INDENT = 27, WIDTH = 52 };

    while (*text) {
        size_t n = strlen(text);
        if (n > WIDTH)
            for (n = WIDTH; n > 1 && text[n] != ' '; n--)
                ;
        printf("%.*s\n", (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
        if (*text)
            printf("%*s", INDENT, "");
    }
}

// The choice that holds without the option, and its length.
static const char *default_choice(const struct row *row)
{
    bool second = *(const bool *)((const char *)&defaults + row->offset);

    return second ? strchr(row->choices, '|') + 1 : row->choices;
}

static int default_length(const struct row *row)
{
    return (int)strcspn(default_choice(row), "|");
}

static void show_default(const struct row *row, char *to, size_t room)
{
    const char *at = (const char *)&defaults + row->offset;

    to[0] = '\0';
    if (row->kind == SIZE && *(const size_t *)at)
        snprintf(to, room, " (%zu)", *(const size_t *)at);
    else if (row->kind == FLOAT)
        snprintf(to, room, " (%g)", (double)*(const float *)at);
    else if (row->kind == DOUBLE && *(const double *)at > 0)
        snprintf(to, room, " (%g)", *(const double *)at);
    else if (row->kind == CHOICE)
        snprintf(to, room, ": %s (%.*s)", row->choices, default_length(row),
                 default_choice(row));
}

void options_help(void)
{
    printf(
        "Usage: shunt-train [OPTION...] [FILE...]\n"
        "       shunt-run -n RANKS shunt-train [OPTION...] [FILE...]\n"
        "\n"
        "Trains a small mixture-of-experts language model over bytes. Experts\n"
        "are spread over the ranks, everything else is on each; losses do not\n"
        "depend on the number of ranks.\n");
    for (size_t i = 0; i < ROWS; i++) {
        char head[64], value[32], text[400];
        if (!rows[i].name) {
            printf("\n%s\n", rows[i].help);
            continue;
        }
        snprintf(head, sizeof(head), "  --%s%s%s", rows[i].name,
                 rows[i].takes ? " " : "", rows[i].takes ? rows[i].takes : "");
        show_default(&rows[i], value, sizeof(value));
        snprintf(text, sizeof(text), "%s%s", rows[i].help, value);
        printf("%-26s ", head);
        wrap(text);
    }
    printf(
        "  --help, --version        this text; the version\n"
        "\n"
        "Environment\n"
        "  SHUNT_TRAIN_KERNELS      element-wise kernels: baseline, avx2 or\n"
        "                           avx512 (default: the best for this CPU)\n"
        "  Those of the library are listed by shunt-info --env.\n"
        "\n"
        "Examples\n"
        "  Four ranks on this host, on this project's own text:\n"
        "    shunt-run -n 4 --live shunt-train --report report.html\n"
        "  A text of yours, with checkpoints, and on after an interruption:\n"
        "    shunt-run -n 4 shunt-train book.txt --steps 2000 "
        "--checkpoint ckpt\n"
        "    shunt-run -n 4 shunt-train book.txt --steps 2000 "
        "--checkpoint ckpt --resume\n"
        "  The same bits on one rank as on four:\n"
        "    shunt-train --steps 50 --log one.jsonl\n"
        "    shunt-run -n 4 shunt-train --steps 50 --log four.jsonl\n");
}

// -- parsing ------------------------------------------------------------------

static int parse_number(const struct row *row, const char *text, double *value)
{
    char *end;

    errno = 0;
    *value = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(*value))
        return train_error("--%s: \"%s\" is no number", row->name, text);
    if (*value < row->least)
        return train_error("--%s must be at least %g", row->name, row->least);
    return 0;
}

static int parse_size(const struct row *row, const char *text, uint64_t *value)
{
    char *end;

    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-'))
        return train_error("--%s: \"%s\" is no whole number", row->name, text);
    if ((double)v < row->least)
        return train_error("--%s must be at least %g", row->name, row->least);
    // Sizes are multiplied with one another later on.
    if (row->kind == SIZE && v > (1u << 30))
        return train_error("--%s: %llu is too large", row->name, v);
    *value = v;
    return 0;
}

static int add_file(struct options *o, char *path)
{
    char **grown = realloc(o->data, (o->ndata + 1) * sizeof(*grown));

    if (!grown)
        return train_error("out of memory");
    o->data = grown;
    o->data[o->ndata++] = path;
    return 0;
}

static int take(struct options *o, const struct row *row, char *text)
{
    char *at = (char *)o + row->offset;
    double number = 0;
    uint64_t whole = 0;

    switch (row->kind) {
    case SIZE:
        if (parse_size(row, text, &whole))
            return -1;
        *(size_t *)at = whole;
        return 0;
    case SEED:
        return parse_size(row, text, (uint64_t *)at);
    case FLOAT:
        if (parse_number(row, text, &number))
            return -1;
        *(float *)at = (float)number;
        return 0;
    case DOUBLE:
        return parse_number(row, text, (double *)at);
    case TEXT:
        *(const char **)at = text;
        return 0;
    case FLAG:
        *(bool *)at = true;
        return 0;
    case FILES:
        return add_file(o, text);
    case CHOICE:
        break;
    }
    const char *bar = strchr(row->choices, '|');
    size_t first = (size_t)(bar - row->choices);
    if (strcmp(text, bar + 1) == 0)
        *(bool *)at = true;
    else if (strlen(text) == first && strncmp(text, row->choices, first) == 0)
        *(bool *)at = false;
    else
        return train_error("--%s is one of %s, not \"%s\"", row->name,
                           row->choices, text);
    return 0;
}

enum options_result options_parse(int argc, char **argv, struct options *o)
{
    enum { HELP = 1000, VERSION };
    struct option table[ROWS + 3];
    size_t n = 0;

    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].name)
            table[n++] = (struct option){rows[i].name, rows[i].takes != NULL,
                                         NULL, (int)i};
    table[n++] = (struct option){"help", no_argument, NULL, HELP};
    table[n++] = (struct option){"version", no_argument, NULL, VERSION};
    table[n] = (struct option){NULL, 0, NULL, 0};

    *o = defaults;
    optind = 0; // glibc: start anew
    for (;;) {
        // ':' first: we say ourselves what is wrong.
        int c = getopt_long(argc, argv, ":", table, NULL);
        if (c == -1)
            break;
        if (c == HELP) {
            options_help();
            return OPTIONS_EXIT;
        }
        if (c == VERSION) {
            printf("shunt-train %s\n", TRAIN_VERSION);
            return OPTIONS_EXIT;
        }
        if (c == ':')
            train_error("%s needs an argument; --help lists all options",
                        argv[optind - 1]);
        else if (c == '?')
            train_error("unknown option %s; --help lists all options",
                        argv[optind - 1]);
        if (c == ':' || c == '?' || take(o, &rows[c], optarg)) {
            options_free(o);
            return OPTIONS_BAD;
        }
    }
    for (; optind < argc; optind++) {
        if (add_file(o, argv[optind])) {
            options_free(o);
            return OPTIONS_BAD;
        }
    }
    return OPTIONS_RUN;
}

void options_free(struct options *o)
{
    free(o->data);
    o->data = NULL;
    o->ndata = 0;
}

int options_check(struct options *o, size_t ranks, size_t nodes)
{
    if (model_config_check(&o->model))
        return -1;
    if (!o->batch)
        o->batch = (BATCH_UNASKED + ranks - 1) / ranks * ranks;
    if (o->batch % ranks)
        return train_error("--batch %zu cannot be split over %zu ranks; take a "
                           "multiple of %zu",
                           o->batch, ranks, ranks);
    if (!o->shares)
        o->shares = 4 % ranks == 0 && o->batch % 4 == 0 ? 4 : ranks;
    if (o->shares % ranks || o->batch % o->shares)
        return train_error("--shares %zu must be a multiple of the ranks (%zu) "
                           "and divide --batch %zu",
                           o->shares, ranks, o->batch);
    if (!o->nodes)
        o->nodes = nodes;
    if (o->nodes && o->shares % o->nodes)
        return train_error("--shares %zu must be a multiple of --nodes %zu",
                           o->shares, o->nodes);
    if (o->resume && !o->checkpoint)
        return train_error("--resume needs --checkpoint FOLDER");
    if (o->optimizer.beta1 >= 1 || o->optimizer.beta2 >= 1)
        return train_error("--beta1 and --beta2 must be below 1");
    if (o->steps && o->minutes > 0)
        return train_error("--steps and --minutes both say how long the run "
                           "is; give one of them");
    return 0;
}
