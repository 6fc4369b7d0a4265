/* SPDX-License-Identifier: Apache-2.0 */
/* Headers and control messages of the ofi transport. A rank has requests. A provider in memory
 * gives it the input as messages. The first byte selects how the provider behaves. Then three bytes
 * each: what happens, and two that change it. */
#include "fabric/ofi/ofi.h"
#include "tests/fuzz/fuzz_socket.h"

#include <poll.h>
#include <rdma/fi_errno.h>

#define SIGNATURE 5
#define REQUESTS  24
#define POSTED    256
#define EAGER     256
#define SPLIT     (EAGER + TWILL_OFI_TAIL)
#define CHUNK     1024

/* An operation at the provider. */
struct fuzz_operation {
    bool used, sends;
    int code;   /* that it has completed with; -1: not complete */
    size_t got; /* bytes of the message */
    unsigned char *bytes;
    size_t count;
    uint64_t tag, ignore;
    void *context;
};

static struct fuzz_operation operations[POSTED];
static struct twill_transfer requests[REQUESTS];
static size_t request_count;
static unsigned busy_every, posts;

/* --- the provider ----------------------------------------------------------------------------- */

static ssize_t add_operation(struct fuzz_operation operation)
{
    size_t i = 0;
    if (busy_every != 0 && ++posts % busy_every == 0)
        return -FI_EAGAIN;
    while (i < POSTED && operations[i].used)
        i++;
    fuzz_must(i < POSTED);
    operations[i] = operation;
    return 0;
}

static ssize_t provider_receive(struct fid_ep *ep, void *buf, size_t len, void *desc,
                                fi_addr_t src_addr, uint64_t tag, uint64_t ignore, void *context)
{
    return add_operation((struct fuzz_operation){.used = true,
                                                 .code = -1,
                                                 .bytes = buf,
                                                 .count = len,
                                                 .tag = tag,
                                                 .ignore = ignore,
                                                 .context = context});
}

static ssize_t provider_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                             fi_addr_t dest_addr, uint64_t tag, void *context)
{
    free(memcpy(malloc(len + 1), buf, len)); /* it is read */
    return add_operation((struct fuzz_operation){
        .used = true, .sends = true, .code = -1, .tag = tag, .context = context});
}

static ssize_t provider_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                               uint64_t tag)
{
    free(memcpy(malloc(len + 1), buf, len));
    return 0;
}

static ssize_t provider_cancel(fid_t fid, void *context)
{
    for (size_t i = 0; i < POSTED; i++)
        if (operations[i].used && operations[i].context == context && operations[i].code < 0)
            operations[i].code = FI_ECANCELED;
    return 0;
}

/* Return the first completed operation, with an error or without, or NULL. */
static struct fuzz_operation *find_complete(bool *failed)
{
    for (size_t i = 0; i < POSTED; i++)
        if (operations[i].used && operations[i].code >= 0) {
            *failed = operations[i].code > 0;
            return &operations[i];
        }
    return NULL;
}

static ssize_t provider_read(struct fid_cq *cq, void *buf, size_t count)
{
    struct fi_cq_tagged_entry *entry = buf;
    ssize_t n = 0;
    bool failed = false;
    for (struct fuzz_operation *done; (size_t)n < count && (done = find_complete(&failed)) != NULL;
         n++) {
        if (failed)
            return n > 0 ? n : -FI_EAVAIL;
        entry[n] = (struct fi_cq_tagged_entry){
            .op_context = done->context, .len = done->got, .tag = done->tag};
        done->used = false;
    }
    if (n == 0)
        (void)poll(NULL, 0, 10); /* of the clock in memory */
    return n > 0 ? n : -FI_EAGAIN;
}

static ssize_t provider_error(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    bool failed = false;
    struct fuzz_operation *done = find_complete(&failed);
    fuzz_must(done != NULL && failed);
    entry->op_context = done->context;
    entry->err = done->code;
    done->used = false;
    return 1;
}

static const char *provider_text(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf,
                                 size_t len)
{
    snprintf(buf, len, "so");
    return buf;
}

/* The endpoint ends, and with it all operations. */
static int provider_close(struct fid *fid)
{
    memset(operations, 0, sizeof(operations));
    return 0;
}

static const char *explain(int code)
{
    return "an error";
}

static int insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
                  uint64_t flags, void *context)
{
    *fi_addr = 1;
    return (int)count;
}

