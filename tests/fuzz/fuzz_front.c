/* SPDX-License-Identifier: Apache-2.0 */
/* The twillrun in front of a job on several hosts, with host agents that send what the input says.
 * The first byte selects whether ranks are replaced (--elastic). Then each frame is four bytes
 * (host, kind, rank, value) and data as the host's byte says; a turn of the front is between
 * frames. */
#include "fabric/launcher/front.h"
#include "tests/fuzz/fuzz_input.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/eventfd.h>

#define SITES 3
#define RANKS 4
#define MOST  5

static const uint8_t *frames;
static size_t frames_size;
static int to_front[SITES];
static struct twill_front_host *hosts; /* hosts[0] */

/* --- in the place of the launcher's ----------------------------------------------------------- */

bool twill_agent_start(struct twill_front_host *host, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask)
{
    static const char begin[] = "a motto of the host" TWILL_FRAME_MARK;
    int in[2], out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int number = (int)(site - options->site);
    fuzz_must(out >= 0 && pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0);
    host->name = site->name;
    host->alive = site->ranks;
    host->state = TWILL_HOST_CALLED;
    host->pipe = (struct twill_pipe){.in = in[0], .out = out};
    hosts = host - number;
    to_front[number] = in[1];
    fuzz_must(write(in[1], begin, sizeof(begin) - 1) > 0);
    return true;
}

void twill_agent_receive(struct twill_front_host *host)
{
    fuzz_must(host->said.from < 0);
}

void twill_agent_how(struct twill_front_host *host, const struct twill_options *options, char *text,
                     size_t bytes)
{
    snprintf(text, bytes, "%s", host->name);
}

void twill_agent_end(struct twill_front_host *host, uint64_t time_ns)
{
    host->state = TWILL_HOST_IDLE;
    host->alive = 0;
    twill_pipe_close(&host->pipe);
}

void twill_child_name(const struct twill_options *options, struct twill_child *child, int rank)
{
    snprintf(child->label, sizeof(child->label), "[%d] ", rank);
    for (int i = 0; i < 2; i++)
        child->out[i] = (struct twill_stream){
            .from = -1, .to = STDOUT_FILENO + i, .rank = rank, .label = child->label};
}

bool twill_job_make(char job[TWILL_JOB_TEXT])
{
    snprintf(job, TWILL_JOB_TEXT, "%064d", 0);
    return true;
}

int twill_signals_take(sigset_t *mask)
{
    static int none = -1;
    if (none < 0) {
        none = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
        fuzz_must(dup2(empty, STDIN_FILENO) == STDIN_FILENO && close(empty) == 0);
    }
    return none;
}

bool twill_restarts_add(struct twill_restarts *restarts)
{
    return restarts->count++ < TWILL_RESTARTS;
}

bool twill_elastic_suffices(const struct twill_options *options, int alive, int waiting)
{
    return alive >= options->least && waiting < alive;
}

void twill_complain(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof(text), format, list);
    va_end(list);
}

bool twill_output_put(int to, const char *data, size_t bytes)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < bytes; i++) /* it is read */
        sum += (unsigned char)data[i];
    return to != STDERR_FILENO || sum % 4096 != 4095;
}

bool twill_output_full(int to)
{
    return to < 0;
}

void twill_output_flush(const struct twill_stop_request *stop_request)
{
}

bool twill_output_drain(const struct twill_stop_request *stop_request)
{
    return true;
}

/* --- the host agents' turn ----------------------------------------------------------------------
 */

/* Send a frame; false: its host has ended. Those of a host agent that has all right go through its
 * states. */
static bool send_frame(void)
{
    static const char *const texts[] = {TWILL_VERSION_TEXT, "127.0.0.1 2000", "started\0", ""};
    static const size_t lengths[] = {sizeof(TWILL_VERSION_TEXT) - 1, 14, 9, 0};
    uint8_t host = frames[0];
    struct {
        uint16_t magic, kind;
        uint32_t rank, value, bytes;
    } header = {.magic = 0x7754,
                .kind = frames[1] % (TWILL_FRAME_KINDS + 1),
                .rank = frames[2] == 255 ? UINT32_MAX : frames[2],
                .value = frames[3]};
    size_t here = host / 32 < 4 ? 0 : twill_min((size_t)host, frames_size - 4);
    const void *data = host / 32 < 4 ? (const void *)texts[host / 32] : frames + 4;
    header.bytes = (uint32_t)(host / 32 < 4 ? lengths[host / 32] : here);
    if (frames[3] == 254)
        header.value = UINT32_MAX;
    if (frames[3] == 253)
        header.bytes += 1u << 15;
    header.magic = (uint16_t)(header.magic + (frames[2] == 200));
    int fd = to_front[host % SITES];
    bool open = fd >= 0 && hosts[host % SITES].pipe.in >= 0;
    if (open) {
        (void)!write(fd, &header, sizeof(header));
        (void)!write(fd, data, here + (host / 32 < 4 ? lengths[host / 32] : 0));
    }
    frames += 4 + here;
    frames_size -= 4 + here;
    return open;
}

/* There is no page. */
bool twill_page_serve(const struct twill_options *options, const sigset_t *mask, bool here)
{
    return options != NULL && mask != NULL && !here;
}

struct pollfd twill_page_poll(void)
{
    return (struct pollfd){.fd = -1};
}

void twill_page_receive(void)
{
}

const char *twill_page_next(size_t *bytes)
{
    *bytes = 0;
    return NULL;
}

void twill_page_answer(int host, const char *data, size_t bytes)
{
    fuzz_must(host >= 0 && (data != NULL || bytes == 0));
}

void twill_page_end(void)
{
}

/* Called before each wait of the front. */
void twill_output_polls(struct pollfd polls[TWILL_OUTPUTS])
{
    int alive = 0;
    for (int i = 0; i < TWILL_OUTPUTS; i++)
        polls[i] = (struct pollfd){.fd = -1};
    for (int i = 0; i < SITES; i++) {
        fuzz_must(hosts[i].alive >= 0 && hosts[i].alive <= MOST);
        alive += hosts[i].alive;
    }
    fuzz_must(alive <= MOST);
    while (frames_size >= 4)
        if (send_frame())
            return;
    for (int i = 0; i < SITES; i++) {
        if (to_front[i] >= 0)
            close(to_front[i]);
        to_front[i] = -1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char names[SITES][8] = {"one", "two", "three"};
    static char program[] = "true", *command[] = {program, NULL}, *none[] = {NULL};
    struct twill_site site[SITES];
    int place[MOST] = {0, 0, 1, 2, 2};
    if (size == 0)
        return 0;
    for (int i = 0; i < SITES; i++) {
        site[i] = (struct twill_site){.name = names[i], .slots = 2, .ranks = 1 + (i == 0)};
        to_front[i] = -1;
    }
    const struct twill_options options = {.ranks = RANKS,
                                          .least = 1,
                                          .most = data[0] % 2 != 0 ? MOST : 0,
                                          .label = true,
                                          .timeout_ns = UINT64_C(60000000000),
                                          .site = site,
                                          .sites = SITES,
                                          .place = place,
                                          .assignments = none,
                                          .command = command};
    site[2].ranks += options.most > 0;
    frames = data + 1;
    frames_size = size - 1;
    (void)twill_front_run(&options);
    for (int i = 0; i < SITES; i++)
        if (to_front[i] >= 0)
            close(to_front[i]);
    return 0;
}
