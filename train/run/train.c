// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-train: trains a small mixture-of-experts language model whose experts
 * are spread over ranks. From top to bottom: join the other ranks, read the
 * text, set up or resume, make steps and validations, sample, report.
 */
#include "src/kernels/elementwise.h"
#include "src/kernels/gemm/gemm.h"
#include "tools/cli/cli.h"
#include "train/base/clock.h"
#include "train/base/error.h"
#include "train/base/files.h"
#include "train/base/team.h"
#include "train/options/options.h"
#include "train/run/bars.h"
#include "train/run/length.h"
#include "train/run/peak.h"
#include "train/run/progress.h"
#include "train/run/report.h"
#include "train/run/run.h"
#include "train/run/sample.h"
#include "train/run/xz.h"
#include "train/step/data.h"
#include "train/step/folder_lock.h"
#include "train/step/trainer.h"

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_USAGE = 2,
    EXIT_SIGNAL = 128, /* EXIT_SIGNAL + the signal's number */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signo)
{
    interrupted = signo;
}

/* On a signal training stops after the step, and a sample after a byte.
 * --generate has nothing to save, so a signal ends it at once. */
static void catch_signals(const struct options *o)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    /* A second signal ends the process at once. */
    action.sa_flags |= (int)SA_RESETHAND;
    if (!o->generate) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
}

/* --- the text ------------------------------------------------------------- */

static const char *find_root(const struct options *o)
{
    static const char *const places[] = {TRAIN_SOURCE_ROOT, "."};

    if (o->root)
        return o->root;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[4200];
        snprintf(path, sizeof(path), "%s/train/run/train.c", places[i]);
        if (access(path, R_OK) == 0)
            return places[i];
    }
    return NULL;
}

static int read_text_here(struct run *run)
{
    const struct options *o = &run->o;

    if (o->ndata) {
        snprintf(run->source, sizeof(run->source), "%s%s", o->data[0],
                 o->ndata > 1 ? " and others" : "");
        return text_read_files(o->data, o->ndata, &run->text);
    }
    const char *root = find_root(o);
    if (!root)
        return train_error(
            "this project's sources, which are the text without "
            "--data, are not at %s any more; give --data FILE or "
            "--root FOLDER",
            TRAIN_SOURCE_ROOT);
    if (text_read_tree(root, &run->text))
        return -1;
    if (!run->text.files)
        return train_error("there are no sources or documents in %s; give "
                           "another --root FOLDER, or --data FILE",
                           root);
    snprintf(run->source, sizeof(run->source),
             "this project's sources and documents, %zu files",
             (size_t)run->text.files);
    return 0;
}

/* Rank 0 reads the text and sends it, so that all ranks have the same text,
 * even if files are edited meanwhile. */
static int share_text(struct run *run)
{
    struct text *text = &run->text;
    uint64_t sizes[2] = {0}; /* bytes, files */
    int st = first_rank(run) ? read_text_here(run) : 0;

    if (team_agree(&run->team, st == 0, "reading the text"))
        return -1;
    sizes[0] = text->length;
    sizes[1] = text->files;
    if (team_broadcast(&run->team, sizes, sizeof(sizes), 0))
        return -1;
    if (!first_rank(run)) {
        text->length = sizes[0];
        text->files = sizes[1];
        text->bytes = malloc(sizes[0] + 1);
        text->end = malloc((sizes[1] + 1) * sizeof(*text->end));
        if (!text->bytes || !text->end)
            st = train_error("out of memory");
    }
    if (team_agree(&run->team, st == 0, "memory for the text"))
        return -1;
    if (text->length &&
        team_broadcast(&run->team, text->bytes, text->length, 0))
        return -1;
    if (text->files && team_broadcast(&run->team, text->end,
                                      text->files * sizeof(*text->end), 0))
        return -1;
    run->info.text_hash = text_hash(text);
    return 0;
}

/* --- beginning ------------------------------------------------------------ */

/* Check that all ranks were given the same options. The library compares the
 * options of the exchange; this function compares the other options. */
static int compare_options(struct run *run)
{
    uint64_t own = options_hash(&run->o);
    uint64_t *all = malloc((size_t)run->team.size * sizeof(*all));
    int st = 0;

    if (!all)
        return train_error("out of memory");
    st = team_gather(&run->team, &own, all, sizeof(own));
    for (int r = 0; st == 0 && r < run->team.size; r++)
        if (all[r] != all[0])
            st = train_error("rank %d was given other options than rank 0", r);
    free(all);
    return st;
}

