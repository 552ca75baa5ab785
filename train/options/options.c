// SPDX-License-Identifier: Apache-2.0
/*
 * The command line of shunt-train as a table, and which of its options a
 * checkpoint keeps.
 */
#include "train/options/options.h"

#include "train/base/error.h"
#include "train/options/presets.h"
#include "train/options/switches.h"

#include <stdlib.h>
#include <string.h>

#include "src/kernels/cpu.h"
#include "tools/cli/cli.h"
#include "train/workload/random.h"

/* The role of an option for a checkpoint. SETTING: the option decides what a
 * run computes, and is kept. SHAPE: the length of the checkpoint's vectors also
 * depends on the option. */
enum role { OTHER, SETTING, SHAPE };

/* The largest size. Sizes are multiplied with one another later. */
#define LARGEST (1 << 30)
_Static_assert((int)MOST_ROUTINGS <= (int)MEMORY_LAYERS,
               "a tier for each layer");
#define AT(field) CLI_AT(struct options, field)

static bool take_file(void *object, const char *path, struct cli_line *line);
static bool take_preset(void *object, const char *name, struct cli_line *line);
static bool take_memory(void *object, const char *text, struct cli_line *line);

/* `best` has no backend of its own: it is the best in this build on this
 * CPU. */
static const struct cli_name gemm_names[] = {
    {"best", 0}, {"xsmm", 1}, {"blas", 2}, {"naive", 3}, {NULL, 0}};

