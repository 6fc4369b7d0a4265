/* SPDX-License-Identifier: Apache-2.0 */
/* MPI types in twill. The properties of a predefined type are in a table by its handle. It is
 * filled at the start, and later with types that mpi.h does not name. A derived type is inspected
 * when it is first used, and the result is kept in an attribute of the type, so that both are freed
 * together. Predefined types get no attribute, because some of Intel MPI's share theirs.
 *
 * The MPI is asked about a handle only after it has accepted the handle on `shadow`, where errors
 * are returned. Errors of questions about types would go to the program's handler. */
#include "lib/base/lists.h"
#include "lib/mpi/shim.h"

#include <stdlib.h>
#include <string.h>

/* Most bytes of an element that in_order() probes. Its offsets have DIGITS digits of 8 bits. */
#define PROBED_MOST ((MPI_Count)1 << 24)
#define DIGITS      3

#define CLASS_TYPES 16u
static const struct {
    enum twill_mpi_class class;
    bool is_signed;
    MPI_Datatype type[CLASS_TYPES]; /* ends with 0, which is no handle of any MPI */
} predefined[] = {
    {TWILL_MPI_INTEGER,
     true,
     {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T,
      MPI_INT32_T, MPI_INT64_T}},
    {TWILL_MPI_INTEGER,
     false,
     {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
      MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T}},
    {TWILL_MPI_FORTRAN_INTEGER,
     true,
     {MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
      MPI_INTEGER8
#ifdef MPI_INTEGER16
      ,
      MPI_INTEGER16
#endif
     }},
    {TWILL_MPI_FLOATING,
     true,
     {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_REAL4, MPI_REAL8, MPI_DOUBLE_PRECISION
#ifdef MPI_REAL16
      ,
      MPI_REAL16
#endif
     }},
    {TWILL_MPI_COMPLEX_NUMBER,
     true,
     {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX,
      MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX,
      MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX
#ifdef MPI_COMPLEX32
      ,
      MPI_COMPLEX32
#endif
     }},
    {TWILL_MPI_TRUTH, false, {MPI_C_BOOL, MPI_CXX_BOOL}},
    {TWILL_MPI_TRUTH,
     true,
     {MPI_LOGICAL
#ifdef MPI_LOGICAL1
      ,
      MPI_LOGICAL1, MPI_LOGICAL2, MPI_LOGICAL4, MPI_LOGICAL8
#endif
     }},
    {TWILL_MPI_BITS, false, {MPI_BYTE}},
    {TWILL_MPI_PAIR,
     true,
     {MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_SHORT_INT, MPI_2INT, MPI_LONG_DOUBLE_INT,
      MPI_2INTEGER, MPI_2REAL, MPI_2DOUBLE_PRECISION}},
    {TWILL_MPI_TEXT, true, {MPI_CHAR, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED}},
};

