/* dlq-init forward: connections to ports of the job, for `dlq forward`. */
#ifndef DLQ_FORWARD_H
#define DLQ_FORWARD_H

/* Serves stdin and stdout until stdin ends. */
int forward_main(void);

/* Where a port of the job can be reached. */
enum port_place { PORT_ON_4, PORT_ON_6, PORT_CLOSED, PORT_OF_OTHERS };

/* Whether a process of this job listens on the port, on loopback or everywhere. */
enum port_place port_find(int port);

#endif
