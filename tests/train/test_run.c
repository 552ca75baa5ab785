// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-train as users run it: on 1, 2 and 4 ranks, twice, killed, interrupted
 * and resumed. test_run_refused.c tests what it refuses.
 */
#include "tests/train/runs.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(train_run, losses_do_not_depend_on_ranks_and_repeat)
{
    char *one = in_folder("1"), *two = in_folder("2"), *four = in_folder("4");
    char *again = in_folder("4 again");

    run(JOB(1, "--steps=50", "--log", one));
    run(JOB(2, "--steps=50", "--log", two));
    run(JOB(4, "--steps=50", "--log", four));
    run(JOB(4, "--steps=50", "--log", again));
    same_losses(one, two, 50);
    same_losses(one, four, 50);
    same_losses(four, again, 50);
}

/* The sum of a field over all steps of a log. */
static double sum_of(const char *path, const char *field)
{
    FILE *f = fopen(path, "r");
    char line[2048];
    double sum = 0;

    cr_assert(f, "no %s", path);
    while (fgets(line, sizeof(line), f)) {
        cJSON *json = cJSON_Parse(line);
        const cJSON *value = cJSON_GetObjectItem(json, field);
        cr_assert(value, "no %s: %s", field, line);
        sum += value->valuedouble;
        cJSON_Delete(json);
    }
    fclose(f);
    return sum;
}

/* The log must say that the ranks have all existing cores, at most one each.
 * The ranks must use no more CPU time than these cores have. A part of that
 * time must be computing, and a part must not. Times are summed over the whole
 * run, since ranks are not in the same step at the same time. */
Test(train_run, cores_are_accounted_for)
{
    const size_t all = 20;
    cpu_set_t may;

    cr_assert_eq(sched_getaffinity(0, sizeof(may), &may), 0);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        const int cpus = CPU_COUNT(&may), cores = ranks < cpus ? ranks : cpus;
        char *log = in_folder("cores");

        run(JOB(ranks, "--steps=20", "--log", log));
        cr_assert_eq(sum_of(log, "cores"), (double)all * cores);
        const double clock = sum_of(log, "step_s");
        const double cpu = sum_of(log, "cpu_s");
        const double compute = sum_of(log, "compute_cpu_s");
        cr_assert_leq(cpu, 1.05 * cores * clock, "%d ranks", ranks);
        cr_assert_gt(compute, 0.1 * cpu, "%d ranks", ranks);
        cr_assert_lt(compute, cpu, "%d ranks", ranks);
    }
}

/* Returns the mean loss of the last steps. The model must have learned
 * something by then. */
static double late_loss(const char *log, size_t steps)
{
    enum { MOST = 256, LAST = 10 };
    double loss[MOST], val[MOST], sum = 0;

    cr_assert_eq(losses(log, loss, val, MOST), steps);
    for (size_t i = steps - LAST; i < steps; i++)
        sum += loss[i];
    cr_assert_lt(sum / LAST, 0.8 * loss[0], "nothing was learnt");
    return sum / LAST;
}

/* bf16 products must have the same bits on any number of ranks, and almost the
 * losses of f32. */
Test(train_run, compute_bf16)
{
    enum { STEPS = 120 };
    char *one = in_folder("1"), *two = in_folder("2"), *four = in_folder("4");
    char *f32 = in_folder("f32"), *log;

    run(JOB(1, "--steps=120", "--compute=bf16", "--log", one));
    run(JOB(2, "--steps=120", "--compute=bf16", "--log", two));
    run(JOB(4, "--steps=120", "--compute=bf16", "--log", four));
    run(JOB(2, "--steps=120", "--compute=f32", "--log", f32));
    same_losses(one, two, STEPS);
    same_losses(one, four, STEPS);
    double bf16 = late_loss(one, STEPS), want = late_loss(f32, STEPS);
    cr_assert(bf16 != want && fabs(bf16 - want) < 0.01, "%g, in f32 %g", bf16,
              want);
    log = read_all(one);
    cr_assert(contains(log, "\"compute_bits\": 16,"), "%s", log);
    free(log);
}

/* Returns the lines that a job prints, each up to where times begin, without
 * lines that have only times. The caller frees them. */
