/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: their sources, what is rejected, and what they prove. */
#include "fabric/auth/job_key.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

/* A temporary folder that is HOME. */
static int make_home(void **state)
{
    static char folder[] = "/tmp/twill-secret-XXXXXX";
    *state = mkdtemp(folder);
    return *state && setenv("HOME", folder, 1) == 0 ? 0 : -1;
}

static int remove_home(void **state)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/.twill/key", (char *)*state);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/.twill", (char *)*state);
    (void)rmdir(path);
    return rmdir(*state);
}

TWILL_TEST(texts)
{
    static const char *const wrong[] = {
        "",
        "0",
        "000",
        "xyz",
        "12 ",
        "-1",
        "12345678901234567890123456789012345678901234567890123456789012345"};
    struct twill_secret secret, again;
    struct twill_error error = {0};
    char text[TWILL_SECRET_TEXT];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        twill_error_clear(&error);
        assert_int_equal(twill_secret_parse(&secret, "NAME", wrong[i], &error), TWILL_ERR_CONFIG);
        assert_non_null(strstr(error.message, "NAME"));
        assert_true(strlen(wrong[i]) < 2 || !strstr(error.message, wrong[i]));
    }
    assert_int_equal(twill_secret_parse(&secret, "NAME", "C0ffee", &error), TWILL_OK);
    assert_true(secret.key[31] == 0xee && secret.key[29] == 0xc0 && secret.key[28] == 0);
    assert_int_equal(twill_secret_random(&secret, &error), TWILL_OK);
    twill_secret_text(&secret, text);
    assert_int_equal(strlen(text), TWILL_SECRET_TEXT - 1);
    assert_int_equal(twill_secret_parse(&again, "NAME", text, &error), TWILL_OK);
    assert_memory_equal(&secret, &again, sizeof(secret));
}

static void write_secret(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

TWILL_TEST(files)
{
    static const struct {
        const char *text;
        mode_t mode;
        const char *says; /* in the message; NULL: valid */
    } cases[] = {
        {"c0ffeec0ffeec0ffee\n", 0600, NULL},
        {"c0ffeec0ffeec0ffee", 0400, NULL},
        {"c0ffeec0ffeec0ffee\r\nmore\n", 0600, NULL},
        {"c0ffeec0ffeec0ffee\n", 0640, "mode 640"},
        {"c0ffeec0ffeec0ffee\n", 0602, "mode 602"},
        {"", 0600, "hex"},
        {"no key\n", 0600, "hex"},
        {"\n", 0600, "hex"},
        {"c0ffeec0ffee123\n", 0600, "15 hex digits, which others can guess"},
    };
    char path[64];
    struct twill_secret secret;
    struct twill_error error = {0};
    snprintf(path, sizeof(path), "%s/file", (char *)*state);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        write_secret(path, cases[i].text, cases[i].mode);
        twill_error_clear(&error);
        twill_status status = twill_secret_read(&secret, path, &error);
        assert_int_equal(status, cases[i].says ? TWILL_ERR_CONFIG : TWILL_OK);
        assert_true(!cases[i].says || strstr(error.message, cases[i].says));
        assert_true(!cases[i].says || strstr(error.message, path));
        assert_true(cases[i].says || secret.key[31] == 0xee);
    }
    if (geteuid() == 0) {
        write_secret(path, "c0ffeec0ffeec0ffee\n", 0600);
        assert_int_equal(chown(path, 12345, 0), 0);
        twill_error_clear(&error);
        assert_int_equal(twill_secret_read(&secret, path, &error), TWILL_ERR_CONFIG);
        assert_non_null(strstr(error.message, "belongs to user 12345"));
    }
    assert_int_equal(unlink(path), 0);
    twill_error_clear(&error);
    assert_int_equal(twill_secret_read(&secret, path, &error), TWILL_ERR_CONFIG);
    assert_int_not_equal(twill_secret_read(&secret, *state, &error), TWILL_OK);
}

struct maker {
    pthread_t thread;
    struct twill_secret secret;
    twill_status status;
};

