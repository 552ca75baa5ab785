// SPDX-License-Identifier: Apache-2.0
//
// One table: what an option is called, what it takes, what it means and where
// it goes. --help prints it; parsing walks it.
#include "train/options.h"

#include "train/error.h"
#include "train/presets.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_UNASKED = 8 };

// What a NAME is called that was not given.
#define BEST "best"

enum kind {
    SIZE,
    FLOAT,
    DOUBLE,
    TEXT,
    FLAG,
    FILES,
    CHOICE,
    SEED,
    PRESET,
    NAME
};

// What a checkpoint keeps of an option: those that decide what a run computes,
// and of these the ones that its vectors would not fit any more.
enum role { OTHER, SETTING, SHAPE };

struct row {
    const char *name;
    const char *takes; // what its argument is called; NULL: none
    enum kind kind;
    size_t offset;       // of its field in struct options
    double least;        // numbers: smallest value
    const char *choices; // CHOICE: "first|second"; the field is true for second
    enum role role;
    const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct row rows[] = {
    {NULL, NULL, SIZE, 0, 0, NULL, OTHER, "Text"},
    {"data", "FILE", FILES, 0, 0, NULL, OTHER,
     "train on this text; may be given several times, and other arguments are "
     "taken as files too. Without it: this project's own sources and "
     "documents"},
    {"root", "FOLDER", TEXT, AT(root), 0, NULL, OTHER,
     "where the project's own text is (default: where it was built)"},

    {NULL, NULL, SIZE, 0, 0, NULL, OTHER, "Model"},
    {"preset", "NAME", PRESET, 0, 0, NULL, OTHER,
     "several options at once, which others override; see below"},
    {"layers", "N", SIZE, AT(model.layers), 1, NULL, SHAPE, "layers"},
    {"dim", "N", SIZE, AT(model.dim), 2, NULL, SHAPE, "width of the model"},
    {"heads", "N", SIZE, AT(model.heads), 1, NULL, SHAPE, "attention heads"},
    {"seq", "N", SIZE, AT(model.seq), 2, NULL, SETTING,
     "positions of a sequence"},
    {"experts", "N", SIZE, AT(model.experts), 1, NULL, SHAPE,
     "experts of each layer"},
    {"topk", "N", SIZE, AT(model.topk), 1, NULL, SETTING,
     "experts that each token goes to"},
    {"expert-hidden", "N", SIZE, AT(model.expert_hidden), 1, NULL, SHAPE,
     "hidden width of an expert"},
    {"shared-expert", "N", SIZE, AT(model.shared_hidden), 0, NULL, SHAPE,
     "hidden width of an expert that every token goes to; 0: none"},
    {"renormalise", "WHETHER", CHOICE, AT(model.renormalise), 0, "no|yes",
     SETTING, "divide the weights of a token's experts by their sum"},
    {"balance", "X", FLOAT, AT(model.balance), 0, NULL, SETTING,
     "weight of the load-balancing loss"},
    {"balance-over", "WHAT", CHOICE, AT(balance_share), 0, "batch|share",
     SETTING, "count loads over the whole batch, or over each share of it"},
    {"zloss", "X", FLOAT, AT(model.zloss), 0, NULL, SETTING,
     "weight of the router's z-loss"},
    {"bias-rate", "X", FLOAT, AT(model.bias_rate), 0, NULL, SETTING,
     "balance by a bias on the choice that moves this much a step; 0: none"},

    {NULL, NULL, SIZE, 0, 0, NULL, OTHER, "Training"},
    {"steps", "N", SIZE, AT(steps), 1, NULL, OTHER,
     "steps to train (default: 400, or those of the checkpoint)"},
    {"minutes", "X", DOUBLE, AT(minutes), 0, NULL, OTHER,
     "in place of --steps: as many as fit into X minutes, which is decided "
     "once "
     "after 8 of them"},
    {"batch", "N", SIZE, AT(batch), 1, NULL, SETTING,
     "sequences of a step, over all ranks (default: 8, or what is above that "
     "and a multiple of the ranks)"},
    {"lr", "X", FLOAT, AT(optimizer.lr), 0, NULL, SETTING,
     "highest learning rate"},
    {"lr-end", "X", FLOAT, AT(optimizer.lr_end), 0, NULL, SETTING,
     "learning rate of the last step, as a part of the highest"},
    {"warmup", "N", SIZE, AT(optimizer.warmup), 1, NULL, SETTING,
     "steps in which the learning rate rises"},
    {"decay", "X", FLOAT, AT(optimizer.decay), 0, NULL, SETTING,
     "weight decay"},
    {"beta1", "X", FLOAT, AT(optimizer.beta1), 0, NULL, SETTING,
     "AdamW's first beta"},
    {"beta2", "X", FLOAT, AT(optimizer.beta2), 0, NULL, SETTING,
     "AdamW's second beta"},
    {"clip", "X", FLOAT, AT(optimizer.clip), 0, NULL, SETTING,
     "largest norm of the gradient; 0: no clipping"},
    {"seed", "N", SEED, AT(seed), 0, NULL, SETTING,
     "decides initial weights and the order of the text"},

    {NULL, NULL, SIZE, 0, 0, NULL, OTHER, "Ranks"},
    {"shares", "N", SIZE, AT(shares), 1, NULL, SETTING,
     "sum the batch in so many parts, a multiple of the ranks: runs with equal "
     "shares give the same bits on any number of ranks (default: 4, or as many "
     "as ranks)"},
    {"nodes", "N", SIZE, AT(nodes), 1, NULL, SETTING,
     "add the shares up as if on so many nodes: so a run on one host has the "
     "bits of one on N (default: as many as there are)"},
    {"dtype", "TYPE", CHOICE, AT(bf16), 0, "f32|bf16", SETTING,
     "what rows travel as between tokens and experts"},
    {"wire", "TYPE", CHOICE, AT(fp8), 0, "payload|fp8", SETTING,
     "fp8: dispatched rows travel as e4m3 with a scale for each 128 elements"},
    {"capacity-factor", "X", DOUBLE, AT(capacity_factor), 0, NULL, SETTING,
     "drop what exceeds X times an expert's even share, for each rank; 0, the "
     "default: drop nothing"},
    {"drop", "WHAT", CHOICE, AT(drop_by_weight), 0, "position|weight", SETTING,
     "drop the last tokens, or those with the smallest weights"},
    {"compute", "TYPE", CHOICE, AT(compute_bf16), 0, "f32|bf16", SETTING,
     "what the inputs of matrix products are rounded to; sums and weights are "
     "f32. Faster only where the CPU has AVX512-BF16"},
    {"gemm", "NAME", NAME, AT(gemm), 0, NULL, SETTING,
     "matrix products by xsmm, blas or naive, or the best there is (best)"},

    {NULL, NULL, SIZE, 0, 0, NULL, OTHER, "Output"},
    {"checkpoint", "FOLDER", TEXT, AT(checkpoint), 0, NULL, OTHER,
     "write checkpoints here; a folder that has one already is refused without "
     "--resume"},
    {"checkpoint-every", "N", SIZE, AT(checkpoint_every), 1, NULL, OTHER,
     "steps between checkpoints; there is one at the end in any case"},
    {"resume", NULL, FLAG, AT(resume), 0, NULL, OTHER,
     "go on from the checkpoint in --checkpoint, if there is one, with its "
     "settings: others that are given are refused"},
    {"accept-changes", NULL, FLAG, AT(accept), 0, NULL, OTHER,
     "go on also with settings, or a text, that are not the checkpoint's"},
    {"generate", NULL, FLAG, AT(generate), 0, NULL, OTHER,
     "no training: --sample bytes after --prompt, from the model in "
     "--checkpoint"},
    {"log", "FILE", TEXT, AT(log), 0, NULL, OTHER,
     "write metrics as lines of JSON"},
    {"report", "FILE", TEXT, AT(report), 0, NULL, OTHER,
     "write a report with plots, as one HTML file"},
    {"eval-every", "N", SIZE, AT(eval_every), 1, NULL, OTHER,
     "steps between validations (default: ten or fewer in a run)"},
    {"eval-bytes", "N", SIZE, AT(eval_bytes), 1, NULL, OTHER,
     "bytes to validate on, at most, of whole unseen files and of unseen "
     "blocks "
     "together"},
    {"sample", "N", SIZE, AT(sample), 0, NULL, OTHER,
     "bytes of text to generate at the end; 0: none"},
    {"prompt", "TEXT", TEXT, AT(prompt), 0, NULL, OTHER,
     "what the sample follows (default: a piece of the validation text; with "
     "--generate, which reads no text, a line's end)"},
    {"temperature", "X", DOUBLE, AT(temperature), 0, NULL, OTHER,
     "of the sample; 0: always the likeliest byte"},
    {"print-every", "N", SIZE, AT(print_every), 1, NULL, OTHER,
     "steps between lines of progress, where there is no terminal"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

_Static_assert(ROWS <= 64, "options.given has a bit for each row");

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
    puts("  --help, --version        this text; the version\n\nPresets");
    for (const struct preset *p = presets; p->name; p++) {
        printf("  %-24s ", p->name);
        wrap(p->what);
    }
    printf(
        "\n"
        "Environment\n"
        "  SHUNT_KERNELS            the best instruction set to use: plain,\n"
        "                           neon, avx2 or avx512 (default: this "
        "CPU's)\n"
        "  All variables are listed by shunt-info --env.\n"
        "\n"
        "Examples\n"
        "  Four ranks on this host, on this project's own text:\n"
        "    shunt-run -n 4 --live shunt-train --report report.html\n"
        "  A text of yours, with checkpoints, and on after an interruption:\n"
        "    shunt-run -n 4 shunt-train book.txt --steps 2000 "
        "--checkpoint ckpt\n"
        "    shunt-run -n 4 shunt-train book.txt --checkpoint ckpt --resume\n"
        "  What it writes after some words:\n"
        "    shunt-train --checkpoint ckpt --generate --prompt 'It was'\n"
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

static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].name && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static uint64_t bit_of(const struct row *row)
{
    return (uint64_t)1 << (row - rows);
}

static int take_preset(struct options *o, const char *name);

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
    case NAME:
        if (strlen(text) >= SETTING_ROOM)
            return train_error("--%s: there is no \"%s\"", row->name, text);
        strcpy(at, strcmp(text, BEST) == 0 ? "" : text);
        return 0;
    case FLAG:
        *(bool *)at = true;
        return 0;
    case FILES:
        return add_file(o, text);
    case PRESET:
        return take_preset(o, text);
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

// The preset's options are as if given, but for those that were given already:
// so it does not matter where on the command line it stands.
static int take_preset(struct options *o, const char *name)
{
    const struct preset *p = presets;

    while (p->name && strcmp(p->name, name) != 0)
        p++;
    if (!p->name)
        return train_error("no preset \"%s\"; --help lists them", name);
    for (size_t i = 0; i < PRESET_OPTIONS && p->option[i].name; i++) {
        const struct row *row = find_row(p->option[i].name);
        char value[32];
        if (o->given & bit_of(row))
            continue;
        snprintf(value, sizeof(value), "%s", p->option[i].value);
        if (take(o, row, value))
            return -1;
        o->given |= bit_of(row);
        if (row->offset == AT(steps))
            o->steps_of_preset = true; // which --minutes override
    }
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
        o->given |= bit_of(&rows[c]);
        if (rows[c].offset == AT(steps))
            o->steps_of_preset = false;
    }
    for (; optind < argc; optind++) {
        if (add_file(o, argv[optind])) {
            options_free(o);
            return OPTIONS_BAD;
        }
    }
    return OPTIONS_RUN;
}

// -- settings -----------------------------------------------------------------

// The shortest that is read back as the same number.
static void print_number(double value, bool is_float, char *to, size_t room)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(to, room, "%.*g", digits, value);
        double back = strtod(to, NULL);
        if (is_float ? (float)back == (float)value : back == value)
            break;
    }
}

