/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a server's chunks in a file, that is, a head, a description and the record (state.h)
 * of each chunk, and a CRC32C of all this. It is written under another name, synced and renamed, so
 * that a crash leaves the old file or the new one. Only modes that add gradients need their sum. */
#include "lib/server/state/state.h"

#include "kernels/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_MAGIC UINT64_C(0x3330767265737774) /* "twserv03" */
#define STATE_NAME  256u

/* Head of a file, as it is in memory. `chunks` is the number of records that follow. */
struct state_head {
    uint64_t magic, chunks, chunk_bytes;
};

/* Description of a chunk, as it is in memory, before the chunk's record in a file. */
struct state_chunk {
    char name[STATE_NAME];            /* of the tensor, truncated */
    uint64_t name_bytes, name_hash;   /* distinguish it from names that begin alike */
    uint64_t first, count;            /* range of the tensor's elements */
    uint64_t sum_bytes, record_bytes; /* of the record's last part, the sum, and of the rest */
    uint32_t type, states;            /* states of the optimizer, and its rule + 1 from bit 8 on */
};

/* A file that is being written or read by one call, with the CRC of the bytes so far. A local
 * variable of the call, which opens and closes the file. */
struct state_stream {
    struct twill_server *server;
    FILE *file;
    const char *path;
    uint32_t crc;
};

/* Add bytes to s->crc, the CRC of a file so far, and return its new value. */
static uint32_t add_crc(struct state_stream *s, const void *data, size_t bytes)
{
    s->crc = s->server->process.kernels->crc32c(s->crc, data, bytes);
    return s->crc;
}

/* Set *chunk to a chunk's description, which is equal only for equal tensors, cuts and rules. */
static void describe_chunk(const struct twill_server *server, const struct twill_chunk_place *place,
                           struct state_chunk *chunk)
{
    const struct twill_server_key *key = &server->key[place->key];
    memset(chunk, 0, sizeof(*chunk));
    strncpy(chunk->name, key->name, STATE_NAME - 1);
    chunk->first = place->first;
    chunk->count = place->count;
    chunk->name_bytes = strlen(key->name);
    chunk->name_hash = twill_hash_text(0, key->name);
    chunk->sum_bytes = twill_server_adds(server) ? twill_record_sum_bytes(place) : 0;
    chunk->record_bytes = twill_record_bytes(server, place) - chunk->sum_bytes;
    chunk->type = (uint32_t)key->type;
    chunk->states = server->rule.states;
    if (server->rule.has_optimizer)
        chunk->states |= ((uint32_t)server->rule.optimizer.rule + 1) << 8;
}

/* Write bytes to a file and add them to its CRC. Returns whether all were written. */
static bool write_all(struct state_stream *s, const void *data, size_t bytes)
{
    (void)add_crc(s, data, bytes);
    return fwrite(data, 1, bytes, s->file) == bytes;
}

/* Write head, chunks and CRC to a file. Returns false if out of memory or a write failed. */
static bool write_chunks(struct state_stream *s)
{
    struct twill_server *server = s->server;
    struct state_head head = {STATE_MAGIC, 0, server->cut.chunk_bytes};
    bool good;
    for (uint32_t t = 0; t < server->roles.threads; t++)
        head.chunks += server->shard[t].chunks;
    good = write_all(s, &head, sizeof(head));
    for (uint32_t t = 0; t < server->roles.threads && good; t++)
        for (uint32_t i = 0; i < server->shard[t].chunks && good; i++) {
            const struct twill_chunk *chunk = &server->shard[t].chunk[i];
            size_t bytes = twill_record_bytes(server, chunk->place);
            struct state_chunk about;
            describe_chunk(server, chunk->place, &about);
            unsigned char *record = malloc(bytes);
            if (record == NULL)
                return false;
            twill_record_write(server, chunk, record);
            good = write_all(s, &about, sizeof(about)) && write_all(s, record, bytes);
            free(record);
        }
    uint32_t crc = s->crc;
    return good && fwrite(&crc, 1, sizeof(crc), s->file) == sizeof(crc);
}

