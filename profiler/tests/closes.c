/* Descriptors that change their kind. Prints nothing; the records tell. Each use has its own size.
 * */
#include "datagrams.h"

#include <fcntl.h>
#include <stdio.h>

int main(void)
{
    int fd = datagram_socket(), other, null;
    FILE *stream;
    char zeros[1000] = {0};
    send_times(fd, 10, 1);
    other = dup(fd); /* one connection, two descriptors */
    send_times(other, 11, 1);
    null = open("/dev/null", O_WRONLY);
    if (write(null, zeros, 500) != 500)
        return 1;
    if (dup2(null, fd) != fd || write(fd, zeros, 501) != 501) /* now a file */
        return 1;
    close(null);
    if (dup2(other, null) != null) /* now a socket */
        return 1;
    send_times(null, 12, 1);
    stream = fdopen(null, "r+");
    if (!stream || fclose(stream))
        return 1;
    if (open("/dev/null", O_WRONLY) != null || write(null, zeros, 502) != 502) /* now a file */
        return 1;
    close(null);
    if (datagram_socket() != null) /* another socket */
        return 1;
    send_times(null, 13, 1);
    return 0;
}