static const struct cli_row rows[] = {
    {.kind = CLI_HEADING, .help = "Text"},
    {"data", 0, "FILE", CLI_CALL,
     "train on this text; may be given several times, and other arguments are "
     "taken as files too. Without it: this project's own sources and "
     "documents",
     .take = take_file, .first = true},
    {"root", 0, "FOLDER", CLI_TEXT,
     "where the project's own text is (default: where it was built)", AT(root)},

    {.kind = CLI_HEADING, .help = "Model"},
    {"preset", 0, "NAME", CLI_CALL,
     "several options at once, which others override; see below",
     .take = take_preset},
    {"layers", 0, "N", CLI_WHOLE, "layers", AT(model.layers), .least = 1,
     .most = MOST_ROUTINGS, .mark = SHAPE},
    {"dim", 0, "N", CLI_WHOLE, "width of the model", AT(model.dim), .least = 2,
     .most = LARGEST, .mark = SHAPE},
    {"heads", 0, "N", CLI_WHOLE, "attention heads", AT(model.heads), .least = 1,
     .most = LARGEST, .mark = SHAPE},
    {"kv-heads", 0, "N", CLI_WHOLE,
     "heads of keys and values, which --heads share in equal parts; 0: each "
     "has its own",
     AT(model.kv_heads), .most = LARGEST, .mark = SHAPE},
    {"head-width", 0, "N", CLI_WHOLE, "width of a head; 0: --dim over --heads",
     AT(model.head_width), .most = LARGEST, .mark = SHAPE},
    {"seq", 0, "N", CLI_WHOLE, "positions of a sequence", AT(model.seq),
     .least = 2, .most = LARGEST, .mark = SETTING},
    {"experts", 0, "N", CLI_WHOLE, "experts of each layer", AT(model.experts),
     .least = 1, .most = LARGEST, .mark = SHAPE, .first = true},
    {"topk", 0, "N", CLI_WHOLE, "experts that each token goes to",
     AT(model.topk), .least = 1, .most = LARGEST, .mark = SETTING,
     .first = true},
    {"expert-hidden", 0, "N", CLI_WHOLE, "hidden width of an expert",
     AT(model.expert_hidden), .least = 1, .most = LARGEST, .mark = SHAPE},
    {"shared-expert", 0, "N", CLI_WHOLE,
     "hidden width of an expert that every token goes to; 0: none",
     AT(model.shared_hidden), .most = LARGEST, .mark = SHAPE},
    {"moe-every", 0, "N", CLI_WHOLE,
     "of each N layers the last has experts, the others a feed-forward of "
     "width --dense-hidden",
     AT(model.moe_every), .least = 1, .most = MOST_ROUTINGS, .mark = SHAPE},
    {"first-dense", 0, "N", CLI_WHOLE,
     "the first N layers have no experts, either; --moe-every counts from "
     "there",
     AT(model.first_dense), .most = MOST_ROUTINGS, .mark = SHAPE},
    {"dense-hidden", 0, "N", CLI_WHOLE,
     "hidden width of layers without experts (default: --topk times "
     "--expert-hidden, plus --shared-expert)",
     AT(model.dense_hidden), .least = 1, .most = LARGEST, .mark = SHAPE},
    {"gate", 0, "NAME", CLI_CHOICE,
     "how a token's experts and their weights follow from its logits: softmax; "
     "switch (top 1); gshard (top 2, the second at random); sigmoid "
     "(DeepSeek-V3's); noisy (top-k with noise)",
     AT(model.gate.kind),
     CLI_NAMES({"softmax", GATE_SOFTMAX}, {"switch", GATE_SWITCH},
               {"gshard", GATE_GSHARD}, {"sigmoid", GATE_SIGMOID},
               {"noisy", GATE_NOISY}),
     .mark = SHAPE},
    {"choose", 0, "HOW", CLI_CHOICE,
     "with --gate softmax or sigmoid, which experts a token gets. best: the "
     "best of all; limited (DeepSeek's): the best of the --open-groups best "
     "groups; grouped (MoGE): equally many of each group",
     AT(model.gate.choose),
     CLI_NAMES({"best", CHOOSE_BEST}, {"limited", CHOOSE_LIMITED},
               {"grouped", CHOOSE_GROUPED}),
     .mark = SETTING},
    {"expert-groups", 0, "N", CLI_WHOLE,
     "with --choose limited or grouped: groups of experts in a row",
     AT(model.gate.groups), .least = 1, .most = LARGEST, .mark = SETTING},
    {"open-groups", 0, "N", CLI_WHOLE,
     "with --choose limited: groups that a token may go to",
     AT(model.gate.open), .least = 1, .most = LARGEST, .mark = SETTING},
    {"group-score", 0, "N", CLI_WHOLE,
     "with --choose limited: the best groups are those of the largest sums of "
     "their N largest scores",
     AT(model.gate.best_of), .least = 1, .most = LARGEST, .mark = SETTING},
    {"weight-scale", 0, "X", CLI_REAL,
     "multiply a token's weights by X; 0: do not", AT(model.gate.scale),
     .mark = SETTING},
    {"renormalise", 0, "WHETHER", CLI_CHOICE,
     "divide the weights of a token's experts by their sum",
     AT(model.renormalise), CLI_NAMES({"no", false}, {"yes", true}),
     .mark = SETTING},
    {"balance-loss", 0, "X", CLI_REAL, "weight of the load-balancing loss",
     AT(model.balance), .mark = SETTING},
    {"balance-over", 0, "WHAT", CLI_CHOICE,
     "the load-balancing loss is of the whole batch, or the mean of those of "
     "parts of it: micro-batches, shares of these, or sequences",
     AT(balance_over),
     CLI_NAMES({"batch", BALANCE_OVER_BATCH},
               {"micro-batch", BALANCE_OVER_MICRO_BATCH},
               {"share", BALANCE_OVER_SHARE},
               {"sequence", BALANCE_OVER_SEQUENCE}),
     .mark = SETTING},
    {"zloss", 0, "X", CLI_REAL, "weight of the router's z-loss",
     AT(model.zloss), .mark = SETTING},
    {"bias-rate", 0, "X", CLI_REAL,
     "balance by a bias on the choice that moves this much a step; 0: none",
     AT(model.bias_rate), .mark = SETTING},

    {.kind = CLI_HEADING, .help = "Training"},
    {"steps", 0, "N", CLI_WHOLE,
     "steps to train (default: 400, or those of the checkpoint)", AT(steps),
     .least = 1, .most = LARGEST, .first = true},
    {"minutes", 0, "X", CLI_REAL,
     "in place of --steps: as many as fit into X minutes, which is decided "
     "once after 8 of them",
     AT(minutes), .quiet = true, .first = true},
    {"batch", 0, "N", CLI_WHOLE,
     "sequences of a step, over all ranks (default: 8, or what is above that "
     "and a multiple of the ranks)",
     AT(batch), .least = 1, .most = LARGEST, .mark = SETTING, .first = true},
    {"lr", 0, "X", CLI_REAL, "highest learning rate", AT(optimizer.lr),
     .mark = SETTING},
    {"lr-end", 0, "X", CLI_REAL,
     "learning rate of the last step, as a part of the highest",
     AT(optimizer.lr_end), .mark = SETTING},
    {"warmup", 0, "N", CLI_WHOLE, "steps in which the learning rate rises",
     AT(optimizer.warmup), .least = 1, .most = LARGEST, .mark = SETTING},
    {"decay", 0, "X", CLI_REAL, "weight decay", AT(optimizer.decay),
     .mark = SETTING},
    {"beta1", 0, "X", CLI_REAL, "AdamW's first beta", AT(optimizer.beta1),
     .mark = SETTING},
    {"beta2", 0, "X", CLI_REAL, "AdamW's second beta", AT(optimizer.beta2),
     .mark = SETTING},
    {"clip", 0, "X", CLI_REAL, "largest norm of the gradient; 0: no clipping",
     AT(optimizer.clip), .mark = SETTING},
    {"seed", 0, "N", CLI_WHOLE,
     "decides initial weights and the order of the text", AT(seed),
     .mark = SETTING},

    {.kind = CLI_HEADING, .help = "Ranks"},
    {"shares", 0, "N", CLI_WHOLE,
     "sum the batch in so many parts, a multiple of the ranks: runs with equal "
     "shares give the same bits on any number of ranks (default: 4, or as many "
     "as ranks)",
     AT(shares), .least = 1, .most = LARGEST, .mark = SETTING},
    {"micro-batches", 0, "N", CLI_WHOLE,
     "cut the batch into so many, which take turns at each layer: one computes "
     "while rows of another travel. Each has a capacity of its own, and their "
     "gradients are added, so this changes bits (default: 2 on several nodes, "
     "if they divide the batch; 1 on one)",
     AT(micro_batches), .least = 1, .most = MOST_ROUTINGS, .mark = SETTING},
    {"accumulate", 0, "N", CLI_WHOLE,
     "compute the batch in N parts, one after the other, in the memory of one; "
     "their gradients are added, with the bits of N times as many "
     "--micro-batches. A balancing loss of the whole batch takes one more "
     "forward pass then; --balance-over micro-batch does not",
     AT(accumulate), .least = 1, .most = LARGEST, .mark = SETTING},
    {"nodes", 0, "N", CLI_WHOLE,
     "add the shares up as if on so many nodes: so a run on one host has the "
     "bits of one on N (default: as many as there are)",
     AT(nodes), .least = 1, .most = LARGEST, .mark = SETTING},
    {"tp", 0, "N", CLI_WHOLE,
     "cut attention and the shared expert over N ranks in a row, which divide "
     "the ranks and the heads: each has a part of their weights, and computes "
     "it for the rows of all N (--kv-heads may be fewer: ranks have copies)",
     AT(tp), .least = 1, .most = LARGEST},
    {"tp-sums", 0, "N", CLI_WHOLE,
     "with --tp 1: add what --tp N would cut as N ranks would, for the same "
     "bits (default: as --tp)",
     AT(tp_sums), .least = 1, .most = LARGEST, .mark = SHAPE},
    {"expert-copies", 0, "N", CLI_WHOLE,
     "have N copies of each expert, on N equal parts of the ranks, which N "
     "divides; their gradients are added, so this changes bits",
     AT(expert_copies), .least = 1, .most = LARGEST, .mark = SETTING},
    {"balance", 0, "HOW", CLI_CHOICE,
     "make the rows of all ranks equal: replicas gives hot experts copies on "
     "all "
     "ranks; migrate moves experts to other ranks; both does one after the "
     "other; "
     "microbatch gives each routing copies of its own, which are chosen when "
     "it "
     "is known",
     AT(balance.how),
     CLI_NAMES({"off", BALANCE_OFF}, {"replicas", BALANCE_REPLICAS},
               {"migrate", BALANCE_MIGRATE}, {"both", BALANCE_BOTH},
               {"microbatch", BALANCE_MICROBATCH}),
     .mark = SETTING},
    {"leaf-rows", 0, "N", CLI_WHOLE,
     "sum gradients of experts over leaves of N rows, and these in a tree: the "
     "same bits with copies as without, at equal N. 0: at once, which is "
     "faster; "
     "then copies change bits (default: 128 where --balance makes copies, else "
     "0)",
     AT(balance.leaf_rows), .most = LARGEST, .mark = SETTING},
    {"balance-every", 0, "N", CLI_WHOLE,
     "with --balance replicas, migrate or both: decide once in N steps",
     AT(balance.every), .least = 1, .most = LARGEST, .mark = SETTING},
    {"balance-theta", 0, "X", CLI_REAL,
     "with --balance replicas, migrate or both: loads that are expected are X "
     "times those that were, and 1 - X times those of the last step",
     AT(balance.theta), .most = 1, .mark = SETTING},
    {"balance-gain", 0, "X", CLI_REAL,
     "with --balance migrate or both: move experts if the coefficient of "
     "variation of the ranks' rows falls by X",
     AT(balance.gain), .mark = SETTING},
    {"balance-slots", 0, "N", CLI_WHOLE,
     "with --balance replicas, both or microbatch: copies that a rank has in a "
     "layer, or for a routing, at most",
     AT(balance.slots), .least = 1, .most = 1024, .mark = SETTING},
    {"balance-hot", 0, "X", CLI_REAL,
     "with --balance replicas or both: copies of an expert pay if the fullest "
     "rank's rows fall by X times the mean",
     AT(balance.hot), .mark = SETTING},
    {"balance-above", 0, "X", CLI_REAL,
     "with --balance: no copies while the fullest rank has at most X times the "
     "mean",
     AT(balance.above), .mark = SETTING},
    {"dtype", 0, "TYPE", CLI_CHOICE,
     "what rows travel as between tokens and experts", AT(bf16),
     CLI_NAMES({"f32", false}, {"bf16", true}), .mark = SETTING},
    {"wire", 0, "TYPE", CLI_CHOICE,
     "what dispatched rows travel as; fp8 is e4m3 with a scale for each 128 "
     "elements",
     AT(fp8), CLI_NAMES({"payload", false}, {"fp8", true}), .mark = SETTING},
    {"overlap", 0, "WHETHER", CLI_CHOICE,
     "compute while rows travel: yes, the default, or no, which changes times "
     "alone. Without a value it is a switch: yes, and --micro-batches 2",
     AT(overlap_asked), CLI_NAMES({"no", OVERLAP_NO}, {"yes", OVERLAP_YES}),
     .optional = true, .with = offsetof(struct options, overlap_given)},
    {"comm", 0, "NAME", CLI_CHOICE,
     "what carries rows, gradients and parameters: libshunt, or, to compare "
     "with, MPI_Alltoallv and the like, under mpirun; the losses have the same "
     "bits",
     AT(mpi), CLI_NAMES({"shunt", false}, {"mpi", true})},
    {"capacity-factor", 0, "X", CLI_REAL,
     "drop what exceeds X times an expert's even share, for each rank; 0, the "
     "default: drop nothing",
     AT(capacity_factor), .quiet = true, .mark = SETTING},
    {"max-rows", 0, "N", CLI_WHOLE,
     "rows that the experts of a rank compute at once in a layer; more come in "
     "waves, with copies of --balance only where --leaf-rows is 0; 0, the "
     "default: any number",
     AT(max_rows), .most = LARGEST, .quiet = true, .mark = SETTING},
    {"drop", 0, "WHAT", CLI_CHOICE,
     "drop the last tokens, or those with the smallest weights",
     AT(drop_by_weight), CLI_NAMES({"position", false}, {"weight", true}),
     .mark = SETTING},
    {"compute", 0, "TYPE", CLI_CHOICE,
     "what the inputs of matrix products are rounded to; sums and weights are "
     "f32. bf16 is faster only where the CPU has AVX512-BF16",
     AT(compute_bf16), CLI_NAMES({"f32", false}, {"bf16", true}),
     .mark = SETTING},
    {"gemm", 0, "NAME", CLI_CHOICE,
     "what computes matrix products; best is the fastest that this build has "
     "for this CPU",
     AT(gemm), .names = gemm_names, .mark = SETTING},

    {"workload", 0, "NAME", CLI_CHOICE,
     "to see what uneven loads cost, in training choose experts not by the "
     "router but as W0 (balanced), W1 (hot experts), W2 (a hot rank), W3 (hot "
     "experts, spread), W4 (uneven sources), W5 (experts without rows), W6 (a "
     "hot rank that moves), W7 (bursts) or zipf (by number)",
     AT(workload),
     CLI_NAMES({"off", WORKLOAD_NONE}, {"W0", WORKLOAD_W0}, {"W1", WORKLOAD_W1},
               {"W2", WORKLOAD_W2}, {"W3", WORKLOAD_W3}, {"W4", WORKLOAD_W4},
               {"W5", WORKLOAD_W5}, {"W6", WORKLOAD_W6}, {"W7", WORKLOAD_W7},
               {"zipf", WORKLOAD_ZIPF}),
     .mark = SETTING},

    {"row-time", 0, "US", CLI_REAL,
     "experts take US microseconds a row, forward, and twice that backward, if "
     "computing takes less: by sleeping, so that ranks that share a core are "
     "as "
     "fast as if each had one; 0: what computing takes",
     AT(row_us)},

    {"balanced", 0, NULL, CLI_FLAG,
     "a switch: --bias-rate 1e-3 --balance microbatch --recompute-above 1.5",
     AT(balanced)},

    {.kind = CLI_HEADING, .help = "Memory"},
    {"memory", 0, "WHAT", CLI_CALL,
     "[LAYERS:]MODULE=TIER, and more of them after commas: what becomes of "
     "activations between forward and backward. MODULE is norm, attention, "
     "residual, router, expert, activation, rows, input, or layer, for all of "
     "them. TIER is keep, recompute, offload (to other memory of this "
     "host: the bytes that a rank counts as held fall, those of the host do "
     "not) or "
     "offload:FOLDER (to a file there). LAYERS is 3 or 0-3 (default: all). May "
     "be "
     "given several times. No bit of the result changes",
     .take = take_memory},
    {"recompute-above", 0, "S", CLI_REAL,
     "where a rank has more rows of experts than S times the mean of the "
     "ranks, in "
     "a layer and a micro-batch, recompute these experts, in pieces of that "
     "many "
     "rows (256 at least); 0: never",
     AT(recompute_above)},
    {"activation-budget", 0, "BYTES", CLI_SIZE,
     "recompute what costs the least time, so that a rank holds at most so "
     "many "
     "bytes of activations; 0: any",
     AT(activation_budget)},
    {"save-memory", 0, NULL, CLI_FLAG,
     "a switch: --memory layer=recompute --recompute-above 1.5",
     AT(save_memory)},

    {.kind = CLI_HEADING, .help = "Output"},
    {"checkpoint", 0, "FOLDER", CLI_TEXT,
     "write checkpoints here, one job at a time; a folder that has one already "
     "is refused without --resume",
     AT(checkpoint), .first = true},
    {"checkpoint-every", 0, "N", CLI_WHOLE,
     "steps between checkpoints; there is one at the end in any case",
     AT(checkpoint_every), .least = 1, .most = LARGEST},
    {"resume", 0, NULL, CLI_FLAG,
     "go on from the checkpoint in --checkpoint, if there is one, with its "
     "settings: others that are given are refused",
     AT(resume), .first = true},
    {"accept-changes", 0, NULL, CLI_FLAG,
     "go on also with settings, or a text, that are not the checkpoint's",
     AT(accept)},
    {"generate", 0, NULL, CLI_FLAG,
     "no training: --sample bytes after --prompt, from the model in "
     "--checkpoint",
     AT(generate), .first = true},
    {"log", 0, "FILE", CLI_TEXT, "write metrics as lines of JSON", AT(log)},
    {"report", 0, "FILE", CLI_TEXT,
     "write a report with plots, as one HTML file", AT(report), .first = true},
    {"eval-every", 0, "N", CLI_WHOLE,
     "steps between validations (default: ten or fewer in a run)",
     AT(eval_every), .least = 1, .most = LARGEST},
    {"eval-bytes", 0, "N", CLI_WHOLE,
     "bytes to validate on, at most, of whole unseen files and of unseen "
     "blocks together",
     AT(eval_bytes), .least = 1, .most = LARGEST},
    {"sample", 0, "N", CLI_WHOLE,
     "bytes of text to generate at the end; 0: none", AT(sample),
     .most = LARGEST},
    {"prompt", 0, "TEXT", CLI_TEXT,
     "what the sample follows (default: a piece of the validation text; with "
     "--generate, which reads no text, a line's end)",
     AT(prompt)},
    {"temperature", 0, "X", CLI_REAL,
     "of the sample; 0: always the likeliest byte", AT(temperature)},
    {"print-every", 0, "N", CLI_WHOLE,
     "steps between lines of progress, where there is no terminal",
     AT(print_every), .least = 1, .most = LARGEST},
};

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
            .moe_every = 1,
            .gate = {.groups = 1, .open = 1, .best_of = 1},
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
    .accumulate = 1,
    .tp = 1,
    .expert_copies = 1,
    .balance = BALANCE_DEFAULTS,
    .checkpoint_every = 100,
    .overlap = true,
    .eval_bytes = 32768,
    .sample = 400,
    .temperature = 0.7,
    .print_every = 20,
};