__attribute__((format(printf, 2, 3))) static void
add_change(struct run *run, const char *format, ...)
{
    size_t at = strlen(run->changes), room = sizeof(run->changes) - at;
    int n = snprintf(run->changes + at, room, "%s", at ? "; " : "");
    va_list args;

    va_start(args, format);
    if (n >= 0 && (size_t)n < room)
        vsnprintf(run->changes + at + n, room - (size_t)n, format, args);
    va_end(args);
}

/* Take over the settings of the checkpoint, before anything is set up. All
 * settings that differ are refused in one error. */
static int open_checkpoint(struct run *run)
{
    struct options *o = &run->o;
    int there = checkpoint_open(&run->team, o->checkpoint, &run->checkpoint,
                                &run->resumed);
    bool fits;

    if (there < 0)
        return -1;
    if (there == 0 && o->generate)
        return train_error("no checkpoint in %s", o->checkpoint);
    if (there == 0) {
        if (first_rank(run))
            progress_say(&run->progress, "no checkpoint in %s: starting anew",
                         o->checkpoint);
        return 0;
    }
    o->accept |= o->generate; /* nothing is trained, so changes are only
                                 printed */
    if (checkpoint_settings(run->checkpoint, o, run->changes,
                            sizeof(run->changes), &fits))
        return -1;
    if (o->resume && o->steps && run->resumed.steps &&
        o->steps != run->resumed.steps)
        add_change(run, "--steps %zu, not %zu", run->resumed.steps, o->steps);
    /* Each rank drops what exceeds its own part of the capacity, so the number
     * of ranks matters. */
    if (o->resume && o->capacity_factor > 0 &&
        run->resumed.ranks != (size_t)run->team.size)
        add_change(run, "%zu ranks, not %d", run->resumed.ranks,
                   run->team.size);
    if (!o->generate && run->resumed.text_hash != run->info.text_hash)
        add_change(run, "another text");
    if (!fits)
        return train_error("the checkpoint was made with %s; leave these "
                           "options out, a model cannot change its shape",
                           run->changes);
    if (run->changes[0] && !o->accept)
        return train_error("the checkpoint was made with %s; go on as it was "
                           "made, or with --accept-changes",
                           run->changes);
    return 0;
}

/* Refuse a folder with a checkpoint: a new run would remove that checkpoint
 * when it writes its own first one. */
static int refuse_to_replace(struct run *run)
{
    struct checkpoint_info found;
    int there = checkpoint_open(&run->team, run->o.checkpoint, &run->checkpoint,
                                &found);

    if (there <= 0)
        return there;
    return train_error("there is a checkpoint of step %zu in %s already: go on "
                       "from it with --resume, or give another folder",
                       found.step, run->o.checkpoint);
}

static int resume(struct run *run)
{
    if (trainer_load(&run->trainer, run->checkpoint))
        return -1;
    run->info.step = run->resumed.step;
    run->info.steps = run->resumed.steps;
    if (first_rank(run)) {
        progress_say(&run->progress, "resumed     after step %zu, from %s",
                     run->info.step, run->o.checkpoint);
        if (run->changes[0])
            progress_say(&run->progress, "changed     %s", run->changes);
    }
    return 0;
}

/* --- the length of the run ------------------------------------------------ */

/* Set the number of steps: --steps, or that of the checkpoint. 0: --minutes
 * decides once the time of a step is known. */
static void choose_length(struct run *run)
{
    const struct options *o = &run->o;

    if (o->steps)
        run->info.steps = o->steps;
    else if (!run->info.steps && o->minutes <= 0)
        run->info.steps = STEPS_UNASKED;
    else if (run->info.steps && o->minutes > 0 && first_rank(run))
        progress_say(&run->progress,
                     "the checkpoint's run is of %zu steps, whatever --minutes "
                     "says: the learning rate follows them\n",
                     run->info.steps);
    run->evals =
        length_evals_due(run->info.steps, o->eval_every, run->info.step);
}

/* Is a validation due? The answer is the same on every rank. */
static bool is_time_to_validate(struct run *run)
{
    size_t due =
        length_evals_due(run->info.steps, run->o.eval_every, run->info.step);
    bool now = due > run->evals || run->info.step == run->info.steps;

    run->evals = due;
    return now;
}

/* Fix the number of steps of a run with --minutes, by rank 0's clock. done:
 * steps since the run began or was resumed. */
