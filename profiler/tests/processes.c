/* A parent sends 7 times, its forked child 5, and the program that this becomes by exec 11. A child
 * of the bare system call sends 3, and one that posix_spawn starts 11; all over sockets of the
 * parent and own ones. Then the parent sends twice more, of 300 bytes. */
#include "datagrams.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static int wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(int argc, char **argv)
{
    char *again[] = {argv[0], "again", NULL};
    int fd = datagram_socket();
    pid_t child;
    if (argc > 1) {
        send_times(fd, 200, 11);
        return 11;
    }
    send_times(fd, 100, 7);
    child = fork();
    if (child == 0) {
        send_times(fd, 100, 5);
        execve(again[0], again, environ);
        _exit(99);
    }
    printf("fork and exec %d\n", wait_for(child));
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        send_times(fd, 100, 3);
        _exit(3);
    }
    printf("clone %d\n", wait_for(child));
    if (posix_spawn(&child, again[0], NULL, NULL, again, environ))
        return 2;
    printf("spawn %d\n", wait_for(child));
    child = vfork(); /* shares our memory until it execs */
    if (child == 0) {
        close(fd);
        execve(again[0], again, environ);
        _exit(99);
    }
    printf("vfork %d\n", wait_for(child));
    send_times(fd, 300, 2);
    return 0;
}
