/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a job, and ~/.twill/key. Only this file and seal.c use libsodium. */
#include "fabric/auth/job_key.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(TWILL_SECRET_BYTES == crypto_auth_hmacsha256_KEYBYTES, "size of a key");
_Static_assert(TWILL_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "size of a proof");

/* Return whether all bytes of a key are 0, which is not allowed as a key. */
static bool is_zero(const struct twill_secret *secret)
{
    return sodium_is_zero(secret->key, sizeof(secret->key)) != 0;
}

twill_status twill_secret_parse(struct twill_secret *secret, const char *name, const char *text,
                                struct twill_error *error)
{
    size_t digits = strlen(text);
    memset(secret, 0, sizeof(*secret));
    if (digits == 0 || digits > 2 * TWILL_SECRET_BYTES ||
        strspn(text, "0123456789abcdefABCDEF") != digits)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s must have 1 to %d hex digits", name,
                          2 * TWILL_SECRET_BYTES);
    for (size_t i = 0; i < digits; i++) {
        char c = text[digits - 1 - i];
        unsigned value = (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        secret->key[TWILL_SECRET_BYTES - 1 - i / 2] |= (uint8_t)(value << (i % 2 ? 4 : 0));
    }
    if (is_zero(secret))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s must not be zero", name);
    return TWILL_OK;
}

void twill_secret_text(const struct twill_secret *secret, char text[TWILL_SECRET_TEXT])
{
    (void)twill_hex_text(secret->key, sizeof(secret->key), text);
}

char *twill_hex_text(const uint8_t *bytes, size_t count, char *text)
{
    return sodium_bin2hex(text, 2 * count + 1, bytes, count);
}

/* Return TWILL_ERR_CONFIG if the digits `text` of a user's key are fewer than TWILL_SECRET_LEAST,
 * as it could be guessed. The message calls them `name`. */
static twill_status check_length(const char *name, const char *text, struct twill_error *error)
{
    size_t digits = strlen(text);
    if (digits < TWILL_SECRET_LEAST)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "%s has %zu hex digits, which others can guess: it needs %d or more",
                          name, digits, TWILL_SECRET_LEAST);
    return TWILL_OK;
}

/* Return TWILL_ERR_CONFIG unless `fd` is a regular file of this user, to which no other user has
 * access. `path` is for the message. Returns TWILL_ERR_SYSTEM if fstat() fails. */
static twill_status check_file(int fd, const char *path, struct twill_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "%.200s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%.200s is not a file", path);
    if (about.st_uid != geteuid())
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%.200s belongs to user %u, not to user %u",
                          path, (unsigned)about.st_uid, (unsigned)geteuid());
    if ((about.st_mode & 077) != 0)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "%.200s has mode %03o: others must have no access (chmod 600)", path,
                          (unsigned)about.st_mode & 0777);
    return TWILL_OK;
}

twill_status twill_secret_read(struct twill_secret *secret, const char *path,
                               struct twill_error *error)
{
    char text[TWILL_SECRET_TEXT + 2] = ""; /* a line end, and one byte more to detect excess */
    char name[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return TWILL_FAIL(error, errno == ENOENT ? TWILL_ERR_CONFIG : TWILL_ERR_SYSTEM,
                          "key file %.200s: %s", path, strerror(errno));
    twill_status status = check_file(fd, path, error);
    ssize_t n = status == TWILL_OK ? read(fd, text, sizeof(text) - 1) : 0;
    close(fd);
    TWILL_TRY(error, status);
    if (n < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "key file %.200s: %s", path, strerror(errno));
    text[strcspn(text, "\r\n")] = '\0';
    snprintf(name, sizeof(name), "what is in %.200s", path);
    status = twill_secret_parse(secret, name, text, error);
    if (status == TWILL_OK)
        status = check_length(name, text, error);
    sodium_memzero(text, sizeof(text));
    return status;
}

twill_status twill_secret_random(struct twill_secret *secret, struct twill_error *error)
{
    do {
        if (!twill_random(secret->key, sizeof(secret->key)))
            return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "getrandom for a key: %s", strerror(errno));
    } while (is_zero(secret));
    return TWILL_OK;
}

/* Replace a file's key, which serves many jobs, by one derived from it for the job `identity`. */
static void make_own(struct twill_secret *secret, const char *identity)
{
    const char *text = identity ? identity : "";
    twill_secret_derive(secret, "job", text, strlen(text), secret);
}