static int fix_length(struct run *run, size_t done)
{
    uint64_t steps = 0;

    if (done == PROBE_SKIP)
        run->probed = clock_now();
    if (run->info.steps || done != PROBE)
        return 0;
    if (first_rank(run)) {
        double step_s = (clock_now() - run->probed) / (PROBE - PROBE_SKIP);
        double left = 60 * run->o.minutes - (clock_now() - run->start);
        double batch = (double)run->o.batch;
        double batches = 0;
        for (int kind = 0; kind < HELD; kind++)
            batches += ceil((double)run->windows[kind] / batch);
        steps =
            length_in_time(left, step_s, run->info.step, batches,
                           (double)run->o.sample / batch, run->o.eval_every);
    }
    if (team_broadcast(&run->team, &steps, sizeof(steps), 0))
        return -1;
    run->info.steps = steps;
    if (first_rank(run))
        progress_say(&run->progress, "steps       %zu, %s %g minutes",
                     run->info.steps,
                     steps == STEPS_LEAST ? "the fewest there are, for"
                                          : "what fits into",
                     run->o.minutes);
    return 0;
}

/* --- the run -------------------------------------------------------------- */

static int validate(struct run *run, struct step_metrics *m)
{
    char kinds[128], dropped[64] = "";

    if (trainer_validate(&run->trainer, run->val, &run->val_dropped))
        return -1;
    if (run->val_dropped > 0)
        snprintf(dropped, sizeof(dropped),
                 "; %.1f%% of the assignments dropped", 100 * run->val_dropped);
    memcpy(m->val, run->val, sizeof(m->val));
    if (first_rank(run))
        progress_say(&run->progress, "validation after step %zu: %s%s", m->step,
                     run_each_kind(m->val, kinds, sizeof(kinds)), dropped);
    return 0;
}

static int save(struct run *run)
{
    if (trainer_save(&run->trainer, &run->info))
        return -1;
    if (first_rank(run))
        progress_say(&run->progress, "checkpoint of step %zu in %s",
                     run->info.step, run->o.checkpoint);
    return 0;
}

/* Make all steps. Returns the signal that interrupted them, or 0; or -1. */
static int train(struct run *run)
{
    struct trainer *t = &run->trainer;
    size_t first = run->info.step + 1;

    if (run->info.steps && first > run->info.steps) {
        /* Resumed after the last step: only validate. */
        struct step_metrics m = {.step = run->info.step};
        return validate(run, &m);
    }
    for (size_t step = first; !run->info.steps || step <= run->info.steps;
         step++) {
        struct step_metrics m;
        /* As long as the number of steps is not known, the learning rate is
         * that of an endless run: it rises, or is constant. */
        size_t steps = run->info.steps ? run->info.steps : SIZE_MAX / 2;

        if (trainer_step(t, step, steps, interrupted, &m))
            return -1;
        run->info.step = step;
        if (fix_length(run, step - first + 1))
            return -1;
        m.time_s = clock_now() - run->start;
        if (first_rank(run))
            progress_step(&run->progress, &m, run->info.steps);

        bool last = step == run->info.steps || t->stop;
        bool eval = is_time_to_validate(run);
        if (eval && !t->stop && validate(run, &m))
            return -1;
        int logged = first_rank(run) ? metrics_add(&run->metrics, &m) : 0;
        if (logged)
            return -1;
        /* The report shows the loads of experts since the last validation but
         * one. */
        if (eval && !last)
            memset(t->expert_rows, 0,
                   model_moe_layers(&run->o.model) * run->o.model.experts *
                       sizeof(double));
        if (run->o.checkpoint &&
            (last || step % run->o.checkpoint_every == 0) && save(run))
            return -1;
        if (t->stop) {
            if (first_rank(run))
                progress_say(
                    &run->progress, "interrupted after step %zu%s", step,
                    run->o.checkpoint ? "; --resume goes on from there" : "");
            return t->stop;
        }
    }
    return 0;
}