static char *lines_of(struct harness_job j)
{
    struct harness *h = harness_start(&j);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    char *out = strdup(harness_rank(h, 0)->out), *to = out, *rest = NULL;
    char *kept = calloc(1, strlen(out) + 2);
    for (char *line = strtok_r(out, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *times = strstr(line, "  imbalance ");
        if (times)
            times[strlen("  imbalance 1.00")] = '\0';
        if (strncmp(line, "communication", 13) != 0 &&
            strncmp(line, "hidden:", 7) != 0 &&
            strncmp(line, "computing: ", 11) != 0 &&
            strncmp(line, "of the time of ", 15) != 0 &&
            strncmp(line, "peak  ", 6) != 0 &&
            strncmp(line, "speed:", 6) != 0 && strncmp(line, "MFU:", 4) != 0)
            strcat(strcat(kept, line), "\n");
    }
    free(to);
    harness_finish(h);
    return kept;
}

Test(train_run, two_runs_print_the_same_but_for_times)
{
    /* With a sanitizer these two long runs take a fifth of this program's time.
     * Other tests run each part of them. */
    if (harness_sanitized())
        cr_skip_test("nothing that is new to a sanitizer");
    if (harness_brief())
        cr_skip_test("takes long: make check");
    char *a = lines_of(JOB(2, "--print-every=10"));
    char *b = lines_of(JOB(2, "--print-every=10"));

    cr_assert_str_eq(a, b);
    cr_assert(strstr(a, "step  400/400  loss"), "%s", a);
    free(a);
    free(b);
}

Test(train_run, any_number_of_ranks)
{
    static const int ranks[] = {3, 5, 7};

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct harness_job j = JOB(ranks[i], "--steps=2");
        int to = 0;
        for (int n = 0; j.args[n]; n++)
            if (strncmp(j.args[n], "--batch", 7) != 0)
                j.args[to++] = j.args[n];
        j.args[to] = NULL;
        run(j);
    }
}

/* The number of steps must be fixed and printed once, and the learning rate
 * must not rise again. */
Test(train_run, minutes_fix_the_steps_once)
{
    char *log = in_folder("log"), line[2048];
    struct harness_job j = JOB(2, "--minutes=0.02", "--warmup=3", "--log", log);
    struct harness *h = harness_start(&j);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    const char *said = strstr(harness_rank(h, 0)->out, "steps       ");
    cr_assert(said, "%s", harness_story(h));
    size_t want = strtoull(said + strlen("steps       "), NULL, 10), n = 0;
    cr_assert(!strstr(said + 1, "steps       "), "%s", harness_story(h));
    FILE *f = fopen(log, "r");
    double before = 0;
    while (f && fgets(line, sizeof(line), f)) {
        const char *lr = strstr(line, "\"lr\": ");
        cr_assert(lr);
        double rate = atof(lr + strlen("\"lr\": "));
        n++;
        cr_assert(n <= 3 || rate <= before, "step %zu: %g, and %g before", n,
                  rate, before);
        before = rate;
    }
    cr_assert(f);
    fclose(f);
    cr_assert(n == want && n >= 40, "%zu steps, %zu said", n, want);
    harness_finish(h);
}

/* Waves must compute the same losses. The first loss must have the same bits.
 * Later losses may differ by rounding, since gradients of experts' weights are
 * added in another order. */
Test(train_run, waves_compute_the_same)
{
    enum { STEPS = 6 };
    static const struct {
        const char *rows, *dtype, *micro;
    } runs[] = {{"--max-rows=200", "--dtype=f32", "--micro-batches=1"},
                {"--max-rows=80", "--dtype=bf16", "--micro-batches=2"}};
    char *one = in_folder("one"), *many = in_folder("many");
    double want[STEPS], got[STEPS], val[STEPS];
    int differ = 0;

    for (size_t r = 0; r < sizeof(runs) / sizeof(runs[0]); r++) {
        run(JOB(2, "--steps=6", runs[r].dtype, runs[r].micro, "--log", one));
        run(JOB(2, "--steps=6", runs[r].dtype, runs[r].micro, "--log", many,
                runs[r].rows));
        cr_assert_eq(losses(one, want, val, STEPS), STEPS);
        cr_assert_eq(losses(many, got, val, STEPS), STEPS);
        cr_assert_eq(got[0], want[0]);
        for (int i = 1; i < STEPS; i++)
            cr_assert_float_eq(got[i], want[i], 1e-5 * want[i],
                               "%s: %.9g, not %.9g", runs[r].dtype, got[i],
                               want[i]);
        for (int i = 1; i < STEPS; i++)
            differ += got[i] != want[i];
    }
    cr_assert(differ, "there were no waves");
}