static void more_help(FILE *to, int column)
{
    char kernels[512];

    fputs("\nPresets\n", to);
    for (const struct preset *p = presets; p->name; p++)
        cli_print_item(to, column, p->name, p->what);
    fputs("\nEnvironment\n", to);
    snprintf(kernels, sizeof(kernels), "%s. %s", shunti_cpu_env[0].choices,
             shunti_cpu_env[0].help);
    cli_print_item(to, column, shunti_cpu_env[0].name, kernels);
    fputs("  All variables are listed by shunt-info --env.\n", to);
}

static const struct cli_program program = {
    .name = "shunt-train",
    .usage =
        "Usage: shunt-train [OPTION...] [FILE...]\n"
        "       shunt-run -n RANKS shunt-train [OPTION...] [FILE...]\n"
        "\n"
        "Trains a small mixture-of-experts language model over bytes. Experts\n"
        "are spread over the ranks, everything else is on each; losses do not\n"
        "depend on the number of ranks.\n",
    .rows = rows,
    .nrows = sizeof(rows) / sizeof(rows[0]),
    .defaults = &defaults,
    .more = more_help,
    .brief_usage =
        "Usage: shunt-train [OPTION...] [FILE...]\n"
        "       shunt-run -n RANKS shunt-train [OPTION...] [FILE...]\n"
        "\n"
        "Trains a small mixture-of-experts language model over bytes, on the "
        "text\n"
        "of FILEs or on this project's own.\n",
    .brief_end =
        "Examples\n"
        "  shunt-run -n 4 --live shunt-train --report report.html\n"
        "  shunt-run -n 4 shunt-train book.txt --steps 2000 --checkpoint ckpt\n"
        "  shunt-run -n 4 shunt-train book.txt --checkpoint ckpt --resume\n"
        "  shunt-train --checkpoint ckpt --generate --prompt 'It was'\n",
    .end =
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
        "    shunt-run -n 4 shunt-train --steps 50 --log four.jsonl\n"
        "  Attention cut over each two ranks, and two copies of each expert:\n"
        "    shunt-run -n 8 shunt-train --tp 2 --expert-copies 2\n"
        "  Experts that move where the rows are, and copies of hot ones:\n"
        "    shunt-run -n 4 shunt-train --balance both\n"
        "  Activations of experts recomputed, those of layers 0 and 1 in a "
        "file:\n"
        "    shunt-train --memory expert=recompute,0-1:layer=offload:/var/tmp\n"
        "  All that fits into 20 MiB a rank, with more parts of the batch:\n"
        "    shunt-train --activation-budget 20m --batch 16 --accumulate 2\n"
        "  The same run with MPI in the place of libshunt:\n"
        "    mpirun -n 4 shunt-train --steps 50 --comm mpi\n",
};