/* --- messages of the other rank --------------------------------------------------------------- */

/* Deliver a message to the first receive that it matches. Returns where its bytes went, or NULL. */
static unsigned char *deliver(uint64_t tag, const void *head, size_t head_bytes, size_t bytes)
{
    for (size_t i = 0; i < POSTED; i++) {
        struct fuzz_operation *to = &operations[i];
        if (!to->used || to->sends || to->code >= 0 ||
            (to->tag & ~to->ignore) != (tag & ~to->ignore))
            continue;
        to->got = twill_min(bytes, to->count);
        to->code = bytes > to->count ? FI_ETRUNC : 0;
        to->tag = tag;
        memset(to->bytes, 0, to->got);
        memcpy(to->bytes, head, twill_min(head_bytes, to->got));
        return to->bytes;
    }
    return NULL;
}

static struct twill_ofi_channel *channel_of(struct twill_ofi *t, uint8_t number)
{
    struct twill_ofi_peer *peer;
    fuzz_must(twill_ofi_peer(t, 1, &peer, NULL) == TWILL_OK);
    return &peer->channels[number % 2];
}

/* The header, or after it the tail, that the first receive waits for. `changes` alters it. */
static void send_header(struct twill_ofi *t, uint8_t changes, uint8_t channel_number)
{
    struct twill_ofi_channel *channel = channel_of(t, channel_number);
    const struct twill_transfer *next = channel->in.head;
    size_t bytes = next != NULL ? next->bytes : 100;
    struct twill_ofi_header header = {.signature = SIGNATURE + (changes % 16 == 1),
                                      .sequence = channel->consumed + (changes % 16 == 2),
                                      .bytes = bytes + (changes % 16 == 3),
                                      .kind =
                                          bytes > SPLIT ? TWILL_OFI_LARGE : TWILL_OFI_EAGER_DATA,
                                      .credit = changes / 16,
                                      .lane = channel->lane,
                                      .entry = {.sent = changes, .age = changes, .rank = changes}};
    header.kind = (uint8_t)(header.kind + (changes % 16 == 4));
    size_t follows = header.kind == TWILL_OFI_EAGER_DATA ? twill_min(header.bytes, EAGER) : 0;
    if (next != NULL && next->moved == EAGER && bytes <= SPLIT)
        follows = bytes - EAGER - sizeof(header);
    follows += changes % 16 == 5;
    size_t all = changes % 16 == 6 ? changes : sizeof(header) + follows;
    if (changes % 16 == 7)
        header.bytes = (uint64_t)changes << (channel_number % 57);
    deliver(twill_ofi_tag(t->endpoint, t->comm, channel->lane, 1, TWILL_OFI_HEADER), &header,
            sizeof(header), all);
}

/* A clear to send for the first large message, or a credit; or anything of that kind. */
static void send_control_message(struct twill_ofi *t, uint8_t changes, uint8_t second)
{
    struct twill_ofi_channel *channel = channel_of(t, second);
    struct twill_transfer *next = channel->payload_out.head;
    struct twill_ofi_header header = {.kind = TWILL_OFI_CREDIT,
                                      .lane = channel->lane,
                                      .consumed = channel->sent + (changes % 8 == 1 ? second : 0)};
    if (changes / 128 == 0) {
        header.kind = TWILL_OFI_CLEAR_TO_SEND;
        header.signature = SIGNATURE + (changes % 8 == 2);
        header.sequence = next != NULL ? twill_ofi_private(next)->sequence : channel->sent;
        header.sequence += changes % 8 == 3 ? second : 0;
        header.bytes = next != NULL ? next->bytes : 1000;
        header.bytes += changes % 8 == 4;
        header.chunk = changes % 8 == 5 ? (uint32_t)second << second % 32 : CHUNK;
    }
    if (changes % 8 == 6)
        header.lane = second;
    if (changes % 8 == 7)
        header.kind = second;
    uint32_t from = changes / 8 % 16 == 1 ? second : 1;
    uint32_t comm = t->comm + (changes / 8 % 16 == 2);
    size_t bytes = changes / 8 % 16 == 3 ? second : TWILL_OFI_CONTROL_BYTES;
    deliver(twill_ofi_tag(t->endpoint, comm, 0, from, TWILL_OFI_CONTROL), &header,
            TWILL_OFI_CONTROL_BYTES, bytes);
}