// A value as a text that is taken back as the same bits.
static void print_value(const struct options *o, const struct row *row,
                        char *to, size_t room)
{
    const char *at = (const char *)o + row->offset;

    to[0] = '\0';
    if (row->kind == SIZE)
        snprintf(to, room, "%zu", *(const size_t *)at);
    else if (row->kind == SEED)
        snprintf(to, room, "%" PRIu64, *(const uint64_t *)at);
    else if (row->kind == FLOAT)
        print_number((double)*(const float *)at, true, to, room);
    else if (row->kind == DOUBLE)
        print_number(*(const double *)at, false, to, room);
    else if (row->kind == FLAG)
        snprintf(to, room, "%d", *(const bool *)at);
    else if (row->kind == NAME)
        snprintf(to, room, "%s", *at ? at : BEST);
    else if (row->kind == CHOICE && *(const bool *)at)
        snprintf(to, room, "%s", strchr(row->choices, '|') + 1);
    else if (row->kind == CHOICE)
        snprintf(to, room, "%.*s", (int)strcspn(row->choices, "|"),
                 row->choices);
}

size_t options_settings(const struct options *o, struct setting *to)
{
    size_t n = 0;

    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].role == OTHER)
            continue;
        if (to) {
            snprintf(to[n].name, sizeof(to[n].name), "%s", rows[i].name);
            print_value(o, &rows[i], to[n].value, sizeof(to[n].value));
        }
        n++;
    }
    return n;
}

