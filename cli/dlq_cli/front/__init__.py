"""The server of a user's commands: a loop of them need not start an interpreter each time.

The stand-ins for Slurm's commands are a small C program (client/dlq_compat/front). It hands a call
to a process of this room, which has everything imported. Without one it takes the slow way: a
Python of its own, with the same answer.

    server    keeps two spare processes ready; ends when nobody calls, or when dlq was upgraded
    login     the login session in which it lives: a server ends with it
    spare     one process: takes a call, runs the command, and takes the next one
    likeness  such a process becomes like its caller, and like nobody again
    request   the bytes of a call
    line      one process with the line to the master, for all calls; and the end of it in a spare
    streams   streams on this line, at both of its ends
    frames    what passes between the two

A server belongs to one user, in a directory that nobody else may enter. It serves callers that
stand where it stands: same groups, limits, cgroup and namespaces, which its key says. A restart of
master or agent is nothing to it: the line is renewed as any other. Jobs have no server.
"""