/* Return the twill type of this kind and size in bytes, or -1 if there is none. */
static int number_of(enum twill_type_kind kind, MPI_Count size)
{
#define IS_NUMBER(NOUN, name, bits, its_kind, pairs, with)                                         \
    if (kind == TWILL_KIND_##its_kind && size == (bits) / 8)                                       \
        return TWILL_##NOUN;
    TWILL_TYPES(IS_NUMBER, )
    return -1;
}

/* Return the twill type of a pair's value, or -1 if twill has no such pair. The pairs of twill have
 * an int of 32 bits at the end. */
static int pair_of(MPI_Datatype type, MPI_Count size)
{
    if (type == MPI_FLOAT_INT)
        return TWILL_F32;
    if (type == MPI_DOUBLE_INT)
        return TWILL_F64;
    if (type == MPI_LONG_INT)
        return sizeof(long) == 8 ? TWILL_I64 : TWILL_I32;
    if (type == MPI_SHORT_INT)
        return TWILL_I16;
    return type == MPI_2INT || (type == MPI_2INTEGER && size == 8) ? TWILL_I32 : -1;
}

/* Return the twill type of a predefined type's components, or -1 if there is none. */
static int native_of(enum twill_mpi_class class, MPI_Datatype type, MPI_Count size, bool is_signed)
{
    switch (class) {
    case TWILL_MPI_INTEGER:
    case TWILL_MPI_FORTRAN_INTEGER:
        return number_of(is_signed ? TWILL_KIND_SIGNED : TWILL_KIND_UNSIGNED, size);
    case TWILL_MPI_FLOATING:
        return number_of(TWILL_KIND_FLOAT, size);
    case TWILL_MPI_COMPLEX_NUMBER:
        return number_of(TWILL_KIND_FLOAT, size / 2);
    case TWILL_MPI_TRUTH: /* only the MPI knows Fortran's .TRUE. */
        return size == 1 && !is_signed ? TWILL_U8 : -1;
    case TWILL_MPI_BITS:
        return TWILL_U8;
    case TWILL_MPI_PAIR:
        return pair_of(type, size);
    default:
        return -1;
    }
}

/* Return the index in the table at which the search for a type starts. */
static size_t type_slot(MPI_Datatype type)
{
    return (size_t)((uint64_t)(uintptr_t)type * UINT64_C(0x9e3779b97f4a7c15) >> 32) %
           TWILL_MPI_TYPES;
}

/* Set *found to size, extent and lower bound of a type, and `plain` to whether it has no holes.
 * `native` becomes -1 and `components` 1. Returns false if the MPI fails. */
static bool measure_type(MPI_Datatype type, struct twill_mpi_type *found)
{
    MPI_Count lb, true_extent;
    *found = (struct twill_mpi_type){.native = -1, .components = 1};
    if (PMPI_Type_size_x(type, &found->size) != MPI_SUCCESS ||
        PMPI_Type_get_extent_x(type, &lb, &found->extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_x(type, &found->true_lb, &true_extent) != MPI_SUCCESS)
        return false;
    found->plain = found->size == found->extent && found->size == true_extent;
    return true;
}

/* Add a type to the table, unless it is there. The caller holds the lock, or no other thread runs
 * yet. A table that is half full is left as it is. */
static void enter_type(MPI_Datatype type, const struct twill_mpi_type *found)
{
    struct twill_mpi_types *types = &twill_mpi.types;
    size_t bucket = type_slot(type);
    for (; types->known[bucket]; bucket = (bucket + 1) % TWILL_MPI_TYPES)
        if (types->handle[bucket] == type)
            return; /* entered under another name */
    if (types->entered == TWILL_MPI_TYPES / 2)
        return;
    types->entered++;
    types->handle[bucket] = type;
    types->type[bucket] = *found;
    atomic_store_explicit(&types->known[bucket], true, memory_order_release);
}

/* Inspect a predefined type and add it to the table. Does nothing for a name without a type in this
 * MPI, which is MPI_DATATYPE_NULL, has size 0 or cannot be queried. */
static void add_predefined(MPI_Datatype type, enum twill_mpi_class class, bool is_signed)
{
    struct twill_mpi_type found;
    if (type == MPI_DATATYPE_NULL || !measure_type(type, &found) || found.size <= 0)
        return; /* this MPI has only the name */
    found.class = class;
    found.native = native_of(class, type, found.size, is_signed);
    found.components = class == TWILL_MPI_COMPLEX_NUMBER ? 2 : 1;
    enter_type(type, &found);
}

/* Return the properties of a type in the table, or NULL if it is not there. Needs no lock. */
static const struct twill_mpi_type *find_entered(MPI_Datatype type)
{
    const struct twill_mpi_types *types = &twill_mpi.types;
    for (size_t bucket = type_slot(type);
         atomic_load_explicit(&types->known[bucket], memory_order_acquire);
         bucket = (bucket + 1) % TWILL_MPI_TYPES)
        if (types->handle[bucket] == type)
            return &types->type[bucket];
    return NULL;
}

bool twill_mpi_type_is_entered(MPI_Datatype type)
{
    return find_entered(type) != NULL;
}

/* Return whether PMPI_Pack() leaves an element's bytes in their order in memory. Packs elements
 * whose bytes hold one digit of their own offset. Returns false if out of memory. Types that may be
 * reduced are small and need no malloc(), because all ranks must get the same result. */
static bool in_order(MPI_Datatype type, const struct twill_mpi_type *found)
{
    unsigned char small[2 * TWILL_MPI_ELEMENT_MOST];
    const size_t size = (size_t)found->size;
    unsigned char *element = 2 * size <= sizeof(small) ? small : malloc(2 * size);
    unsigned char *packed = element + size;
    bool same = element != NULL;
    for (unsigned digit = 0; same && digit < DIGITS && (digit == 0 || size >> 8 * digit > 0);
         digit++) {
        int position = 0;
        for (size_t i = 0; i < size; i++)
            element[i] = (unsigned char)(i >> 8 * digit);
        same = PMPI_Pack(element - found->true_lb, 1, type, packed, (int)size, &position,
                         twill_mpi.shadow) == MPI_SUCCESS &&
               (size_t)position == size && memcmp(element, packed, size) == 0;
    }
    if (element != small)
        free(element);
    return same;
}

/* How a type was made: the number of arguments of each kind, and by which function. A variable of
 * its user, which find_envelope() fills in. */
struct envelope {
    MPI_Count integers, addresses, counts, types;
    int combiner;
};
typedef int large_envelope(MPI_Datatype, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int *);
typedef int large_contents(MPI_Datatype, MPI_Count, MPI_Count, MPI_Count, MPI_Count, int *,
                           MPI_Aint *, MPI_Count *, MPI_Datatype *);

/* Set *e to how a type was made, or return false. MPICH's older function fails for large counts. */
static bool find_envelope(MPI_Datatype type, struct envelope *e)
{
    large_envelope *large = (large_envelope *)twill_mpi.types.envelope;
    int number[3];
    if (large != NULL)
        return large(type, &e->integers, &e->addresses, &e->counts, &e->types, &e->combiner) ==
               MPI_SUCCESS;
    if (PMPI_Type_get_envelope(type, &number[0], &number[1], &number[2], &e->combiner) !=
        MPI_SUCCESS)
        return false;
    e->integers = number[0], e->addresses = number[1], e->counts = 0, e->types = number[2];
    return true;
}

/* Return whether a type is the MPI's own, not derived by the program. */
static bool is_predefined(const struct envelope *e)
{
    return e->combiner == MPI_COMBINER_NAMED || e->combiner == MPI_COMBINER_F90_REAL ||
           e->combiner == MPI_COMBINER_F90_COMPLEX || e->combiner == MPI_COMBINER_F90_INTEGER;
}

/* Return the type that `type` duplicates or repeats contiguously, or MPI_DATATYPE_NULL if it was
 * made in another way. If *free_it is set to true, the caller must free the result. */
static MPI_Datatype made_of(MPI_Datatype type, bool *free_it)
{
    large_contents *large = (large_contents *)twill_mpi.types.contents;
    struct envelope e;
    int integer[2];
    MPI_Aint address[2];
    MPI_Count count[2];
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    if (!find_envelope(type, &e) ||
        (e.combiner != MPI_COMBINER_DUP && e.combiner != MPI_COMBINER_CONTIGUOUS) || e.types != 1 ||
        e.integers > 2 || e.addresses > 2 || e.counts > 2)
        return MPI_DATATYPE_NULL;
    const int code = large != NULL ? large(type, e.integers, e.addresses, e.counts, 1, integer,
                                           address, count, &inner)
                                   : PMPI_Type_get_contents(type, (int)e.integers, (int)e.addresses,
                                                            1, integer, address, &inner);
    if (code != MPI_SUCCESS)
        return MPI_DATATYPE_NULL;
    *free_it = find_envelope(inner, &e) && !is_predefined(&e);
    return inner;
}

/* Return whether a type without holes has its bytes in order. This holds for rows of plain
 * elements. A type that cannot be shown to be plain is packed, which is right for any type. */
static bool is_plain(MPI_Datatype type, const struct twill_mpi_type *found)
{
    bool free_it = false;
    if (found->size <= PROBED_MOST)
        return found->size == 0 || in_order(type, found);
    MPI_Datatype inner = made_of(type, &free_it);
    struct twill_mpi_type element;
    bool plain = inner != MPI_DATATYPE_NULL && measure_type(inner, &element) && element.plain &&
                 is_plain(inner, &element);
    if (free_it)
        PMPI_Type_free(&inner);
    return plain;
}

/* Delete callback of the attribute, which frees the properties. Returns MPI_SUCCESS. */
static int type_freed(MPI_Datatype type, int keyval, void *value, void *extra)
{
    (void)type, (void)keyval, (void)extra;
    free(value);
    return MPI_SUCCESS;
}

/* Return the properties kept in the type's attribute. Returns NULL if it has none, or if its size
 * or extent differ from those of the type. *taken says whether it has the attribute. */
static const struct twill_mpi_type *recall(MPI_Datatype type, bool *taken)
{
    void *value = NULL;
    int there = 0;
    MPI_Count size, lb, extent;
    *taken =
        PMPI_Type_get_attr(type, twill_mpi.types.keyval, &value, &there) == MPI_SUCCESS && there;
    const struct twill_mpi_type *kept = value;
    return *taken && PMPI_Type_size_x(type, &size) == MPI_SUCCESS && size == kept->size &&
                   PMPI_Type_get_extent_x(type, &lb, &extent) == MPI_SUCCESS &&
                   extent == kept->extent
               ? kept
               : NULL;
}

/* Return whether a type is valid and committed. MPI has no query, but packs no others. */
static bool is_committed(MPI_Datatype type)
{
    unsigned char nothing[1] = {0};
    int position = 0;
    return type != MPI_DATATYPE_NULL &&
           PMPI_Pack(nothing, 0, type, nothing, 1, &position, twill_mpi.shadow) == MPI_SUCCESS;
}

/* Keep the properties of a type, in the table if it is the MPI's own, else in its attribute.
 * Nothing is kept if the attribute is `taken` by another type's, or if the MPI cannot say how the
 * type was made. */
static void keep_type(MPI_Datatype type, const struct twill_mpi_type *found, bool taken)
{
    struct envelope e;
    if (!find_envelope(type, &e))
        return;
    if (is_predefined(&e)) {
        enter_type(type, found);
        return;
    }
    struct twill_mpi_type *kept = taken ? NULL : malloc(sizeof(*kept));
    if (kept == NULL)
        return;
    *kept = *found;
    if (PMPI_Type_set_attr(type, twill_mpi.types.keyval, kept) != MPI_SUCCESS)
        free(kept);
}

/* Return the properties of a type, or NULL if the MPI fails. If another thread has inspected it,
 * they are those in its attribute. Otherwise inspects it, with the result in *storage, and keeps a
 * copy. */
static const struct twill_mpi_type *inspect_type(MPI_Datatype type, struct twill_mpi_type *storage)
{
    bool taken;
    pthread_mutex_lock(&twill_mpi.types.lock);
    const struct twill_mpi_type *known = recall(type, &taken);
    if (known == NULL && measure_type(type, storage)) {
        storage->class = TWILL_MPI_DERIVED;
        storage->plain = storage->plain && is_plain(type, storage);
        keep_type(type, storage, taken);
        known = storage;
    }
    pthread_mutex_unlock(&twill_mpi.types.lock);
    return known;
}

const struct twill_mpi_type *twill_mpi_type_find(MPI_Datatype type, struct twill_mpi_type *storage)
{
    bool taken;
    const struct twill_mpi_type *known = find_entered(type);
    if (known != NULL)
        return known;
    if (twill_mpi.types.keyval == MPI_KEYVAL_INVALID || !is_committed(type))
        return NULL;
    known = recall(type, &taken);
    return known != NULL ? known : inspect_type(type, storage);
}

void twill_mpi_types_open(void)
{
    twill_mpi.types.envelope = twill_mpi_below("PMPI_Type_get_envelope_c");
    twill_mpi.types.contents = twill_mpi_below("PMPI_Type_get_contents_c");
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(predefined); c++)
        for (size_t i = 0; i < CLASS_TYPES && predefined[c].type[i] != 0; i++)
            add_predefined(predefined[c].type[i], predefined[c].class, predefined[c].is_signed);
    if (PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, type_freed, &twill_mpi.types.keyval, NULL) !=
        MPI_SUCCESS)
        twill_mpi.types.keyval = MPI_KEYVAL_INVALID;
}