/* --- parsing -------------------------------------------------------------- */

static bool take_file(void *object, const char *path, struct cli_line *line)
{
    struct options *o = object;
    char **grown = realloc(o->data, (o->ndata + 1) * sizeof(*grown));

    if (!grown)
        return cli_wrong(line, "out of memory");
    o->data = grown;
    o->data[o->ndata++] = (char *)path;
    return true;
}

static bool no_preset(const char *name, struct cli_line *line)
{
    char all[400] = "";

    for (const struct preset *p = presets; p->name; p++) {
        const size_t at = strlen(all);

        snprintf(all + at, sizeof(all) - at, "%s%s", at ? ", " : "", p->name);
    }
    return cli_wrong(line, "no preset \"%s\"; there are %s", name, all);
}

/* Apply a preset. Its options count as given, but options that the user gave
 * keep their values. So the preset's place on the command line does not
 * matter. */
static bool take_preset(void *object, const char *name, struct cli_line *line)
{
    struct options *o = object;
    const struct preset *p = presets;

    while (p->name && strcmp(p->name, name) != 0)
        p++;
    if (!p->name)
        return no_preset(name, line);
    for (size_t i = 0; i < PRESET_OPTIONS && p->option[i].name; i++) {
        const cli_set bit = cli_bit(&program, p->option[i].name);
        if ((line->given | o->of_presets) & bit)
            continue;
        if (!cli_read(cli_row_of(&program, p->option[i].name), o,
                      p->option[i].value, line))
            return false;
        o->of_presets |= bit;
    }
    return true;
}

