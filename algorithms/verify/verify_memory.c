/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the verifier, whose cells record their last write and the reads since then. */
#include "algorithms/verify/verify.h"

#include <stdlib.h>
#include <string.h>

bool twill_cells_open(struct twill_cells *m, size_t cells)
{
    memset(m, 0, sizeof(*m));
    m->cell = calloc(cells, sizeof(*m->cell));
    for (size_t i = 0; m->cell != NULL && i < cells; i++)
        m->cell[i].writer = TWILL_NO_RANK;
    m->reads = 1;
    return m->cell != NULL;
}

void twill_cells_close(struct twill_cells *m)
{
    free(m->cell);
    free(m->read);
}

/* Return NULL if the last write of a cell is before this vector clock, or there was none. Otherwise
 * return a text that says that an access is not ordered after the write, and set *other to the
 * process that wrote. */
static const char *check_write(const struct twill_cell *cell, const uint32_t *clock,
                               uint32_t *other)
{
    if (cell->writer == TWILL_NO_RANK || clock[cell->writer] >= cell->written)
        return NULL;
    *other = cell->writer;
    return "is not ordered after the write";
}

/* Return a record of a read by the process if it is among the last few, or NULL. A process may thus
 * have several. Searching all of the thousands of readers of a cell would take minutes. */
static struct twill_read *find_read(const struct twill_cells *m, const struct twill_cell *cell,
                                    uint32_t process)
{
    uint32_t i = cell->reads;
    for (unsigned seen = 0; i != 0 && seen < 8; i = m->read[i].next, seen++)
        if (m->read[i].reader == process)
            return &m->read[i];
    return NULL;
}

/* Return the index in m->read of an unused record of a read, or 0 if out of memory. The array
 * m->read may move. */
static uint32_t alloc_read(struct twill_cells *m)
{
    uint32_t i = m->free;
    if (i != 0) {
        m->free = m->read[i].next;
        return i;
    }
    if (m->reads >= m->read_capacity) {
        uint32_t capacity = 2 * m->reads + 256;
        struct twill_read *grown = realloc(m->read, capacity * sizeof(*grown));
        if (grown == NULL)
            return 0;
        m->read = grown;
        m->read_capacity = capacity;
    }
    return m->reads++;
}

const char *twill_cells_read(struct twill_cells *m, size_t cell, uint32_t process,
                             const uint32_t *clock, uint32_t time, uint32_t *other)
{
    struct twill_cell *c = &m->cell[cell];
    const char *why = check_write(c, clock, other);
    if (why != NULL)
        return why;
    struct twill_read *read = find_read(m, c, process);
    if (read != NULL) {
        if (time > read->time)
            read->time = time;
        return NULL;
    }
    uint32_t i = alloc_read(m);
    if (i == 0)
        return "no memory to verify";
    m->read[i] = (struct twill_read){.reader = process, .time = time, .next = c->reads};
    c->reads = i;
    return NULL;
}

const char *twill_cells_write(struct twill_cells *m, size_t cell, uint32_t process,
                              const uint32_t *clock, uint32_t time, uint32_t *other)
{
    struct twill_cell *c = &m->cell[cell];
    const char *why = check_write(c, clock, other);
    if (why != NULL)
        return why;
    while (c->reads != 0) {
        uint32_t i = c->reads;
        struct twill_read *read = &m->read[i];
        if (clock[read->reader] < read->time) {
            *other = read->reader;
            return "is not ordered after the read";
        }
        c->reads = read->next;
        read->next = m->free;
        m->free = i;
    }
    c->writer = process;
    c->written = time;
    return NULL;
}

void twill_cells_close_access(struct twill_cells *m, size_t cell, uint32_t process, uint32_t time)
{
    struct twill_cell *c = &m->cell[cell];
    uint32_t i = c->reads;
    while (i != 0 && (m->read[i].reader != process || m->read[i].time != TWILL_OPEN))
        i = m->read[i].next;
    if (i != 0)
        m->read[i].time = time;
    if (c->writer == process && c->written == TWILL_OPEN)
        c->written = time;
}