static int report(struct run *run)
{
    const struct options *o = &run->o;
    char products[64], groups[160];
    struct report r = {
        .options = o,
        .metrics = &run->metrics,
        .ranks = run->team.size,
        .parameters = run_parameters(run, o->model.experts),
        .active = run_parameters(run, o->model.topk),
        .gemm = products,
        .kernels = shunti_isa_name(shunti_isa()),
        .transport = run->team.size > 1
                         ? shunt_comm_transport(run->team.comm, 1)
                         : "nothing: there is one rank",
        .groups = run_groups(run, groups, sizeof(groups)),
        .text = run->source,
        .text_bytes = run->text.length,
        .val = run->val,
        .val_dropped = run->val_dropped,
        .windows = run->windows,
        .bars = &run->bars,
        .peak = run->peak,
        .peak_name = run_peak_name(run),
        .seconds = clock_now() - run->start,
        .expert_rows = run->trainer.expert_rows,
        .sample = &run->sample,
    };

    if (!o->report)
        return 0;
    shunti_gemm_describe(run->trainer.gemm, products, sizeof(products));
    int st = first_rank(run) ? report_write(&r, o->report) : 0;
    if (team_agree(&run->team, st == 0, "writing the report"))
        return -1;
    if (first_rank(run))
        progress_say(&run->progress, "report      %s", o->report);
    return 0;
}

/* Write the sample after the last step. */
static int write_sample(struct run *run)
{
    const struct options *o = &run->o;
    const uint8_t *prompt = (const uint8_t *)o->prompt;
    size_t length = o->prompt ? strlen(o->prompt) : 0;

    if (!prompt && !o->generate)
        prompt = data_prompt(&run->data, &length);
    return sample_text(&run->trainer, prompt, length, o->sample, o->temperature,
                       &interrupted, &run->sample);
}

/* Lock the folder: from now on no other job can write to it. */
static int lock_folder(struct run *run)
{
    const char *folder = run->o.checkpoint;
    enum folder_lock_result lock = FOLDER_LOCK_TAKEN;

    if (first_rank(run))
        lock = make_folder(folder) ? FOLDER_LOCK_REFUSED
                                   : folder_lock_take(folder, &run->lock);
    if (lock == FOLDER_LOCK_NONE)
        progress_say(&run->progress,
                     "%s: see that no other job writes checkpoints there",
                     train_error_text());
    return team_agree(&run->team, lock != FOLDER_LOCK_REFUSED, "checkpoint");
}

/* Set up the text, the checkpoint if there is one, and the options. Check that
 * these fit together, and that they fit the ranks. */
static int settle_options(struct run *run)
{
    struct options *o = &run->o;
    size_t ranks = (size_t)run->team.size;
    int good = (!o->resume && !o->generate) || o->checkpoint;

    if (!good)
        train_error("--%s needs --checkpoint FOLDER",
                    o->resume ? "resume" : "generate");
    if (team_agree(&run->team, good, "options") || compare_options(run))
        return -1;
    if (!o->generate && share_text(run)) /* open_checkpoint() compares its
                                            hash */
        return -1;
    if (o->checkpoint && !o->generate && lock_folder(run))
        return -1;
    if (o->checkpoint && (o->resume || o->generate ? open_checkpoint(run)
                                                   : refuse_to_replace(run)))
        return -1;
    if (o->generate) { /* any number of ranks will do; use no more memory than
                          needed */
        o->batch = o->shares = ranks;
        o->micro_batches = o->expert_copies = 1;
        o->balance.how = BALANCE_OFF;
        o->nodes = 0;
    }
    /* All ranks agree, so that none exits while others are joining. */
    good = options_check(o, ranks, team_nodes(&run->team)) == 0;
    if (team_agree(&run->team, good, "options"))
        return -1;
    return o->checkpoint && !o->generate
               ? checkpoint_folder(&run->team, o->checkpoint)
               : 0;
}

/* --generate: write a sample, without a text or training. */
static int generate(struct run *run)
{
    if (trainer_create(&run->trainer, &run->o, &run->team, &run->data) ||
        trainer_load(&run->trainer, run->checkpoint))
        return -1;
    if (first_rank(run))
        progress_say(&run->progress, "model       of step %zu, from %s",
                     run->resumed.step, run->o.checkpoint);
    if (first_rank(run) && run->changes[0])
        progress_say(&run->progress, "changed     %s", run->changes);
    if (write_sample(run))
        return -1;
    if (first_rank(run))
        run_show_sample(run);
    return 0;
}

/* Open the log, and try to write the report, so that an error is found before
 * the first step. */
static int open_output(struct run *run)
{
    const struct options *o = &run->o;
    struct new_file report;

    if (o->report && is_plain_file(o->report)) {
        if (new_file_open(&report, o->report))
            return -1;
        new_file_discard(&report);
    }
    return metrics_open(&run->metrics, o->log, run->info.step);
}

/* Everything between creating the communicator and destroying it. Returns 0,
 * the signal that interrupted the run, or -1 with train_error_text(). */
