// SPDX-License-Identifier: Apache-2.0
/* Finds and loads the module of --comm mpi. */
#include "train/base/mpi_calls.h"

#include "train/base/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/train_config.h"

/* Find the module: in the folder of this program, for a build; where it was
 * installed; or relative to this program, if the installation was moved. */
static void find(char *path, size_t room)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(path, room, "%s/" TRAIN_MODULE_FILE, self);
    if (access(path, R_OK) != 0)
        snprintf(path, room, "%s/" TRAIN_MODULE_FILE, TRAIN_MODULE_DIR);
    if (access(path, R_OK) != 0)
        snprintf(path, room, "%s/../" TRAIN_MODULE_LIBDIR "/" TRAIN_MODULE_FILE,
                 self);
}

const struct mpi_calls *mpi_load(void)
{
    char path[PATH_MAX + 256];
    const struct mpi_calls *calls;
    void *handle;

    find(path, sizeof(path));
    if (access(path, R_OK) != 0) {
        train_error("--comm mpi: this shunt-train was built without MPI; "
                    "install Open MPI or MPICH (libopenmpi-dev, libmpich-dev) "
                    "and build with -Dmpi=enabled");
        return NULL;
    }
    /* RTLD_GLOBAL, because MPI loads components that need its symbols. */
    handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    calls = handle ? dlsym(handle, "train_mpi_calls") : NULL;
    if (!handle)
        train_error("--comm mpi: %s", dlerror());
    else if (!calls || calls->abi != MPI_CALLS_ABI)
        train_error("--comm mpi: %s is not of this shunt-train; install it "
                    "again",
                    path);
    return calls && calls->abi == MPI_CALLS_ABI ? calls : NULL;
}
