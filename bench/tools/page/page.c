/* SPDX-License-Identifier: Apache-2.0 */
/* twill-page serves one web page that shows a running job. twillrun --page and twill-info --page
 * start it. An answer needs GET, the token in the address, and a Host header without a name that
 * others may have chosen (DNS rebinding). The ranks do nothing for it: it reads their shared
 * records, and only while a page asks. */
#include "bench/tools/page/page.h"
#include "bench/common/option_table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <json-c/json.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#define SECRET_TEXT     33 /* 128 bits as hexadecimal digits, with the end */
#define MOST_VIEWERS    32 /* connections */
#define MOST_SECONDS    15 /* of a connection without a request */
#define NONCE_IN_SOURCE "00000000000000000000000000000000"

static const char usage[] =
    "Usage: twill-page --job PID|NAME [--serve [ADDRESS:]PORT[,open]]\n"
    "       twill-page --read --job PID|NAME\n"
    "Serve a web page of a running job, until SIGTERM. Use it as twillrun --page or\n"
    "twill-info --page.\n"
    "\n"
    "      --job PID|NAME  the job, as for twill-info --job\n"
    "      --serve WHERE   address and port (127.0.0.1 and any); open: no token\n"
    "      --hosts LIST    instead of --job: hosts to ask through twillrun\n"
    "      --linked        end with standard input, a socket of twillrun\n"
    "      --read          answer lines of standard input with JSON instead\n"
    "  -h, --help  -V, --version\n";

/* The command line. Strings are NULL if not given. */
struct page_options {
    const char *job, *serve, *hosts;
    bool linked, read;
};

/* The server, a variable of main(). */
struct page_server {
    struct page_state state;
    char token[SECRET_TEXT]; /* empty: none is needed */
    char policy[320];        /* Content-Security-Policy */
    char *page;              /* page_html with a nonce */
};

/* Write 128 random bits to `text`. Returns false if there are none. */
static bool make_secret(char text[SECRET_TEXT])
{
    unsigned char bytes[(SECRET_TEXT - 1) / 2];
    bool good = getrandom(bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes);
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return good;
}

/* Return whether a word is the token, in a time that does not depend on where it differs. */
static bool is_token(const char *token, const char *word)
{
    volatile unsigned char differs = 0;
    if (word == NULL || strlen(word) != SECRET_TEXT - 1)
        return false;
    for (size_t i = 0; i < SECRET_TEXT - 1; i++)
        differs |= (unsigned char)(token[i] ^ word[i]);
    return differs == 0;
}

/* Return whether a Host header names this machine in a way that no other site can: by an address,
 * localhost, or the name of this host. */
static bool is_own_host(const char *header)
{
    char name[256] = "", here[256] = "";
    unsigned char address[sizeof(struct in6_addr)];
    if (header == NULL || strlen(header) >= sizeof(name))
        return false;
    if (header[0] == '[')
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(header + 1, "]"), header + 1);
    else
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(header, ":"), header);
    (void)gethostname(here, sizeof(here) - 1);
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1 ||
           strcasecmp(name, "localhost") == 0 || (here[0] != '\0' && strcasecmp(name, here) == 0);
}

/* Queue an answer. `text` is copied if it is not constant for the life of the server. */
static enum MHD_Result answer(const struct page_server *server, struct MHD_Connection *connection,
                              unsigned code, const char *type, const char *text, bool constant)
{
    const char *const headers[][2] = {{"Content-Type", type},
                                      {"Content-Security-Policy", server->policy},
                                      {"Cache-Control", "no-store"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Cross-Origin-Resource-Policy", "same-origin"}};
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)(size_t)text,
                                        constant ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result = response == NULL ? MHD_NO : MHD_YES;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]) && result == MHD_YES; i++)
        result = MHD_add_response_header(response, headers[i][0], headers[i][1]);
    if (result == MHD_YES)
        result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* Answer with the state of the job, or with the last events of a rank if one is named. */
static enum MHD_Result answer_state(struct page_server *server, struct MHD_Connection *connection)
{
    struct json_object *made;
    const char *word = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "rank");
    const char *text = page_state_text(&server->state, word != NULL ? atoi(word) : -1, &made);
    enum MHD_Result result =
        answer(server, connection, MHD_HTTP_OK, "application/json", text, false);
    json_object_put(made);
    return result;
}