twill_status twill_secret_find(struct twill_secret *secret,
                               const struct twill_secret_sources *sources, char *how,
                               size_t how_bytes, struct twill_error *error)
{
    char path[256];
    if (sodium_init() < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "libsodium: sodium_init failed");
    if (twill_is_set(sources->job)) {
        snprintf(how, how_bytes, "TWILL_JOB");
        TWILL_TRY(error, twill_secret_parse(secret, "TWILL_JOB", sources->job, error));
        return check_length("TWILL_JOB", sources->job, error);
    }
    if (!twill_is_set(sources->file) && sources->given) {
        snprintf(how, how_bytes, "the launcher");
        *secret = *sources->given;
        return TWILL_OK;
    }
    if (twill_is_set(sources->file))
        snprintf(path, sizeof(path), "%s", sources->file);
    twill_status status = twill_is_set(sources->file)
                              ? twill_secret_read(secret, sources->file, error)
                              : twill_secret_of_user(secret, path, sizeof(path), error);
    if (status != TWILL_OK && twill_is_set(sources->file))
        twill_error_prefix(error, "TWILL_KEY_FILE: ");
    TWILL_TRY(error, status);
    snprintf(how, how_bytes, "%s", path);
    make_own(secret, sources->identity);
    return TWILL_OK;
}

/* Separate the label from the data by the label's terminating zero. */
void twill_secret_prove(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, uint8_t proof[TWILL_PROOF_BYTES])
{
    crypto_auth_hmacsha256_state state;
    (void)crypto_auth_hmacsha256_init(&state, secret->key, sizeof(secret->key));
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, strlen(label) + 1);
    (void)crypto_auth_hmacsha256_update(&state, data, bytes);
    (void)crypto_auth_hmacsha256_final(&state, proof);
    sodium_memzero(&state, sizeof(state));
}

bool twill_secret_check(const struct twill_secret *secret, const char *label, const void *data,
                        size_t bytes, const uint8_t proof[TWILL_PROOF_BYTES])
{
    uint8_t right[TWILL_PROOF_BYTES];
    twill_secret_prove(secret, label, data, bytes, right);
    bool same = sodium_memcmp(right, proof, sizeof(right)) == 0;
    sodium_memzero(right, sizeof(right));
    return same;
}

void twill_secret_derive(const struct twill_secret *secret, const char *label, const void *data,
                         size_t bytes, struct twill_secret *derived)
{
    uint8_t key[TWILL_PROOF_BYTES];
    twill_secret_prove(secret, label, data, bytes, key);
    memcpy(derived->key, key, sizeof(derived->key));
    sodium_memzero(key, sizeof(key));
}

void twill_secret_digest(const void *data, size_t bytes, uint8_t digest[TWILL_DIGEST_BYTES])
{
    (void)crypto_generichash(digest, TWILL_DIGEST_BYTES, data, bytes, NULL, 0);
}

void twill_secret_wipe(void *secret, size_t bytes)
{
    sodium_memzero(secret, bytes);
}

/* ~/.twill/key is the key of users whose launcher provides none. It is written to a temporary file,
 * then linked to its name, so that readers see all of it and the first writer wins, also on NFS. */

/* Write the path of the folder .twill in the directory HOME or, if that is not set, in the home
 * directory that the password database has for this user. Leaves 64 of the `bytes` for a file's
 * name. Returns TWILL_ERR_CONFIG if neither directory is known or the path is too long. */
static twill_status find_folder(char *folder, size_t bytes, struct twill_error *error)
{
    struct passwd entry, *found = NULL;
    char storage[2048];
    const char *home = getenv("HOME");
    if (!twill_is_set(home)) {
        int failed = getpwuid_r(geteuid(), &entry, storage, sizeof(storage), &found);
        home = failed == 0 && found ? found->pw_dir : NULL;
    }
    int length = home ? snprintf(folder, bytes, "%s/.twill", home) : -1;
    if (length < 0 || (size_t)length >= bytes - 64)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "no key for this job: TWILL_JOB and TWILL_KEY_FILE are not set, and HOME "
                          "is %s: set TWILL_KEY_FILE",
                          length < 0 ? "not known" : "too long");
    return TWILL_OK;
}

/* Write a random key to a new file, which only this user may read and write. Returns false on
 * failure, also if the file exists already, with errno or `error` set. */
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

/* Create the folder, if it does not exist, and the file `path` with a random key. If another
 * process creates the file meanwhile, that file stays. Returns TWILL_OK, TWILL_ERR_CONFIG if they
 * cannot be created, or the error of drawing random numbers. */
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
                          "%.200s cannot be created: %s; set TWILL_KEY_FILE",
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