/* With leaves, waves must add also the gradients in the order of one wave. */
Test(train_run, waves_of_leaves_have_the_same_bits)
{
    static const struct {
        const char *rows, *dtype, *micro;
        int ranks;
    } runs[] = {{"--max-rows=100", "--dtype=f32", "--micro-batches=2", 2},
                {"--max-rows=300", "--dtype=bf16", "--micro-batches=1", 1}};
    char *one = in_folder("one"), *many = in_folder("many");

    for (size_t r = 0; r < sizeof(runs) / sizeof(runs[0]); r++) {
        run(JOB(runs[r].ranks, "--steps=6", "--leaf-rows=24", runs[r].dtype,
                runs[r].micro, "--log", one));
        run(JOB(runs[r].ranks, "--steps=6", "--leaf-rows=24", runs[r].dtype,
                runs[r].micro, "--log", many, runs[r].rows));
        cr_assert_eq(sum_of(one, "waves"), 0);
        cr_assert_gt(sum_of(many, "waves"), 6);
        same_losses(one, many, 6);
    }
}

/* Recomputing and offloading must not change bits, neither with copies of
 * experts (whose gradients are summed leaf by leaf), nor with experts that
 * move. */
Test(train_run, tiers_go_with_balance)
{
    char *kept = in_folder("kept"), *tiers = in_folder("tiers");

    run(JOB(2, "--steps=6", "--workload=W1", "--balance=microbatch",
            "--leaf-rows=32", "--log", kept));
    cr_assert_gt(sum_of(kept, "replicas"), 0);
    run(JOB(2, "--steps=6", "--workload=W1", "--balance=microbatch",
            "--leaf-rows=32", "--log", tiers,
            "--memory=expert=recompute,activation=recompute,norm=recompute,"
            "attention=recompute,residual=offload,router=recompute"));
    same_losses(kept, tiers, 6);
    run(JOB(2, "--steps=6", "--workload=W1", "--balance=migrate",
            "--balance-every=2", "--log", kept));
    run(JOB(2, "--steps=6", "--workload=W1", "--balance=migrate",
            "--balance-every=2", "--log", tiers, "--recompute-above=1",
            "--memory=activation=offload,expert=offload"));
    same_losses(kept, tiers, 6);
    cr_assert_gt(sum_of(tiers, "recomputed"), 0);
}

enum { SCRIPT = 640 };

/* Returns the job j with `each` ranks on each of several nodes. */
static struct harness_job on_nodes(struct harness_job j, int each,
                                   char script[SCRIPT])
{
    snprintf(script, SCRIPT, "SHUNT_NODE=node$((RANK / %d)) exec '%s' \"$@\"",
             each, program);
    for (int i = 0; i < 3; i++)
        memmove(j.args + 1, j.args, sizeof(j.args) - sizeof(j.args[0]));
    j.program = "/bin/sh";
    j.args[0] = "-c";
    j.args[1] = script;
    j.args[2] = "sh";
    return j;
}

/* Runs that drop a few rows, or round rows, must learn as well: their loss must
 * be within 1 % of that of a run that does neither. Their counters must show
 * that they drop rows, and that they send fewer bytes for as many rows. */