/* A chunk for the first receive of one, of its size or another one. */
static void send_chunk_message(struct twill_ofi *t, uint8_t changes, uint8_t second)
{
    const struct twill_ofi_channel *channel = channel_of(t, second);
    uint64_t tag = twill_ofi_tag(t->endpoint, t->comm, channel->lane, 1, TWILL_OFI_PAYLOAD);
    size_t bytes = CHUNK;
    for (size_t i = 0; i < POSTED; i++)
        if (operations[i].used && operations[i].tag == tag && operations[i].code < 0) {
            bytes = operations[i].count;
            break;
        }
    deliver(tag, &second, 1, changes % 8 == 1 ? changes : bytes);
}

/* Complete the operation of some number: a send, or anything with an error. */
static void complete_one(uint8_t number, uint8_t code)
{
    static const int codes[] = {FI_ECONNRESET, FI_ETRUNC, FI_ECANCELED, FI_EIO};
    for (size_t i = 0; i < POSTED; i++) {
        struct fuzz_operation *one = &operations[i];
        if (!one->used || one->code >= 0 || (code < 240 && !one->sends) || number-- > 0)
            continue;
        one->code = code < 240 ? 0 : codes[code % 4];
        return;
    }
}

/* --- the rank --------------------------------------------------------------------------------- */

static void check_reduced(struct twill_transfer *request, size_t offset, const void *data,
                          size_t bytes)
{
    fuzz_must(offset + bytes <= request->bytes);
    if (bytes > 0)
        memcpy((unsigned char *)request->buffer + offset, data, bytes);
}

static bool post_transfer(struct twill_ofi *t, uint8_t kind, uint8_t size)
{
    static const size_t sizes[] = {0, 8, 64, 256, 257, 1000, 1024, 5000, 2048, 17000};
    struct twill_error error = {0};
    if (request_count == REQUESTS)
        return true;
    struct twill_transfer *request = &requests[request_count++];
    size_t bytes = sizes[size % TWILL_ARRAY_LENGTH(sizes)];
    *request =
        (struct twill_transfer){.status = TWILL_PENDING,
                                .kind = kind % 4 == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                .lane = (uint8_t)(kind / 4 % 2),
                                .peer = 1,
                                .signature = SIGNATURE,
                                .buffer = calloc(bytes + 1, 1),
                                .bounce = kind % 4 == 1 ? calloc(bytes + 1, 1) : NULL,
                                .bytes = bytes,
                                .reduce = kind % 4 == 1 ? check_reduced : NULL};
    (void)channel_of(t, request->lane);
    return twill_ofi_transport.post(&t->base, request, &error) == TWILL_OK;
}

static struct twill_ofi_endpoint *make_endpoint(uint8_t kind)
{
    static struct twill_ofi_endpoint endpoint;
    static unsigned char *sends[TWILL_OFI_BUFFERS], *controls[TWILL_OFI_CONTROLS];
    static struct twill_ofi_contact contacts[2];
    static struct fi_ops_tagged tagged = {
        .recv = provider_receive, .send = provider_send, .inject = provider_inject};
    static struct fi_ops fid_ops = {.close = provider_close};
    static struct fi_ops_ep ep_ops = {.cancel = provider_cancel};
    static struct fi_ops_cq cq_ops = {
        .read = provider_read, .readerr = provider_error, .strerror = provider_text};
    static struct fi_ops_av av_ops = {.insert = insert};
    static struct fi_fabric_attr fabric;
    static struct fi_info info = {.fabric_attr = &fabric};
    static struct fid_ep ep;
    static struct fid_cq cq;
    static struct fid_av av;
    static unsigned char address[2];
    static size_t length[2];
    static char name[] = "fuzz";
    fabric.prov_name = name;
    ep = (struct fid_ep){.fid.ops = &fid_ops, .ops = &ep_ops, .tagged = &tagged};
    cq.ops = &cq_ops;
    av.ops = &av_ops;
    memset(contacts, 0, sizeof(contacts));
    endpoint = (struct twill_ofi_endpoint){
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .size = 2,
        .library = {.explain = explain},
        .fi = {.info = &info, .av = &av, .cq = &cq, .ep = &ep},
        .addresses = {.stride = 1, .bytes = address, .length = length, .contact = contacts},
        .limits = {.credits = TWILL_OFI_CREDITS,
                   .eager = EAGER,
                   .split = SPLIT,
                   .max_message = CHUNK,
                   .inject = kind % 2 != 0 ? 64 : 0,
                   .preposts = kind / 2 % 2 != 0},
        .matching = {.tag_bits = TWILL_OFI_TAG_BITS}};
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++) {
        if (sends[i] == NULL)
            sends[i] = malloc(TWILL_OFI_BUFFER_BYTES);
        endpoint.buffers.sends[i] = (struct twill_ofi_op){.kind = TWILL_OFI_OP_SEND_BUFFER,
                                                          .buffer = sends[i],
                                                          .next = endpoint.buffers.free_sends};
        endpoint.buffers.free_sends = &endpoint.buffers.sends[i];
    }
    for (uint32_t i = 0; i < TWILL_OFI_CONTROLS; i++) {
        if (controls[i] == NULL)
            controls[i] = malloc(TWILL_OFI_CONTROL_BYTES);
        endpoint.buffers.controls[i] =
            (struct twill_ofi_op){.kind = TWILL_OFI_OP_RECV_CONTROL, .buffer = controls[i]};
    }
    endpoint.buffers.controls_idle = TWILL_OFI_CONTROLS;
    return &endpoint;
}

