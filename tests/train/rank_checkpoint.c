// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints of three small vectors. A damaged file must be noticed and named.
 * A complete checkpoint must stay until the next one is complete.
 */
#include "tests/harness/rank_main.h"
#include "tests/train/small_model.h"
#include "train/base/error.h"
#include "train/base/team.h"
#include "train/step/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_TRAIN(call)                                     \
    do {                                                      \
        if ((call) != 0)                                      \
            return rank_fail(__FILE__, __LINE__, #call, "%s", \
                             train_error_text());             \
    } while (0)

/* --- a state -------------------------------------------------------------- */

enum { LONG = 3000, SHORT = 37, PIECES = 3 };

/* The state, equal on every rank. Each rank writes a slice of "long", the last
 * one also "short", rank 0 also "zero"; all ranks read everything. */
struct state {
    float longer[LONG], shorter[SHORT], zero[SHORT];
};

static void fill(struct state *s, size_t step)
{
    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < LONG; i++)
        s->longer[i] = (float)(i * step) + 0.5f;
    for (size_t i = 0; i < SHORT; i++)
        s->shorter[i] = (float)i / (float)step;
}

static void pieces_of(struct state *s, const struct team *team, bool whole,
                      struct piece pieces[PIECES])
{
    size_t n = (size_t)team->size, r = (size_t)team->rank;
    size_t begin = whole ? 0 : LONG * r / n;
    size_t end = whole ? LONG : LONG * (r + 1) / n;
    bool last = whole || r == n - 1, first = whole || r == 0;

    pieces[0] = (struct piece){"long", begin, end - begin, s->longer + begin};
    pieces[1] = (struct piece){"short", 0, last ? SHORT : 0, s->shorter};
    pieces[2] = (struct piece){"zero", 0, first ? SHORT : 0, s->zero};
}

static struct options options_in(char *folder)
{
    return (struct options){
        .model = small_model(),
        .batch = 24,
        .seed = 11,
        .checkpoint = folder,
    };
}

static int save(struct team *team, const struct options *o, size_t step)
{
    struct checkpoint_info info = {step, 10, 77, 0};
    struct piece pieces[PIECES];
    struct state s;

    fill(&s, step);
    pieces_of(&s, team, false, pieces);
    return checkpoint_write(team, o, &info, pieces, PIECES);
}

/* Returns the step that was loaded; 0: no checkpoint; -1: an error. */
static int load(struct team *team, const struct options *o)
{
    struct checkpoint_info info;
    struct piece pieces[PIECES];
    struct checkpoint *c;
    struct state found, right;
    int st = checkpoint_open(team, o->checkpoint, &c, &info);

    if (st <= 0)
        return st;
    memset(&found, 0xee, sizeof(found));
    pieces_of(&found, team, true, pieces);
    st = checkpoint_read(team, c, pieces, PIECES);
    checkpoint_close(c);
    if (st != 0)
        return -1;
    fill(&right, info.step);
    if (memcmp(&found, &right, sizeof(right)) != 0)
        return 1000000; /* wrong data that was not noticed */
    return (int)info.step;
}

/* --- a folder ------------------------------------------------------------- */

enum { MOST_FILES = 16, FILE_ROOM = 32768 };

struct file {
    char name[80];
    size_t bytes;
    bool gone;
    unsigned char data[FILE_ROOM];
};

struct folder {
    char path[64];
    size_t count;
    struct file file[MOST_FILES];
};

/* Makes a folder on rank 0, and sends its name to all ranks. */
static int shared_folder(struct team *team, char *path, size_t room)
{
    memset(path, 0, room);
    if (team->rank == 0) {
        snprintf(path, room, "/tmp/shunt-checkpoint-XXXXXX");
        CHECK(mkdtemp(path), "no folder");
    }
    CHECK_TRAIN(team_broadcast(team, path, room, 0));
    return 0;
}

static void remove_folder(const struct team *team, const char *path)
{
    char command[160];

    if (team->rank != 0)
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name,
                  ((const struct file *)b)->name);
}

