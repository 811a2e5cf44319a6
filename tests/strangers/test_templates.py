"""Shell templates of workflow programs in Java, word for word: Nextflow, Cromwell."""

import re

from strangers.site import Account
from support.waiting import wait_until


def test_nextflow(user: Account) -> None:
    """Its header, its submission, its poll and its kill."""
    user.write(
        ".command.run",
        "#!/bin/bash\n#SBATCH -J nf-hello_(1)\n"
        f"#SBATCH -o {user.home}/.command.log\n#SBATCH --no-requeue\n#SBATCH --signal B:USR2@30\n"
        "#SBATCH -c 1\n#SBATCH -t 00:05:00\n#SBATCH --mem 100M\n"
        "echo hello; echo 0 > .exitcode; sleep 1\n",
    )
    said = user.run("sbatch", ".command.run").stdout
    found = re.search(r"Submitted batch job (\d+)", said)
    assert found, said

    def polled() -> str:
        words = ("--noheader", "-o", "%i %t", "-t", "all", "-u", user.who.pw_name)
        return user.run("squeue", *words).stdout

    assert re.fullmatch(r"(\S+ [A-Z]{1,3}\n)+", polled())
    user.until(".exitcode", "0")
    assert user.until(".command.log", "hello") == "hello\n"
    wait_until(lambda: f"{found[1]} CD" in polled(), what="it is completed")
    user.run("scancel", found[1])  # of an ended job: no error


def test_cromwell(user: Account) -> None:
    """The backend of its documentation."""
    user.write("script", "echo out; echo err >&2; echo 0 > rc\n")
    said = user.run(
        "sbatch", "-J", "cromwell_1_call", "-D", user.home, "-o", "stdout", "-e", "stderr",
        "-t", "5", "-c", "1", "--mem-per-cpu", "100", "--wrap", "/bin/bash script",
    ).stdout  # fmt: skip
    found = re.search(r"Submitted batch job (\d+).*", said)
    assert found, said
    user.run("squeue", "-j", found[1])
    user.until("rc", "0")
    assert user.until("stdout", "out") == "out\n"
    assert user.until("stderr", "err") == "err\n"