static bool take_memory(void *object, const char *text, struct cli_line *line)
{
    struct options *o = object;

    if (o->nmemory == MEMORY_OPTIONS)
        return cli_wrong(line,
                         "--memory can be given %d times; more than one "
                         "MODULE=TIER go into each, with commas",
                         MEMORY_OPTIONS);
    o->memory[o->nmemory++] = text;
    return true;
}

enum options_result options_parse(int argc, char **argv, struct options *o)
{
    struct cli_line line;

    *o = defaults;
    enum cli_result result = cli_parse(&program, o, argc, argv, &line);
    for (int i = line.operands; result == CLI_RUN && i < argc; i++)
        if (switches_is_value(argv[i], &line) || !take_file(o, argv[i], &line))
            result = CLI_BAD;
    if (result == CLI_RUN && !switches_turn(&program, o, &line))
        result = CLI_BAD;
    if (result == CLI_RUN) {
        o->of_presets &= ~line.given;
        o->given = line.given | o->of_presets;
        return OPTIONS_RUN;
    }
    options_free(o);
    if (result == CLI_EXIT)
        return OPTIONS_EXIT;
    train_error("%s%s", line.why,
                result == CLI_LOST ? "" : "; --help all lists all options");
    return OPTIONS_BAD;
}

/* --- settings ------------------------------------------------------------- */