static struct twill_ofi *open_rank(uint8_t kind)
{
    struct twill_ofi *t = calloc(1, sizeof(*t));
    struct twill_error error = {0};
    fuzz_must(t != NULL);
    memset(operations, 0, sizeof(operations));
    busy_every = kind / 4 % 4;
    busy_every += busy_every > 0; /* not each */
    posts = 0;
    request_count = 0;
    t->base.ops = &twill_ofi_transport;
    t->endpoint = make_endpoint(kind);
    t->comm = 3;
    t->size = 2;
    t->start = twill_clock_read();
    t->peers = calloc(2, sizeof(struct twill_ofi_peer *));
    fuzz_must(t->peers != NULL);
    t->endpoint->open = t;
    fuzz_must(twill_ofi_controls_post(t->endpoint, &error) == TWILL_OK);
    return t;
}

static void check_credit(const struct twill_ofi *t)
{
    for (uint32_t l = 0; t->peers[1] != NULL && l < TWILL_OFI_LANES; l++)
        fuzz_must(t->peers[1]->channels[l].sent - t->peers[1]->channels[l].acked <=
                  TWILL_OFI_CREDITS);
}

/* End it: nothing that comes afterwards may reach a request. */
static void close_rank(struct twill_ofi *t)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    for (size_t i = 0; i < POSTED; i++)
        if (operations[i].used && operations[i].sends && operations[i].code < 0)
            operations[i].code = 0;
    twill_ofi_cancel(&t->base);
    for (size_t i = 0; i < POSTED; i++)
        fuzz_must(!operations[i].used || operations[i].tag % 4 != TWILL_OFI_PAYLOAD ||
                  operations[i].code >= 0);
    for (size_t i = 0; i < request_count; i++) {
        const struct twill_transfer *request = &requests[i];
        fuzz_must(request->moved <= request->bytes);
        fuzz_must(request->status != TWILL_OK || request->kind == TWILL_TRANSFER_SEND ||
                  request->moved == request->bytes);
        free(request->buffer);
        free(request->bounce);
    }
    endpoint->fi.ep = NULL; /* closed: no operation is left at the provider */
    twill_ofi_leave(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_error error = {0};
    bool works = true;
    if (size == 0)
        return 0;
    struct twill_ofi *t = open_rank(data[0]);
    for (data++, size--; size >= 3 && works; data += 3, size -= 3) {
        switch (data[0] % 8) {
        case 0:
        case 1:
            works = post_transfer(t, data[1], data[2]);
            break;
        case 2:
        case 3:
            send_header(t, data[0] % 8 == 2 ? 0 : data[1], data[2]);
            break;
        case 4:
            send_control_message(t, data[1], data[2]);
            break;
        case 5:
            send_chunk_message(t, data[1], data[2]);
            break;
        default:
            complete_one(data[1] % 16, data[2]);
        }
        works = works && twill_ofi_progress(&t->base, &error) >= 0;
        check_credit(t);
    }
    for (int turn = 0; turn < 20 && works; turn++)
        works = twill_ofi_progress(&t->base, &error) >= 0;
    close_rank(t);
    fuzz_sockets_reset();
    return 0;
}