/* Sync the folder of a file, so that its new name is kept. Returns false on failure. */
static bool sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *end = strrchr(path, '/');
    if (end == NULL)
        snprintf(folder, sizeof(folder), ".");
    else
        snprintf(folder, sizeof(folder), "%.*s", (int)(end - path + 1), path);
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = descriptor >= 0 && fsync(descriptor) == 0;
    if (descriptor >= 0)
        close(descriptor);
    return good;
}

/* Write all chunks here to PATH.new, sync it and rename it to `path`. Returns TWILL_OK or, with a
 * message, TWILL_ERR_SYSTEM if that fails or TWILL_ERR_ARGUMENT if the path is too long. */
static twill_status write_file(struct twill_server *server, const char *path)
{
    char beside[PATH_MAX];
    struct state_stream s = {.server = server, .path = path};
    if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
        return TWILL_SERVER_REFUSE(server, "twill_server_save: the path is too long");
    int descriptor = twill_fd_move(
        open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600), TWILL_FD_LEAST);
    s.file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (s.file == NULL) {
        (void)TWILL_SERVER_REFUSE(server, "twill_server_save: %s: %s", beside, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return TWILL_ERR_SYSTEM;
    }
    bool good = write_chunks(&s);
    good = fflush(s.file) == 0 && good;
    good = fsync(descriptor) == 0 && good;
    good = fclose(s.file) == 0 && good;
    good = good && rename(beside, path) == 0 && sync_folder(path);
    if (good)
        return TWILL_OK;
    (void)TWILL_SERVER_REFUSE(server, "twill_server_save: %s: %s", path, strerror(errno));
    (void)unlink(beside);
    return TWILL_ERR_SYSTEM;
}

twill_status twill_server_save(twill_server *server, const char *path)
{
    char own[PATH_MAX];
    if (server == NULL || path == NULL)
        return TWILL_ERR_ARGUMENT;
    if (!server->committed || !twill_server_serves(server))
        return TWILL_SERVER_REFUSE(server, "twill_server_save: this rank has no chunks");
    if (snprintf(own, sizeof(own), "%s.%u", path, server->rank) >= (int)sizeof(own))
        return TWILL_SERVER_REFUSE(server, "twill_server_save: the path is too long");
    TWILL_TRY(NULL, twill_shards_lock(server, "twill_server_save"));
    twill_status status = write_file(server, own);
    twill_shards_unlock(server);
    return status;
}

/* Refuse a file with its name and `why`. Returns TWILL_ERR_ARGUMENT. */
static twill_status bad_file(const struct state_stream *s, const char *why)
{
    (void)TWILL_SERVER_REFUSE(s->server, "twill_server_load: %s: %s", s->path, why);
    return TWILL_ERR_ARGUMENT;
}

/* Read bytes and add them to the CRC. Returns false if there are fewer. */
static bool read_all(struct state_stream *s, void *data, size_t bytes)
{
    if (fread(data, 1, bytes, s->file) != bytes)
        return false;
    (void)add_crc(s, data, bytes);
    return true;
}

/* Return the index in cut.place of the chunk that a file describes. It has the same tensor, range,
 * type and optimizer, but need not have a sum. Returns UINT32_MAX if there is none. Searches from
 * index `from` on and then from 0, as files have chunks in this order. */