size_t options_settings(const struct options *o, struct setting *to)
{
    size_t n = 0;

    for (int i = 0; i < program.nrows; i++) {
        if (rows[i].mark == OTHER)
            continue;
        if (to) {
            snprintf(to[n].name, sizeof(to[n].name), "%s", rows[i].name);
            cli_print(&rows[i], o, to[n].value, sizeof(to[n].value));
        }
        n++;
    }
    return n;
}

enum options_adopted options_adopt(struct options *o, const struct setting *s,
                                   struct setting *own)
{
    const struct cli_row *row = cli_row_of(&program, s->name);
    struct cli_line line;

    if (!row || row->mark == OTHER)
        return ADOPT_UNKNOWN;
    o->adopted = true;
    *own = *s;
    cli_print(row, o, own->value, sizeof(own->value));
    if (strcmp(own->value, s->value) == 0)
        return ADOPT_SAME;
    if (o->given & cli_bit(&program, s->name))
        return row->mark == SHAPE ? ADOPT_OTHER_SHAPE : ADOPT_OTHER;
    /* The checkpoint's value may be 0, which the command line does not allow:
     * --nodes is 0 if nodes have different sizes. */
    struct cli_row any = *row;
    any.least = 0;
    return cli_read(&any, o, s->value, &line) ? ADOPT_SAME : ADOPT_UNKNOWN;
}