Test(train_run, capacity_and_fp8_learn_as_well)
{
    enum { STEPS = 80 };
    char *whole = in_folder("whole"), *capacity = in_folder("capacity"),
         *fp8 = in_folder("fp8");
    double want, of_capacity, of_fp8, saved, rows;
    char script[SCRIPT];

    if (harness_sanitized())
        cr_skip_test("sanitizers learn nothing from how well a run learns");
    run(on_nodes(JOB(2, "--steps=80", "--dtype=bf16", "--log", whole), 1,
                 script));
    run(JOB(2, "--steps=80", "--dtype=bf16", "--capacity-factor=2", "--log",
            capacity));
    run(on_nodes(
        JOB(2, "--steps=80", "--dtype=bf16", "--wire=fp8", "--log", fp8), 1,
        script));
    want = late_loss(whole, STEPS);
    of_capacity = late_loss(capacity, STEPS);
    of_fp8 = late_loss(fp8, STEPS);
    cr_assert(fabs(of_capacity - want) < 0.01 * want, "%g, dropless %g",
              of_capacity, want);
    cr_assert(fabs(of_fp8 - want) < 0.01 * want, "%g, in bf16 %g", of_fp8,
              want);
    cr_assert_eq(sum_of(whole, "dropped"), 0);
    cr_assert_gt(sum_of(capacity, "dropped"), 0);
    /* Rows of dispatch have 32 + 4 bytes instead of 64. Gradients and other
     * exchanges are sent as well, with nearly as many rows: both runs choose
     * alike. */
    saved = sum_of(whole, "wire_bytes") - sum_of(fp8, "wire_bytes");
    rows = sum_of(fp8, "wire_rows");
    cr_assert(rows > 0 && fabs(saved / rows - 28) < 3, "%g bytes of %g rows",
              saved, rows);
    /* Dropping and rounding must have an effect: both losses must differ. */
    cr_assert_neq(of_capacity, want);
    cr_assert_neq(of_fp8, want);
}

/* Only the last run has two nodes. The others add as if they had two, so the
 * bits must be equal. */
Test(train_run, losses_do_not_depend_on_hosts)
{
    char *one = in_folder("1"), *four = in_folder("2x2"),
         *flat = in_folder("4");
    char script[SCRIPT];

    run(JOB(1, "--steps=20", "--nodes=2", "--log", one));
    run(JOB(4, "--steps=20", "--nodes=2", "--log", flat));
    run(on_nodes(JOB(4, "--steps=20", "--log", four), 2, script));
    same_losses(one, four, 20);
    same_losses(one, flat, 20);
}

/* Long enough to be interrupted before its end. */
#define LONG "--steps=200"
enum { LONG_STEPS = 200 };

/* A run without interruption, which the next tests compare with. */
static char *reference(void)
{
    char *log = in_folder("reference");

    run(JOB(4, LONG, "--log", log));
    return log;
}

Test(train_run, killed_rank_is_named_and_the_run_resumes)
{
    char *whole = reference(), *log = in_folder("log");
    char *folder_ = in_folder("checkpoints");
    char option[160];

    snprintf(option, sizeof(option), "--checkpoint=%s", folder_);
    struct harness_job j =
        JOB(4, LONG, option, "--checkpoint-every=5", "--log", log);
    char written[160];
    snprintf(written, sizeof(written), "checkpoint of step 10 in %s", folder_);
    struct harness *h = harness_start(&j);
    cr_assert(harness_await(h, 0, written), "%s", harness_story(h));
    double killed = harness_clock(h);
    harness_signal(h, 2, SIGKILL);
    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    cr_assert_eq(harness_rank(h, 2)->signal, SIGKILL);
    for (int r = 0; r < 4; r++) {
        const struct harness_rank *k = harness_rank(h, r);
        if (r == 2)
            continue;
        cr_assert_eq(k->exit_code, 1, "%s", harness_story(h));
        cr_assert(contains(k->err, "rank 2 is lost"), "%s", harness_story(h));
        cr_assert_lt(k->ended_s - killed, 5.0, "%s", harness_story(h));
    }
    harness_finish(h);

    run(JOB(4, LONG, option, "--resume", "--log", log));
    same_losses(whole, log, LONG_STEPS);
}

Test(train_run, interrupted_run_writes_a_checkpoint_and_resumes_on_fewer_ranks)
{
    char *whole = reference(), *log = in_folder("log");
    char option[160];

    snprintf(option, sizeof(option), "--checkpoint=%s", in_folder("c"));
    struct harness_job j = JOB(4, LONG, option, "--log", log);
    struct harness *h = harness_start(&j);
    /* The last line before the first step. */
    char first[160];
    snprintf(first, sizeof(first),
             "batch       8 sequences of 32 bytes on 4 "
             "ranks");
    cr_assert(harness_await(h, 0, first), "%s", harness_story(h));
    harness_signal(h, 3, SIGTERM);
    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    for (int r = 0; r < 4; r++)
        cr_assert_eq(harness_rank(h, r)->exit_code, 128 + SIGTERM, "%s",
                     harness_story(h));
    cr_assert(contains(harness_rank(h, 0)->out, "interrupted after step"), "%s",
              harness_story(h));
    harness_finish(h);

    run(JOB(2, LONG, option, "--resume", "--log", log));
    same_losses(whole, log, LONG_STEPS);
}