static int read_folder(struct folder *f, const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    memset(f, 0, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "%s", path);
    CHECK(dir, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir))) {
        char name[400];
        struct file *file = &f->file[f->count];
        if (entry->d_name[0] == '.')
            continue;
        CHECK(f->count < MOST_FILES, "too many files");
        snprintf(file->name, sizeof(file->name), "%.79s", entry->d_name);
        snprintf(name, sizeof(name), "%s/%s", path, file->name);
        FILE *from = fopen(name, "rb");
        CHECK(from, "%s: %s", name, strerror(errno));
        file->bytes = fread(file->data, 1, FILE_ROOM, from);
        fclose(from);
        CHECK(file->bytes < FILE_ROOM / 2, "%s is too long for this", name);
        f->count++;
    }
    closedir(dir);
    qsort(f->file, f->count, sizeof(f->file[0]), by_name);
    return 0;
}

static int write_one(const struct folder *f, const struct file *file)
{
    char name[400];

    snprintf(name, sizeof(name), "%s/%s", f->path, file->name);
    unlink(name);
    if (file->gone)
        return 0;
    FILE *to = fopen(name, "wb");
    CHECK(to && fwrite(file->data, 1, file->bytes, to) == file->bytes, "%s: %s",
          name, strerror(errno));
    fclose(to);
    return 0;
}

static bool same(const struct file *a, const struct file *b)
{
    return a->gone == b->gone && a->bytes == b->bytes &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

/* --- damage --------------------------------------------------------------- */

static uint64_t random_state;

static size_t below(size_t n) /* SplitMix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (size_t)((z ^ (z >> 31)) % n);
}

static const char *const kinds[] = {
    "a flipped bit", "flipped bytes", "a truncation",   "a deletion",
    "swapped files", "added bytes",   "a zeroed block", "a moved block",
    "removed bytes", "added zeros",   "an older file",  "a lost tail",
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void damage(struct folder *f, const struct folder *older, size_t kind)
{
    struct file *x = &f->file[below(f->count)];
    size_t at = x->bytes ? below(x->bytes) : 0, n, to;

    switch (kind) {
    case 0:
        if (x->bytes)
            x->data[at] ^= (unsigned char)(1u << below(8));
        break;
    case 1:
        for (n = 1 + below(9); x->bytes && n > 0; n--)
            x->data[below(x->bytes)] = (unsigned char)below(256);
        break;
    case 2:
        x->bytes = at;
        break;
    case 3:
        x->gone = true;
        break;
    case 4: {
        static struct file t;
        struct file *y = &f->file[below(f->count)];
        t = *x;
        x->bytes = y->bytes;
        memcpy(x->data, y->data, y->bytes);
        y->bytes = t.bytes;
        memcpy(y->data, t.data, t.bytes);
        break;
    }
    case 5:
        for (n = 1 + below(5000); n > 0; n--)
            x->data[x->bytes++] = (unsigned char)below(256);
        break;
    case 6:
        n = 1 + below(4096);
        memset(x->data + at, 0, n < x->bytes - at ? n : x->bytes - at);
        break;
    case 7: /* a block was written to a second place, too */
        n = 1 + below(512);
        to = x->bytes ? below(x->bytes) : 0;
        if (at + n <= x->bytes && to + n <= x->bytes)
            memmove(x->data + to, x->data + at, n);
        break;
    case 8:
        n = 1 + below(64);
        if (at + n <= x->bytes) {
            memmove(x->data + at, x->data + at + n, x->bytes - at - n);
            x->bytes -= n;
        }
        break;
    case 9:
        n = 1 + below(4096);
        memset(x->data + x->bytes, 0, n);
        x->bytes += n;
        break;
    case 10: { /* the data of the older checkpoint's file. The names of data
                  files differ by the step, that of the manifest does not */
        const struct file *y = &older->file[x - f->file];
        x->bytes = y->bytes;
        memcpy(x->data, y->data, y->bytes);
        break;
    }
    case 11: /* the last block was never written to the disk */
        n = 1 + below(512);
        if (n <= x->bytes)
            memset(x->data + x->bytes - n, 0, n);
        break;
    }
}