static void *make_key(void *argument)
{
    struct maker *maker = argument;
    struct twill_error error = {0};
    char path[256];
    maker->status = twill_secret_of_user(&maker->secret, path, sizeof(path), &error);
    return NULL;
}

/* Concurrent processes get one key, which only the user can read, and leave no other file. */
TWILL_TEST(user_key)
{
    struct maker maker[8];
    struct stat about;
    char path[64];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(maker); i++)
        assert_int_equal(pthread_create(&maker[i].thread, NULL, make_key, &maker[i]), 0);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(maker); i++)
        assert_int_equal(pthread_join(maker[i].thread, NULL), 0);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(maker); i++) {
        assert_int_equal(maker[i].status, TWILL_OK);
        assert_memory_equal(&maker[i].secret, &maker[0].secret, sizeof(maker[0].secret));
    }
    snprintf(path, sizeof(path), "%s/.twill/key", (char *)*state);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    snprintf(path, sizeof(path), "%s/.twill", (char *)*state);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    assert_int_equal(about.st_nlink, 2);
}

/* The order of sources; a key derived from a file's differs from it. */
TWILL_TEST(order)
{
    char path[64], how[64];
    struct twill_secret given = {{7}}, found[6];
    struct twill_error error = {0};
    snprintf(path, sizeof(path), "%s/file", (char *)*state);
    write_secret(path, "c0ffeec0ffeec0ffee\n", 0600);
    const struct {
        struct twill_secret_sources sources;
        const char *how;
    } cases[] = {
        {{.job = "c0ffeec0ffeec0ffee", .file = path, .given = &given, .identity = "a"},
         "TWILL_JOB"},
        {{.job = "", .file = path, .given = &given, .identity = "a"}, path},
        {{.file = path, .identity = "b"}, path},
        {{.given = &given, .identity = "a"}, "the launcher"},
        {{.identity = "a"}, ".twill/key"},
        {{.identity = "b"}, ".twill/key"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(twill_secret_find(&found[i], &cases[i].sources, how, sizeof(how), &error),
                         TWILL_OK);
        assert_non_null(strstr(how, cases[i].how));
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&found[i], &found[j], sizeof(found[i]));
    }
    assert_int_equal(unlink(path), 0);
    /* No place for a key file: the message says what to do. */
    assert_int_equal(setenv("HOME", "/proc/nowhere", 1), 0);
    assert_int_equal(twill_secret_find(&found[0], &cases[5].sources, how, sizeof(how), &error),
                     TWILL_ERR_CONFIG);
    assert_non_null(strstr(error.message, "TWILL_KEY_FILE"));
    assert_int_equal(setenv("HOME", *state, 1), 0);
}

TWILL_TEST(proofs)
{
    struct twill_secret secret, other;
    struct twill_error error = {0};
    uint8_t proof[TWILL_PROOF_BYTES], again[TWILL_PROOF_BYTES];
    char data[40] = "data";
    assert_int_equal(twill_secret_random(&secret, &error), TWILL_OK);
    twill_secret_prove(&secret, "label", data, sizeof(data), proof);
    assert_true(twill_secret_check(&secret, "label", data, sizeof(data), proof));
    assert_false(twill_secret_check(&secret, "labe", data, sizeof(data), proof));
    assert_false(twill_secret_check(&secret, "label", data, sizeof(data) - 1, proof));
    for (size_t bit = 0; bit < 8 * sizeof(proof); bit++) {
        memcpy(again, proof, sizeof(again));
        again[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(twill_secret_check(&secret, "label", data, sizeof(data), again));
    }
    for (size_t bit = 0; bit < 8 * sizeof(other.key); bit++) {
        other = secret;
        other.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(twill_secret_check(&other, "label", data, sizeof(data), proof));
    }
    /* The end of the label cannot move into the data. */
    twill_secret_prove(&secret, "a", "bc", 2, proof);
    twill_secret_prove(&secret, "ab", "c", 1, again);
    assert_memory_not_equal(proof, again, sizeof(proof));
    twill_secret_wipe(&secret, sizeof(secret));
    for (size_t i = 0; i < sizeof(secret.key); i++)
        assert_int_equal(secret.key[i], 0);
}

TWILL_TEST_GROUP(make_home, remove_home)
