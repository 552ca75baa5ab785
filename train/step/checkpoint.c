// SPDX-License-Identifier: Apache-2.0
/* Writing and reading checkpoints; see checkpoint.h for their form. */
#include "train/step/checkpoint.h"

#include "train/base/error.h"
#include "train/base/files.h"
#include "train/step/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- writing -------------------------------------------------------------- */

static int write_pieces(const struct options *o, const char *file,
                        const struct piece *pieces, size_t count,
                        struct record *records)
{
    char path[4096];
    struct new_file f;
    uint64_t at = 0;

    snprintf(path, sizeof(path), "%s/%s", o->checkpoint, file);
    if (new_file_open(&f, path))
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = &pieces[i];
        struct record *r = &records[i];
        snprintf(r->name, sizeof(r->name), "%s", p->name);
        snprintf(r->file, sizeof(r->file), "%s", file);
        r->begin = p->begin;
        r->count = p->count;
        r->at = at;
        r->sum = checksum(p->data, p->count * sizeof(float));
        at += p->count * sizeof(float);
        /* new_file_commit() checks for errors */
        fwrite(p->data, sizeof(float), p->count, f.stream);
    }
    return new_file_commit(&f);
}

/* Write the manifest from the records of all ranks, `count` records of each
 * rank. */
static int write_manifest(const struct options *o,
                          const struct checkpoint_info *info,
                          struct record *records, size_t count, int ranks)
{
    struct manifest m = {.info = *info,
                         .files = (size_t)ranks,
                         .records = count * (size_t)ranks,
                         .record = records};
    struct new_file f;
    char path[4200];

    m.info.ranks = (size_t)ranks;
    m.file = calloc(m.files, sizeof(*m.file));
    m.setting = calloc(options_settings(o, NULL), sizeof(*m.setting));
    if (!m.file || !m.setting) {
        free(m.file);
        free(m.setting);
        return train_error("out of memory");
    }
    m.settings = options_settings(o, m.setting);
    for (size_t i = 0; i < m.files; i++) {
        const struct record *last = &records[(i + 1) * count - 1];
        memcpy(m.file[i].name, last->file, sizeof(last->file));
        m.file[i].bytes = last->at + last->count * sizeof(float);
    }
    char *text = manifest_print(&m);
    free(m.file);
    free(m.setting);
    if (!text)
        return -1;
    snprintf(path, sizeof(path), "%s/" MANIFEST, o->checkpoint);
    int st = new_file_open(&f, path);
    if (st == 0) {
        fputs(text, f.stream);
        st = new_file_commit(&f);
    }
    free(text);
    return st;
}

/* Is this the name of a data file? *temporary: whether the name is that of an
 * incomplete file. */
static bool is_data_file(const char *name, bool *temporary)
{
    size_t length = strlen(name);

    *temporary = length > 4 && strcmp(name + length - 4, ".tmp") == 0;
    return strncmp(name, "step-", 5) == 0 && strstr(name, ".rank-");
}

/* Choose the prefix of the new checkpoint's data files. The prefix must not be
 * in use: a repeated run may write a checkpoint of the same step. Then the old
 * files must stay until the new files are complete. */
static int choose_prefix(const struct options *o, size_t step, char *prefix,
                         size_t room)
{
    snprintf(prefix, room, "step-%08zu.", step);
    for (int attempt = 2; attempt < 10000; attempt++) {
        DIR *dir = opendir(o->checkpoint);
        struct dirent *entry;
        bool taken = false, temporary;

        if (!dir)
            return train_error("cannot read the folder %s: %s", o->checkpoint,
                               strerror(errno));
        while ((entry = readdir(dir)))
            taken |= is_data_file(entry->d_name, &temporary) && !temporary &&
                     strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
        closedir(dir);
        if (!taken)
            return 0;
        snprintf(prefix, room, "step-%08zu-%d.", step, attempt);
    }
    return train_error("too many files of step %zu in %s", step, o->checkpoint);
}

/* Remove files of older checkpoints, and those of interrupted writes. */
static void remove_others(const struct options *o, const char *prefix)
{
    char path[4400];
    DIR *dir = opendir(o->checkpoint);
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        bool temporary;
        if (!is_data_file(entry->d_name, &temporary) ||
            (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && !temporary))
            continue;
        snprintf(path, sizeof(path), "%s/%s", o->checkpoint, entry->d_name);
        unlink(path);
    }
    closedir(dir);
}