Test(train_run, report_and_sample)
{
    char *page = in_folder("report.html");
    struct harness_job j =
        JOB(2, "--steps=12", "--report", page, "--prompt=<b>&",
            "--capacity-factor=1", "--compute=bf16", "--gemm=naive");
    struct harness *h = harness_start(&j);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    const char *out = harness_rank(h, 0)->out;
    cr_assert(contains(out, "prompt, 4 bytes:\n<b>&\n"), "%s", out);
    cr_assert(contains(out, "sample, 5 bytes after it"), "%s", out);
    cr_assert(contains(out, "\nbigrams "), "%s", out);
    cr_assert(contains(out, "\nthis model "), "%s", out);
    cr_assert(contains(out, "step   12/12"), "%s", out);
    cr_assert(contains(out, "  dropped "), "%s", out);
    cr_assert(contains(out, "dropped: "), "%s", out);
    cr_assert(contains(out, "GF/s: f32 multiply-adds"), "%s", out);
    cr_assert(contains(out, "hidden: dispatch "), "%s", out);
    cr_assert(contains(out, ", dispatch's gradient "), "%s", out);
    /* If bf16 products are no faster than f32, a second line says so. */
    cr_assert(contains(out, ", of inputs rounded to bf16, kernels for"), "%s",
              out);
    cr_assert(contains(out, "in f32: --gemm was given, no faster"), "%s", out);
    cr_assert(contains(out, "% of the assignments dropped\n"), "%s", out);
    /* The share of the peak must be above 0 and at most 100 %. */
    const char *speed = strstr(out, "GF/s in matrix products: ");
    cr_assert(speed, "%s", out);
    int share = atoi(strchr(speed, ':') + 1);
    cr_assert(share >= 0 && share <= 100, "%s", out);
    harness_finish(h);

    char *html = read_all(page);
    cr_assert(contains(html, "</html>"));
    /* The common style sheet, for light and for dark. */
    cr_assert(contains(html, "prefers-color-scheme:dark"));
    cr_assert(contains(html, "<td>dropped<td>"));
    cr_assert(contains(html, "<td>hidden behind computing<td>dispatch "));
    cr_assert(contains(html, "Time of each exchange that is hidden"));
    cr_assert(contains(html, "GF/s in matrix products"));
    cr_assert(contains(html, ", of inputs rounded to bf16, kernels "));
    cr_assert(contains(html, "<td>products<td>of bf16, summed in f32"));
    cr_assert(contains(html, "&lt;b&gt;&amp;"));
    cr_assert(!contains(html, "<b>"));
    cr_assert(!contains(html, "http://") && !contains(html, "https://") &&
                  !contains(html, "src="),
              "it needs something from elsewhere");
    cr_assert(!contains(html, "nan") && !contains(html, "inf\""));
    size_t plots = 0;
    for (char *at = html; (at = strstr(at, "<svg")); at++)
        plots++;
    cr_assert_eq(plots, 5);
    free(html);
}

/* An untrained model writes any of the 256 bytes. All must be printed visibly,
 * and there must be as many bytes as were asked for. The prompt is a piece of
 * the validation text. */
Test(train_run, sample_shows_every_byte)
{
    struct harness_job j =
        JOB(2, "--steps=1", "--sample=300", "--temperature=100");
    struct harness *h = harness_start(&j);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    const char *out = harness_rank(h, 0)->out;
    cr_assert(contains(out, " bytes of the validation text:\n"), "%s", out);
    const char *at = strstr(out, "sample, 300 bytes after it");
    cr_assert(at, "%s", out);
    size_t bytes = 0, hidden = 0;
    for (at = strchr(at, '\n') + 1; *at && bytes < 300; at++, bytes++) {
        cr_assert(*at == '\n' || (*at >= 32 && *at < 127), "byte %d", *at);
        if (strncmp(at, "\\x", 2) == 0) {
            hidden++;
            at += 3;
        }
    }
    cr_assert(bytes == 300 && strncmp(at, "\n\n", 2) == 0, "%s", out);
    cr_assert_gt(hidden, 100u);
    harness_finish(h);
}