enum options_adopted options_adopt(struct options *o, const struct setting *s,
                                   struct setting *own)
{
    const struct row *row = find_row(s->name);
    char value[SETTING_ROOM];

    if (!row || row->role == OTHER)
        return ADOPT_UNKNOWN;
    *own = *s;
    print_value(o, row, own->value, sizeof(own->value));
    if (strcmp(own->value, s->value) == 0)
        return ADOPT_SAME;
    if (o->given & bit_of(row))
        return row->role == SHAPE ? ADOPT_OTHER_SHAPE : ADOPT_OTHER;
    // Also 0, where that is what the checkpoint has: nodes that are uneven.
    struct row any = *row;
    any.least = 0;
    snprintf(value, sizeof(value), "%s", s->value);
    return take(o, &any, value) ? ADOPT_UNKNOWN : ADOPT_SAME;
}

uint64_t options_hash(const struct options *o)
{
    uint64_t h = 0xcbf29ce484222325u ^ o->given; // FNV-1a

    for (size_t i = 0; i < ROWS; i++) {
        char value[SETTING_ROOM];
        if (!rows[i].name)
            continue;
        print_value(o, &rows[i], value, sizeof(value));
        for (const char *c = value; c == value || c[-1]; c++)
            h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return h;
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
    if (o->optimizer.beta1 >= 1 || o->optimizer.beta2 >= 1)
        return train_error("--beta1 and --beta2 must be below 1");
    if (o->optimizer.lr_end > 1)
        return train_error("--lr-end is a part of --lr: at most 1");
    if (o->minutes > 0 && o->steps_of_preset)
        o->steps = 0;
    if (o->steps && o->minutes > 0)
        return train_error("--steps and --minutes both say how long the run "
                           "is; give one of them");
    return 0;
}