int checkpoint_folder(struct team *team, const char *folder)
{
    int st = team->rank == 0 ? make_folder(folder) : 0;

    if (team_agree(team, st == 0, "checkpoint"))
        return -1;
    if (access(folder, W_OK | X_OK) != 0)
        st = train_error("cannot write to the folder %s: %s", folder,
                         strerror(errno));
    return team_agree(team, st == 0, "checkpoint");
}

/* Rank 0 makes the folder and chooses the names of data files, for all
 * ranks. */
static int begin_writing(struct team *team, const struct options *o,
                         size_t step, char *prefix, size_t room)
{
    char path[4200];
    int st = 0;

    memset(prefix, 0, room);
    snprintf(path, sizeof(path), "%s/" MANIFEST, o->checkpoint);
    if (team->rank == 0) {
        st = make_folder(o->checkpoint);
        /* new_file_open() would write through a link, to the old file. */
        if (st == 0 && !is_plain_file(path))
            st = train_error("%s is not a regular file; a checkpoint cannot "
                             "take its place",
                             path);
        if (st == 0)
            st = choose_prefix(o, step, prefix, room);
    }
    st = team_agree(team, st == 0, "checkpoint");
    return st ? st : team_broadcast(team, prefix, room, 0);
}

int checkpoint_write(struct team *team, const struct options *o,
                     const struct checkpoint_info *info,
                     const struct piece *pieces, size_t count)
{
    size_t most = count * (size_t)team->size;
    struct record *own = calloc(count, sizeof(*own));
    struct record *all = calloc(most, sizeof(*all));
    char prefix[40], file[FILE_NAME];
    int st = own && all ? 0 : train_error("out of memory");

    st = team_agree(team, st == 0, "checkpoint");
    if (st == 0)
        st = begin_writing(team, o, info->step, prefix, sizeof(prefix));
    if (st == 0) {
        snprintf(file, sizeof(file), "%.39srank-%d-of-%d", prefix, team->rank,
                 team->size);
        st = team_agree(team, write_pieces(o, file, pieces, count, own) == 0,
                        "checkpoint");
    }
    /* All ranks have the same number of pieces: see trainer_state.c. */
    if (st == 0)
        st = team_gather(team, own, all, count * sizeof(*own));
    if (st == 0) {
        bool written = team->rank != 0 ||
                       write_manifest(o, info, all, count, team->size) == 0;
        st = team_agree(team, written, "checkpoint");
    }
    if (st == 0 && team->rank == 0)
        remove_others(o, prefix);
    free(own);
    free(all);
    return st;
}

/* --- reading -------------------------------------------------------------- */

struct checkpoint {
    char folder[4096];
    struct manifest manifest;
};

/* Data files without a manifest are the rest of a checkpoint. A new run would
 * replace them at its end, so it is refused. */
static int no_data_files(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int st = 0;

    if (!dir && errno != ENOENT)
        return train_error("cannot read the folder %s: %s", folder,
                           strerror(errno));
    while (dir && st == 0 && (entry = readdir(dir))) {
        bool temporary;
        if (is_data_file(entry->d_name, &temporary) && !temporary)
            st = train_error("%s has files of a checkpoint (%s) but no "
                             "%s: bring that back, or remove the others to "
                             "start anew",
                             folder, entry->d_name, MANIFEST);
    }
    if (dir)
        closedir(dir);
    return st;
}

/* Check that every file has the length that was written. */
static int check_lengths(const struct checkpoint *c)
{
    for (size_t i = 0; i < c->manifest.files; i++) {
        const struct data_file *f = &c->manifest.file[i];
        char path[4200];
        struct stat there;
        snprintf(path, sizeof(path), "%s/%s", c->folder, f->name);
        if (stat(path, &there) != 0)
            return train_error("cannot read %s, which " MANIFEST " names: %s",
                               path, strerror(errno));
        if ((uint64_t)there.st_size != f->bytes)
            return train_error("%s is damaged: it has %lld bytes, not %llu",
                               path, (long long)there.st_size,
                               (unsigned long long)f->bytes);
    }
    return 0;
}

int checkpoint_open(struct team *team, const char *folder,
                    struct checkpoint **checkpoint,
                    struct checkpoint_info *info)
{
    struct checkpoint *c = calloc(1, sizeof(*c));
    char path[4200], *text = NULL;
    int missing = 0, st = c ? 0 : train_error("out of memory");
    size_t bytes = 0;
    uint64_t length = 0; /* with '\0'; 0: no checkpoint */

