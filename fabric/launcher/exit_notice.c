/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun's side of TWILL_LAUNCHER_FD: ranks that wait for others in twill_init hear at once that
 * one has ended. */
#include "fabric/bootstrap/exit_notice.h"
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool twill_word_open(struct twill_launch *launch)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, launch->word) == 0)
        return true;
    twill_complain("socketpair: %s", strerror(errno));
    return false;
}

void twill_word_hear(struct twill_launch *launch)
{
    struct twill_launcher_entered entered;
    ssize_t n;
    while ((n = recv(launch->word[0], &entered, sizeof(entered), MSG_DONTWAIT)) > 0)
        for (int i = 0; i < launch->here && n == sizeof(entered); i++)
            if (launch->child[i].rank == (int)entered.rank)
                launch->child[i].entered = true;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    twill_word_close(launch); /* nobody has the other end any more */
}

void twill_word_close(struct twill_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        if (launch->word[i] >= 0)
            close(launch->word[i]);
        launch->word[i] = -1;
    }
}

void twill_word_tell(struct twill_launch *launch, int rank, const char *how)
{
    struct twill_launcher_word word;
    if (launch->told || launch->word[0] < 0)
        return;
    memset(&word, 0, sizeof(word));
    word.rank = (uint32_t)rank;
    word.size = (uint32_t)launch->options->ranks;
    snprintf(word.how, sizeof(word.how), "%s", how);
    launch->told = send(launch->word[0], &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}