/* Answer a request, whose type libmicrohttpd prescribes. */
static enum MHD_Result handle_request(void *user, struct MHD_Connection *connection,
                                      const char *path, const char *method, const char *version,
                                      const char *data, size_t *bytes, void **request)
{
    struct page_server *server = user;
    const char *plain = "text/plain; charset=utf-8";
    (void)version, (void)data, (void)bytes;
    if (*request == NULL) { /* libmicrohttpd calls again when all headers have been read */
        *request = server;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return answer(server, connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain, "GET only\n", true);
    if (!is_own_host(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return answer(server, connection, MHD_HTTP_FORBIDDEN, plain,
                      "the name of this host is wrong: use its address, or localhost\n", true);
    if (server->token[0] != '\0' &&
        !is_token(server->token,
                  MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")))
        return answer(server, connection, MHD_HTTP_FORBIDDEN, plain,
                      "the token is missing or wrong: use the whole address that was printed\n",
                      true);
    if (strcmp(path, "/state") == 0)
        return answer_state(server, connection);
    if (strcmp(path, "/") == 0)
        return answer(server, connection, MHD_HTTP_OK, "text/html; charset=utf-8", server->page,
                      true);
    return answer(server, connection, MHD_HTTP_NOT_FOUND, plain, "no such page\n", true);
}

/* Draw the token, unless `open`, and a nonce that permits the page's own script and style. Returns
 * false if there are no random bits or no memory. */
static bool draw_secrets(struct page_server *server, bool open)
{
    char nonce[SECRET_TEXT];
    server->page = strdup(page_html);
    if (server->page == NULL || !make_secret(server->token) || !make_secret(nonce))
        return false;
    for (char *at = server->page; (at = strstr(at, NONCE_IN_SOURCE)) != NULL;)
        memcpy(at, nonce, SECRET_TEXT - 1);
    snprintf(server->policy, sizeof(server->policy),
             "default-src 'none'; connect-src 'self'; img-src data:; script-src 'nonce-%s'; "
             "style-src 'nonce-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    if (open)
        server->token[0] = '\0';
    return true;
}

/* Set *found to the address of [ADDRESS:]PORT, or any free port of 127.0.0.1 if the text is NULL,
 * for freeaddrinfo(). Returns false after a message. */
static bool find_address(const char *text, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    char copy[300], *host = copy;
    snprintf(copy, sizeof(copy), "%.*s", text != NULL ? (int)strcspn(text, ",") : 0,
             text != NULL ? text : "");
    char *port = strrchr(copy, ':');
    if (port != NULL)
        *port++ = '\0';
    else
        port = copy, host = NULL;
    if (host != NULL && host[0] == '[') {
        host++;
        host[strcspn(host, "]")] = '\0';
    }
    int wrong = getaddrinfo(host != NULL && *host != '\0' ? host : "127.0.0.1",
                            *port != '\0' ? port : "0", &hints, found);
    if (wrong != 0)
        fprintf(stderr, "twill-page: %s: not [ADDRESS:]PORT[,open]: %s\n", text,
                gai_strerror(wrong));
    return wrong == 0;
}

/* Start the server. Returns it, or NULL after a message. */
static struct MHD_Daemon *start(struct page_server *server, const char *serve)
{
    struct addrinfo *found;
    const char *comma = serve != NULL ? strchr(serve, ',') : NULL;
    char host[256] = "";
    if (comma != NULL && strcmp(comma, ",open") != 0) {
        fprintf(stderr, "twill-page: %s: not [ADDRESS:]PORT[,open]\n", serve);
        return NULL;
    }
    if (!draw_secrets(server, comma != NULL) || !find_address(serve, &found))
        return NULL;
    unsigned flags = MHD_USE_EPOLL | (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, handle_request, server, MHD_OPTION_SOCK_ADDR,
                         found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, MOST_VIEWERS,
                         MHD_OPTION_CONNECTION_TIMEOUT, MOST_SECONDS, MHD_OPTION_END);
    int why = errno;
    (void)getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof(host), NULL, 0,
                      NI_NUMERICHOST);
    freeaddrinfo(found);
    if (daemon == NULL) {
        fprintf(stderr, "twill-page: cannot serve at %s: %s\n", serve != NULL ? serve : host,
                strerror(why));
        return NULL;
    }
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        (void)gethostname(host, sizeof(host) - 1);
    bool six = strchr(host, ':') != NULL;
    fprintf(stderr, "%s: page: http://%s%s%s:%u/%s%s\n",
            server->state.linked ? "twillrun" : "twill-info", six ? "[" : "", host, six ? "]" : "",
            MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port,
            server->token[0] != '\0' ? "?token=" : "", server->token);
    if (server->state.linked)
        dprintf(STDIN_FILENO, "ready\n");
    return daemon;
}

/* Serve until the end of twillrun, or for ever. */
static void serve_all(struct page_server *server, struct MHD_Daemon *daemon)
{
    int fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    struct pollfd polls[2] = {{.fd = fd, .events = POLLIN},
                              {.fd = server->state.linked ? STDIN_FILENO : -1, .events = POLLIN}};
    for (;;) {
        (void)poll(polls, 2, MOST_SECONDS * 100);
        if (polls[1].revents != 0 && !page_state_receive(&server->state))
            return;
        if (MHD_run(daemon) != MHD_YES)
            return;
    }
}

#define PAGE_AT(member) offsetof(struct page_options, member)
static const struct twill_option options_of_page[] = {
    {0, "job", OPTION_TEXT, PAGE_AT(job), 1, 0, "a PID or a name", NULL, 0},
    {0, "serve", OPTION_TEXT, PAGE_AT(serve), 0, 0, NULL, NULL, 0},
    {0, "hosts", OPTION_TEXT, PAGE_AT(hosts), 1, 0, "a list of hosts", NULL, 0},
    {0, "linked", OPTION_SWITCH, PAGE_AT(linked), 0, 0, NULL, NULL, 0},
    {0, "read", OPTION_SWITCH, PAGE_AT(read), 0, 0, NULL, NULL, 0},
};

/* Serve the page or read for one. Returns 0, 1 after a failure, or 2 for a wrong command line. */
int main(int argc, char **argv)
{
    static struct page_server server;
    struct page_options options = {.job = NULL};
    const struct twill_command command = {"twill-page", usage, options_of_page,
                                          sizeof(options_of_page) / sizeof(options_of_page[0])};
    enum twill_parsed parsed = twill_options_parse(&command, &options, argc, argv, true);
    if (parsed != TWILL_PARSED_RUN)
        return parsed == TWILL_PARSED_DONE ? 0 : 2;
    if ((options.job == NULL) == (options.hosts == NULL)) {
        fprintf(stderr, "twill-page: one of --job and --hosts is needed\n");
        return 2;
    }
    if (options.read)
        return page_state_read(options.job);
    (void)signal(SIGPIPE, SIG_IGN);
    page_state_open(&server.state, options.job, options.hosts, options.linked);
    struct MHD_Daemon *daemon = start(&server, options.serve);
    if (daemon == NULL)
        return 1;
    serve_all(&server, daemon);
    MHD_stop_daemon(daemon);
    free(server.page);
    return 0;
}
