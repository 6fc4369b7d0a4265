/* SPDX-License-Identifier: Apache-2.0 */
/* ~/.twill/key: the key of a user whose launcher provides none. It is written to a temporary file
 * that is then linked to its name: readers see a complete file, and the first writer wins, also
 * over NFS. */
#include "fabric/auth/job_key.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static twill_status find_folder(char *folder, size_t bytes, struct twill_error *error)
{
    struct passwd entry, *found = NULL;
    char storage[2048];
    const char *home = getenv("HOME");
    if (!home || !*home) {
        int failed = getpwuid_r(geteuid(), &entry, storage, sizeof(storage), &found);
        home = failed == 0 && found ? found->pw_dir : NULL;
    }
    int length = home ? snprintf(folder, bytes, "%s/.twill", home) : -1;
    if (length < 0 || (size_t)length >= bytes - 64)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "no key for this job: TWILL_JOB and TWILL_KEY_FILE are not set, and HOME "
                          "is %s",
                          length < 0 ? "not known" : "too long");
    return TWILL_OK;
}

static bool write_key(const char *path, struct twill_error *error)
{
    struct twill_secret secret;
    char text[TWILL_SECRET_TEXT + 1];
    if (twill_secret_random(&secret, error) != TWILL_OK)
        return false;
    twill_secret_text(&secret, text);
    text[TWILL_SECRET_TEXT - 1] = '\n';
    int fd = twill_fd_move(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600),
                           TWILL_FD_LEAST);
    bool good =
        fd >= 0 && write(fd, text, TWILL_SECRET_TEXT) == TWILL_SECRET_TEXT && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    twill_secret_wipe(&secret, sizeof(secret));
    twill_secret_wipe(text, sizeof(text));
    errno = why;
    return good;
}

/* Create the file unless another process does at this time. */
static twill_status make_keyfile(const char *folder, const char *path, struct twill_error *error)
{
    char own[320];
    struct twill_secret nonce;
    uint32_t number;
    TWILL_TRY(error, twill_secret_random(&nonce, error));
    memcpy(&number, nonce.key, sizeof(number)); /* a process of another host may have our pid */
    snprintf(own, sizeof(own), "%s.%ld-%08x", path, (long)getpid(), number);
    bool good = (mkdir(folder, 0700) == 0 || errno == EEXIST) && write_key(own, error) &&
                (link(own, path) == 0 || errno == EEXIST);
    int why = errno;
    (void)unlink(own);
    if (!good)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "no key for this job: TWILL_JOB and TWILL_KEY_FILE are not set, and "
                          "%.200s cannot be created: %s",
                          path, strerror(why));
    return TWILL_OK;
}

twill_status twill_secret_of_user(struct twill_secret *secret, char *path, size_t path_bytes,
                                  struct twill_error *error)
{
    char folder[256], whole[272];
    TWILL_TRY(error, find_folder(folder, sizeof(folder), error));
    snprintf(whole, sizeof(whole), "%s/key", folder);
    snprintf(path, path_bytes, "%s", whole);
    if (access(whole, F_OK) != 0 && errno == ENOENT)
        TWILL_TRY(error, make_keyfile(folder, whole, error));
    return twill_secret_read(secret, whole, error);
}