    /* Rank 0 reads the manifest and sends it, so that all ranks use the same
     * one. */
    snprintf(path, sizeof(path), "%s/" MANIFEST, folder);
    if (st == 0 && team->rank == 0) {
        text = read_text(path, &bytes, &missing);
        length = text ? bytes + 1 : 0;
        if (!text)
            st = missing ? no_data_files(folder) : -1;
    }
    st = team_agree(team, st == 0, "resuming");
    if (st == 0)
        st = team_broadcast(team, &length, sizeof(length), 0);
    if (st == 0 && length) {
        if (team->rank != 0)
            text = malloc(length);
        st = team_agree(team, text != NULL, "resuming");
        if (st == 0)
            st = team_broadcast(team, text, length, 0);
        if (st == 0) {
            snprintf(c->folder, sizeof(c->folder), "%s", folder);
            st = manifest_parse(&c->manifest, path, text, length - 1);
            if (st == 0)
                st = check_lengths(c);
            st = team_agree(team, st == 0, "resuming");
        }
    }
    free(text);
    if (st != 0 || !length) {
        checkpoint_close(c);
        return st;
    }
    *info = c->manifest.info;
    *checkpoint = c;
    return 1;
}

int checkpoint_settings(const struct checkpoint *c, struct options *o,
                        char *changes, size_t room, bool *fits)
{
    size_t at = 0;

    changes[0] = '\0';
    *fits = true;
    if (c->manifest.settings != options_settings(o, NULL))
        return train_error("%s/" MANIFEST " has %zu settings, and this "
                           "shunt-train %zu: go on with the one that wrote it, "
                           "or start anew in another folder",
                           c->folder, c->manifest.settings,
                           options_settings(o, NULL));
    for (size_t i = 0; i < c->manifest.settings; i++) {
        const struct setting *s = &c->manifest.setting[i];
        struct setting own;
        enum options_adopted adopted = options_adopt(o, s, &own);
        if (adopted == ADOPT_UNKNOWN)
            return train_error("%s/" MANIFEST " has a setting that is not "
                               "known here: %s %s",
                               c->folder, s->name, s->value);
        if (adopted != ADOPT_SAME && at < room)
            at +=
                (size_t)snprintf(changes + at, room - at, "%s--%s %s, not %s",
                                 at ? "; " : "", s->name, s->value, own.value);
        *fits &= adopted != ADOPT_OTHER_SHAPE;
    }
    return 0;
}

size_t checkpoint_ranks(const struct checkpoint *c)
{
    return c->manifest.info.ranks;
}

bool checkpoint_has(const struct checkpoint *c, const char *name)
{
    for (size_t i = 0; i < c->manifest.records; i++)
        if (strcmp(c->manifest.record[i].name, name) == 0)
            return true;
    return false;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    manifest_free(&c->manifest);
    free(c);
}

/* Read the part of a record that overlaps `p`, if any. The whole record is
 * read, for its checksum. Every byte of every file is in a record that some
 * rank reads, so damage anywhere is noticed. */
static int read_record(const struct checkpoint *c, const struct record *r,
                       const struct piece *p, size_t *filled)
{
    uint64_t begin = r->begin > p->begin ? r->begin : p->begin;
    uint64_t end = r->begin + r->count, p_end = p->begin + p->count;
    char path[4200];

    end = end < p_end ? end : p_end;
    if (strcmp(r->name, p->name) != 0 || begin >= end)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", c->folder, r->file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return train_error("cannot read %s: %s", path, strerror(errno));
    size_t bytes = r->count * sizeof(float), got = 0;
    float *all = malloc(bytes);
    while (all && got < bytes) {
        ssize_t n =
            pread(fd, (char *)all + got, bytes - got, (off_t)(r->at + got));
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    int st = 0;
    if (!all)
        st = train_error("out of memory");
    else if (got < bytes || checksum(all, bytes) != r->sum)
        st = train_error("%s is damaged: its checksum is wrong", path);
    else
        memcpy(p->data + (begin - p->begin), all + (begin - r->begin),
               (end - begin) * sizeof(float));
    free(all);
    *filled += end - begin;
    return st;
}

int checkpoint_read(struct team *team, struct checkpoint *c,
                    const struct piece *pieces, size_t count)
{
    int st = 0;

    for (size_t i = 0; i < count && st == 0; i++) {
        size_t filled = 0;
        for (size_t j = 0; j < c->manifest.records && st == 0; j++)
            st = read_record(c, &c->manifest.record[j], &pieces[i], &filled);
        if (st == 0 && filled != pieces[i].count)
            st = train_error("the checkpoint has %zu of %zu elements of %s",
                             filled, pieces[i].count, pieces[i].name);
    }
    return team_agree(team, st == 0, "resuming");
}
