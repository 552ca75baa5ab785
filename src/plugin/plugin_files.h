// SPDX-License-Identifier: Apache-2.0
/*
 * The files of plugins: where they are, and facts about a plugin that can be
 * read without loading it.
 */
#ifndef SHUNTI_PLUGIN_FILES_H
#define SHUNTI_PLUGIN_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/plugin/plugin.h"

#define SHUNTI_PLUGIN_PREFIX "shunt_"
#define SHUNTI_PLUGIN_SUFFIX ".so"
#define SHUNTI_PLUGIN_FOLDERS_MAX 16
#define SHUNTI_PLUGIN_FILE_MAX (PATH_MAX + SHUNTI_TRANSPORT_NAME_MAX + 16)

struct shunti_plugin_folders {
    char path[SHUNTI_PLUGIN_FOLDERS_MAX][PATH_MAX];
    size_t count;
};

/* The folders to search, in this order (plugin.h). The caller frees the result.
 * NULL: memory ran out. */
struct shunti_plugin_folders *shunti_plugin_find_folders(void);

/* Can this be the name of a plugin? */
bool shunti_plugin_name_is_valid(const char *name);

/* Find the file of `name` in the first folder that has one. False: `why` lists
 * the folders that were searched. */
bool shunti_plugin_locate(const char *name, char *path, size_t len, char *why,
                          size_t why_len);

/* Does the file hold SHUNT_TRANSPORT_FAR_MARK and a score? If so, sets `*score`
 * (NULL: not wanted). False if the file cannot be read; loading it then gives
 * the reason. */
bool shunti_plugin_file_is_far(const char *path, int *score);

#endif