static uint32_t find_place(const struct twill_server *server, const struct state_chunk *chunk,
                           uint32_t from)
{
    for (uint32_t n = 0; n < server->cut.places; n++) {
        struct state_chunk own;
        uint32_t i = (uint32_t)(((uint64_t)from + n) % server->cut.places);
        describe_chunk(server, &server->cut.place[i], &own);
        own.sum_bytes = chunk->sum_bytes;
        if (memcmp(&own, chunk, sizeof(own)) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* Read the record of a chunk into server->past.held. A missing sum becomes zeros, and a superfluous
 * one is skipped. Returns TWILL_ERR_MEMORY, or TWILL_ERR_ARGUMENT if the file is bad. */
static twill_status read_file_record(struct state_stream *s, uint32_t place,
                                     const struct state_chunk *about)
{
    const size_t sum = twill_record_sum_bytes(&s->server->cut.place[place]);
    unsigned char *record = twill_server_hold(s->server, place);
    unsigned char *skipped = malloc(sum);
    twill_status status = TWILL_OK;
    if (record == NULL || skipped == NULL)
        status = TWILL_ERR_MEMORY;
    else if ((about->sum_bytes != 0 && about->sum_bytes != sum) ||
             !read_all(s, record, about->record_bytes) || !read_all(s, skipped, about->sum_bytes))
        status = bad_file(s, "it ends too early");
    else if (!twill_record_check(record, about->sum_bytes != 0 && twill_server_adds(s->server)))
        status = bad_file(s, "it has a version that no server writes");
    else if (twill_server_adds(s->server)) {
        if (about->sum_bytes == 0)
            memset(skipped, 0, sum);
        memcpy(record + about->record_bytes, skipped, sum);
    }
    free(skipped);
    return status;
}

/* Divide the tensors into chunks, unless that is done, of options.chunk_bytes or, if that is 0, of
 * `bytes`, a file's size of chunks. Returns TWILL_ERR_ARGUMENT if that is no size of chunks
 * (twill_server_is_chunk_size()) or gives too many, or TWILL_ERR_MEMORY. */
static twill_status take_chunk_bytes(struct state_stream *s, uint64_t bytes)
{
    struct twill_server *server = s->server;
    if (server->cut.place != NULL)
        return TWILL_OK;
    if (server->cut.chunk_bytes == 0)
        server->cut.chunk_bytes = bytes;
    if (!twill_server_is_chunk_size(server->cut.chunk_bytes))
        return bad_file(s, "its chunks have no size");
    return twill_server_place(server);
}

/* Read the records of a file into server->past.held, where they stay until the commit. Returns
 * TWILL_ERR_ARGUMENT, with a message, if the file is damaged or does not fit the server's tensors,
 * or TWILL_ERR_MEMORY. */
static twill_status read_chunks(struct state_stream *s)
{
    struct state_head head;
    uint32_t crc, stored, place = 0;
    if (!read_all(s, &head, sizeof(head)) || head.magic != STATE_MAGIC)
        return bad_file(s, "not a state of a parameter server");
    TWILL_TRY(NULL, take_chunk_bytes(s, head.chunk_bytes));
    for (uint64_t i = 0; i < head.chunks; i++) {
        struct state_chunk about;
        if (!read_all(s, &about, sizeof(about)))
            return bad_file(s, "it ends too early");
        about.name[STATE_NAME - 1] = '\0';
        place = find_place(s->server, &about, place);
        if (place == UINT32_MAX)
            return bad_file(s, "it has a chunk of other tensors, another optimizer or other "
                               "options.chunk_bytes");
        TWILL_TRY(NULL, read_file_record(s, place, &about));
    }
    crc = s->crc;
    if (fread(&stored, 1, sizeof(stored), s->file) != sizeof(stored) || stored != crc)
        return bad_file(s, "its checksum is wrong");
    return TWILL_OK;
}

twill_status twill_server_load(twill_server *server, const char *path)
{
    char name[PATH_MAX];
    if (server == NULL || path == NULL)
        return TWILL_ERR_ARGUMENT;
    if (server->committed)
        return TWILL_SERVER_REFUSE(server, "twill_server_load after twill_server_commit()");
    server->past.loaded = true;
    bool cuts = server->cut.place == NULL;
    for (uint32_t r = server->rank;; r += server->size) {
        if (snprintf(name, sizeof(name), "%s.%u", path, r) >= (int)sizeof(name))
            return TWILL_SERVER_REFUSE(server, "twill_server_load: the path is too long");
        struct state_stream s = {.server = server, .path = name, .file = fopen(name, "rbe")};
        if (s.file == NULL && errno == ENOENT)
            return TWILL_OK;
        if (s.file == NULL)
            return bad_file(&s, strerror(errno));
        twill_status status = read_chunks(&s);
        fclose(s.file);
        if (status != TWILL_OK) {
            twill_server_drop_state(server);
            if (cuts) { /* the size may come from a damaged file */
                twill_server_unplace(server);
                server->cut.chunk_bytes = server->options.chunk_bytes;
            }
            return status;
        }
    }
}