static int run_all(struct run *run)
{
    for (int kind = 0; kind < HELD; kind++)
        run->val[kind] = (double)NAN;
    if (settle_options(run))
        return -1;
    if (run->o.generate)
        return generate(run);
    if (data_split(&run->text, run->o.model.seq, &run->data) ||
        trainer_create(&run->trainer, &run->o, &run->team, &run->data) ||
        peak_measure(&run->team, shunti_gemm_tile(run->trainer.gemm),
                     &run->peak))
        return -1;
    if (run->checkpoint && resume(run))
        return -1;
    choose_length(run);
    for (int kind = 0; kind < HELD; kind++)
        run->windows[kind] = trainer_windows(&run->trainer, kind);
    if (first_rank(run))
        bars_measure(&run->data, run->windows, run->o.model.seq, &run->bars);
    if (team_agree(&run->team, !first_rank(run) || open_output(run) == 0,
                   "output"))
        return -1;
    if (first_rank(run))
        run_introduce(run);

    int st = train(run);
    if (st == 0 && run->o.sample)
        st = write_sample(run);
    if (st == 0 && first_rank(run))
        run_conclude(run);
    if (st >= 0 && report(run))
        return -1;
    return st == 0 ? run->sample.stopped : st;
}

static int join_by_mpi(struct run *run)
{
    const struct mpi_calls *mpi = mpi_load();
    const char *wrong = mpi ? mpi->begin(&run->team.comm) : NULL;

    if (!mpi)
        return -1;
    if (wrong)
        return train_error("%s", wrong);
    run->team.mpi = mpi;
    return 0;
}

static int join(struct run *run)
{
    struct team *team = &run->team;

    if (run->o.mpi) {
        if (join_by_mpi(run))
            return -1;
    } else {
        enum shunt_status st = shunt_comm_create_env(NULL, &team->comm);
        if (st)
            return train_error("%s: %s", shunt_strerror(st),
                               shunt_last_error(NULL));
    }
    team->rank = shunt_comm_rank(team->comm);
    team->size = shunt_comm_size(team->comm);
    size_t nodes = team_nodes(team);
    if (team->mpi && nodes) {
        int each = team->size / (int)nodes;
        team->mpi->split(team->rank / each, team->rank % each);
    }
    return 0;
}

/* Rows of experts are freed and allocated in each step (model_held.c). Keep the
 * pages of freed rows, so that the kernel need not clear them again. Both
 * values are the largest that malloc allows. */
static void keep_pages(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

int main(int argc, char **argv)
{
    struct run run = {.start = clock_now(), .lock = -1};
    int status = EXIT_SUCCESS;

    keep_pages();
    switch (options_parse(argc, argv, &run.o)) {
    case OPTIONS_EXIT:
        return EXIT_SUCCESS;
    case OPTIONS_BAD:
        fprintf(stderr, "shunt-train: %s\n", train_error_text());
        return EXIT_USAGE;
    case OPTIONS_RUN:
        break;
    }
    if (join(&run)) {
        fprintf(stderr, "shunt-train: cannot join the other ranks: %s\n",
                train_error_text());
        options_free(&run.o);
        return EXIT_FAILURE;
    }
    catch_signals(&run.o);
    progress_start(&run.progress, run.o.print_every);

    int done = run_all(&run);
    if (!cli_written("shunt-train") && done >= 0)
        status = EXIT_FAILURE;
    if (done >= 0 &&
        team_check(&run.team, shunt_comm_finish(run.team.comm), "ending"))
        done = -1;
    if (done < 0) {
        if (run.progress.drawn)
            putchar('\n');
        fflush(stdout);
        fprintf(stderr, "shunt-train: rank %d: %s\n", run.team.rank,
                train_error_text());
        status = EXIT_FAILURE;
    } else if (done > 0 && !status) {
        status = EXIT_SIGNAL + done;
    }
    checkpoint_close(run.checkpoint);
    /* Destroy the communicator before the trainer: that ends the calls that an
     * error has left under way in the trainer's memory. */
    shunt_comm_destroy(run.team.comm);
    trainer_destroy(&run.trainer);
    folder_lock_release(run.lock);
    metrics_close(&run.metrics);
    data_free(&run.data);
    text_free(&run.text);
    free(run.sample.bytes);
    options_free(&run.o);
    if (run.team.mpi && done < 0)
        run.team.mpi->abort(status); /* other ranks may wait in a call of MPI */
    else if (run.team.mpi)
        run.team.mpi->end();
    return status;
}