/* damages [COUNT [SEED]]: all ranks must notice each damage, and the text must
 * name a damaged file. Afterwards the undamaged checkpoint must be readable. */
static int damages(const struct rank *self)
{
    static struct folder whole, older, f; /* only on rank 0 */
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    int count = self->argc > 0 ? atoi(self->argv[0]) : 1000;
    char path[64];

    random_state = self->argc > 1 ? strtoull(self->argv[1], NULL, 10) : 1;
    CHECK_RUN(shared_folder(&team, path, sizeof(path)));
    struct options o = options_in(path);
    CHECK_TRAIN(save(&team, &o, 4));
    if (team.rank == 0)
        CHECK_RUN(read_folder(&older, path));
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK_TRAIN(save(&team, &o, 5));
    CHECK(load(&team, &o) == 5, "%s", train_error_text());
    if (team.rank == 0) {
        CHECK_RUN(read_folder(&whole, path));
        CHECK(whole.count == (size_t)team.size + 1 &&
                  older.count == whole.count,
              "%zu files, and %zu", older.count, whole.count);
    }
    for (int i = 0; i < count; i++) {
        size_t kind = below(KINDS);
        bool first = team.rank == 0, changed = !first;
        int named = 0;
        while (!changed) {
            f = whole;
            damage(&f, &older, kind);
            for (size_t k = 0; k < f.count; k++)
                changed |= !same(&f.file[k], &whole.file[k]);
            kind = changed ? kind : below(KINDS);
        }
        for (size_t k = 0; first && k < f.count; k++)
            if (!same(&f.file[k], &whole.file[k]))
                CHECK_RUN(write_one(&f, &f.file[k]));
        CHECK_OK(team.comm, shunt_barrier(team.comm));
        train_error("no error");
        int found = load(&team, &o);
        for (size_t k = 0; first && k < f.count; k++)
            if (!same(&f.file[k], &whole.file[k])) {
                named |= strstr(train_error_text(), f.file[k].name) != NULL;
                CHECK(found == -1,
                      "damage %d, %s in %s, was not noticed: loaded %d", i,
                      kinds[kind], f.file[k].name, found);
            }
        CHECK(found == -1, "damage %d was not noticed here: %d", i, found);
        CHECK(!first || named, "damage %d, %s: no damaged file is named: %s", i,
              kinds[kind], train_error_text());
        CHECK_OK(team.comm, shunt_barrier(team.comm));
        for (size_t k = 0; first && k < f.count; k++)
            if (!same(&f.file[k], &whole.file[k]))
                CHECK_RUN(write_one(&whole, &whole.file[k]));
    }
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK(load(&team, &o) == 5, "%s", train_error_text());
    rank_say("%d damages, %d noticed", count, count);
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    remove_folder(&team, path);
    return 0;
}

/* Data files without a manifest are an error. Temporary files of an interrupted
 * first checkpoint are not. */
static int no_manifest(const struct rank *self)
{
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    char path[64], name[400];

    CHECK_RUN(shared_folder(&team, path, sizeof(path)));
    struct options o = options_in(path);
    CHECK(load(&team, &o) == 0, "an empty folder: %s", train_error_text());
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    if (team.rank == 0) {
        snprintf(name, sizeof(name), "%s/step-00000003.rank-0-of-1.tmp", path);
        FILE *f = fopen(name, "wb");
        CHECK(f, "%s", strerror(errno));
        fclose(f);
    }
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK(load(&team, &o) == 0, "a temporary file: %s", train_error_text());
    CHECK_TRAIN(save(&team, &o, 3));
    snprintf(name, sizeof(name), "%s/checkpoint.json", path);
    if (team.rank == 0)
        CHECK(unlink(name) == 0, "%s", strerror(errno));
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK(load(&team, &o) == -1, "starts from scratch");
    CHECK(strstr(train_error_text(), path) &&
              strstr(train_error_text(), "checkpoint.json") &&
              strstr(train_error_text(), "step-00000003.rank-"),
          "%s", train_error_text());
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    /* A checkpoint of format 1 must be refused as an old format, not as
     * damaged. */
    if (team.rank == 0) {
        FILE *f = fopen(name, "wb");
        CHECK(f && fputs("{\"format\": 1}\n", f) >= 0 && fclose(f) == 0, "%s",
              strerror(errno));
    }
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK(load(&team, &o) == -1, "taken");
    CHECK(strstr(train_error_text(), "is of format 1, and"), "%s",
          train_error_text());
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    remove_folder(&team, path);
    return 0;
}