uint64_t options_hash(const struct options *o)
{
    uint64_t hash = cli_digest(&program, o, -1) ^ (uint64_t)o->given ^
                    (uint64_t)(o->given >> 64);

    for (size_t i = 0; i < o->nmemory; i++)
        hash = random_key(hash, o->memory[i]);
    return hash;
}

const char *options_gemm(const struct options *o)
{
    return o->gemm ? cli_name_of(gemm_names, o->gemm) : NULL;
}

static const char *chosen(const char *option, int value)
{
    return cli_name_of(cli_row_of(&program, option)->names, value);
}

const char *options_balance_over(const struct options *o)
{
    return chosen("balance-over", (int)o->balance_over);
}

const char *options_gate(const struct options *o)
{
    return chosen("gate", (int)o->model.gate.kind);
}

const char *options_balance(const struct options *o)
{
    return chosen("balance", (int)o->balance.how);
}

const char *options_workload(const struct options *o)
{
    return chosen("workload", (int)o->workload);
}

bool options_given(const struct options *o, const char *name)
{
    return o->given & cli_bit(&program, name);
}

bool options_of_preset(const struct options *o, const char *name)
{
    return o->of_presets & cli_bit(&program, name);
}

void options_free(struct options *o)
{
    free(o->data);
    o->data = NULL;
    o->ndata = 0;
}