/* If writing fails after the data files, the previous checkpoint must stay. A
 * previous checkpoint of the same step must stay, too, since a repeated run
 * writes that step again. */
static int old_one_stays(const struct rank *self)
{
    static struct folder before, after; /* only on rank 0 */
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    char path[64], name[400];

    CHECK_RUN(shared_folder(&team, path, sizeof(path)));
    struct options o = options_in(path);
    CHECK_TRAIN(save(&team, &o, 5));
    if (team.rank == 0)
        CHECK_RUN(read_folder(&before, path));
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    /* A folder has the name of the manifest's temporary file, so that file
     * cannot be written. */
    snprintf(name, sizeof(name), "%s/checkpoint.json.tmp", path);
    if (team.rank == 0)
        CHECK(mkdir(name, 0777) == 0, "%s", strerror(errno));
    CHECK_OK(team.comm, shunt_barrier(team.comm));

    struct checkpoint_info info = {5, 10, 77, 0};
    struct piece pieces[PIECES];
    struct state s;
    fill(&s, 9); /* other data */
    pieces_of(&s, &team, false, pieces);
    for (int i = 0; i < 3; i++) {
        CHECK(checkpoint_write(&team, &o, &info, pieces, PIECES) == -1,
              "written without a manifest");
        CHECK(strstr(train_error_text(), "checkpoint.json"), "%s",
              train_error_text());
        CHECK(load(&team, &o) == 5, "the old one is gone: %s",
              train_error_text());
    }
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    if (team.rank == 0)
        CHECK(rmdir(name) == 0, "%s", strerror(errno));
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    /* A new checkpoint must leave no file of the old one, or of failed
     * attempts. */
    CHECK_TRAIN(save(&team, &o, 6));
    CHECK(load(&team, &o) == 6, "%s", train_error_text());
    if (team.rank == 0) {
        CHECK_RUN(read_folder(&after, path));
        CHECK(after.count == before.count, "%zu files, first %s", after.count,
              after.file[0].name);
    }
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    remove_folder(&team, path);
    return 0;
}

/* The manifest must not be written through a link. Otherwise the target would
 * be truncated before the new manifest is complete. */
static int link_is_refused(const struct rank *self)
{
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    char path[64], name[400], moved[400];

    CHECK_RUN(shared_folder(&team, path, sizeof(path)));
    struct options o = options_in(path);
    CHECK_TRAIN(save(&team, &o, 5));
    snprintf(name, sizeof(name), "%s/checkpoint.json", path);
    snprintf(moved, sizeof(moved), "%s/elsewhere", path);
    if (team.rank == 0)
        CHECK(rename(name, moved) == 0 && symlink("elsewhere", name) == 0, "%s",
              strerror(errno));
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    CHECK(load(&team, &o) == 5, "%s", train_error_text());
    CHECK(save(&team, &o, 6) == -1, "written through a link");
    CHECK(strstr(train_error_text(), "checkpoint.json"), "%s",
          train_error_text());
    CHECK(load(&team, &o) == 5, "%s", train_error_text());
    CHECK_OK(team.comm, shunt_barrier(team.comm));
    remove_folder(&team, path);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "damages", .run = damages, .no_threads = true},
    {.name = "no_manifest", .run = no_manifest},
    {.name = "old_one_stays", .run = old_one_stays, .no_threads = true},
    {.name = "link_is_refused", .run = link_is_refused},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
