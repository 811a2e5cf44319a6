"""The calls that both schedulers answer; those that change jobs come last, in order."""

from __future__ import annotations


def _listed(text: str) -> list[str]:
    return text.split(",")


_SQUEUE_LETTERS = "aAbBcCdDEfFgGhHiIjJkKlLmMnNoOpPqQrRStTuUvwxXyYzZWV"
_SQUEUE_NAMES = _listed(
    "account,accruetime,admin_comment,arrayjobid,arraytaskid,associd,batchflag,batchhost,"
    "boardspernode,burstbuffer,burstbufferstate,cluster,clusterfeature,command,comment,"
    "container,contiguous,cores,corespec,cpus-per-task,cpus-per-tres,deadline,delayboot,"
    "dependency,derivedec,eligibletime,endtime,exit_code,feature,groupid,groupname,hetjobid,"
    "hetjobidset,hetjoboffset,jobarrayid,jobid,licenses,maxcpus,maxnodes,mcslabel,"
    "mem-per-tres,mincpus,minmemory,mintime,mintmpdisk,name,network,nice,nodelist,nodes,"
    "ntperboard,ntpercore,ntpernode,ntpersocket,numcpus,numnodes,numtasks,origin,originraw,"
    "oversubscribe,partition,pendingtime,preempttime,prefer,priority,prioritylong,profile,"
    "qos,reason,reasonlist,reboot,reqnodes,reqswitch,requeue,reservation,resizetime,"
    "restartcnt,resvport,schednodes,sct,selectjobinfo,siblingsactive,siblingsactiveraw,"
    "siblingsviable,siblingsviableraw,sockets,sperboard,starttime,state,statecompact,stderr,"
    "stdin,stdout,submittime,system_comment,threads,timeleft,timelimit,timeused,tres-alloc,"
    "tres-bind,tres-freq,tres-per-job,tres-per-node,tres-per-socket,tres-per-task,userid,"
    "username,wait4switch,wckey,workdir"
)
_SQUEUE = (
    "squeue", "squeue -h", "squeue -l -h", "squeue --me", "squeue -u USER", "squeue -u nobody1",
    "squeue -t all", "squeue -t R", "squeue -t PD -h -o %i", "squeue -t PENDING,RUNNING",
    "squeue -t cd,f -h -o '%i %t'", "squeue -t foo", "squeue -j 3", "squeue -j 3,4 -h",
    "squeue -j 10", "squeue -j 10_2", "squeue -r -j 10", "squeue -j 99", "squeue -j 3,99 -h",
    "squeue -j x", "squeue -j 1", "squeue -n train", "squeue -n train,wide -h", "squeue -p gpu -h",
    "squeue -p nope", "squeue -A lab -h", "squeue -A other", "squeue -q normal -h",
    "squeue -q high", "squeue -w n1 -h", "squeue -w n[1-2] -h -o %i", "squeue -w nope",
    "squeue -S i -h", "squeue -S -i -h -o %i", "squeue -S P,-t,j -h -o '%i %j'", "squeue --start",
    "squeue -s", "squeue -s -h", "squeue -s 3", "squeue -i x", "squeue --bogus", "squeue foo",
    "squeue -y", "squeue -M torture -h", "squeue -M other", "squeue --nohead", "squeue -L x",
    "squeue -R x", "squeue --usage", "squeue -o", "squeue --format", "squeue -o %~ -j 3",
    "squeue -O bad -j 3", "squeue -O jobid:5,name:.10,state -j 3",
    "squeue -o '%.10i|%-5t|%20j' -j 3", "squeue -h -o '%all' -j 99", "squeue --array -h -j 10",
    "squeue -a -h", "squeue --hide -h", "squeue --local -h", "squeue --users=USER -h -o %i",
    "squeue --job 3 -h", "squeue --jobs=3 -h", "squeue --states=RUNNING -h",
    "squeue -h -t R -o '%i %N %D'", "squeue -h -o '%i %R'", "squeue -u USER,root -h -o %u",
)  # fmt: skip
_SINFO_LETTERS = "abBcCdDEfFgGhHiIlLmMnNopPrRsStTuUwXYzZ"
_SINFO = (
    "sinfo", "sinfo -h", "sinfo -l -h", "sinfo -s", "sinfo -N", "sinfo -N -h", "sinfo -R",
    "sinfo -R -h", "sinfo -p gpu", "sinfo -p nope", "sinfo -n n1", "sinfo -n n1 -h -o '%n %t'",
    "sinfo -n zz", "sinfo -t idle", "sinfo -t mix -h", "sinfo -t mixed,alloc -h -o %N",
    "sinfo -t foo", "sinfo -O nodelist,statelong", "sinfo -O bad", "sinfo -o %~", "sinfo --bogus",
    "sinfo -y", "sinfo -e -h", "sinfo -d", "sinfo -r -h", "sinfo -a -h", "sinfo --usage",
    "sinfo -M torture -h", "sinfo -M other", "sinfo -o '%P|%D|%t'", "sinfo -o '%.5P %10N' -h",
    "sinfo -h -o '%R %F'", "sinfo -N -o '%N %c %m %G' -h", "sinfo -T", "sinfo -S N -h",
    "sinfo -O partition,available,time,nodes,statecompact,nodelist", "sinfo -o", "sinfo -i x",
    "sinfo -O gresused:40,gres:40", "sinfo -O cpusstate,memory,weight", "sinfo --noheader",
)  # fmt: skip
_SCONTROL = (
    *(f"scontrol show job {job}" for job in range(1, 11)),
    "scontrol show job 10_2", "scontrol show job 10_9", "scontrol show job 99",
    "scontrol show job x", "scontrol show jobs 3", "scontrol show jobid=3", "scontrol show jobid 3",
    "scontrol -o show job 3", "scontrol show job 3 -o", "scontrol show job -d 3",
    "scontrol --oneliner show job 4", "scontrol show node", "scontrol show node n1",
    "scontrol -o show node n2", "scontrol show nodes n[1-2]", "scontrol show node zz",
    "scontrol show partition", "scontrol show partition gpu", "scontrol -o show part gpu",
    "scontrol show partition zz", "scontrol show hostnames n[1-3,7]",
    "scontrol show hostnames a,b[1-2]", "scontrol show hostlist n1,n2,n3,x",
    "scontrol show hostlistsorted n3,n1,n2", "scontrol show hostnames", "scontrol show reservation",
    "scontrol show reservation x", "scontrol show licenses", "scontrol show topology",
    "scontrol show federation", "scontrol show burstbuffer", "scontrol show foo", "scontrol foo",
    "scontrol show", "scontrol show step 3", "scontrol show step 3.batch", "scontrol show step 99",
    "scontrol show assoc_mgr foo", "scontrol ping", "scontrol version", "scontrol -V",
    "scontrol --bogus", "scontrol completing", "scontrol write batch_script 3 -",
    "scontrol write batch_script 99", "scontrol write foo", "scontrol show daemons",
    "scontrol show aliases n1", "scontrol getaddrs n1", "scontrol wait_job 3", "scontrol wait_job",
    "scontrol wait_job 99", "scontrol hold", "scontrol hold 99", "scontrol release 99",
    "scontrol release", "scontrol requeue 99", "scontrol requeue 5", "scontrol requeue",
    "scontrol suspend 99", "scontrol resume 99",
    "scontrol top 5", "scontrol top", "scontrol notify 3", "scontrol notify 99 hi",
    "scontrol update", "scontrol update jobid=99 timelimit=5", "scontrol update jobid=3 bogus=1",
    "scontrol update timelimit=5", "scontrol update nodename=n1 state=drain reason=x",
    "scontrol update partitionname=gpu state=down", "scontrol create reservation",
    "scontrol delete reservation=x", "scontrol reconfigure", "scontrol shutdown",
    "scontrol takeover", "scontrol setdebug info", "scontrol reboot n1", "scontrol hold x",
    "scontrol listpids 99", "scontrol -M other show job 3", "scontrol token username=x",
    "scontrol errnumstr 2017", "scontrol uhold 99", "scontrol requeuehold 99",
)  # fmt: skip
_SACCT = (
    "sacct", "sacct -n", "sacct -X", "sacct -b", "sacct -l -j 2 -P", "sacct -j 1", "sacct -j 2 -X",
    "sacct -j 3,4", "sacct -j 5,6,7,9", "sacct -j 9 -o JobID,State%30,Start,End,Elapsed",
    "sacct -j 10 -X -o JobID,JobIDRaw,State", "sacct -j 10_3", "sacct -j 99", "sacct -j 3.batch",
    "sacct -j 1,,3 -X -n -o JobID", "sacct -j x", "sacct -s CD", "sacct -s CD -S 00:00 -E now -X",
    "sacct -s CD,F -S 00:00", "sacct -s PD", "sacct -s R -n -o JobID", "sacct -s BAD",
    "sacct -u USER -X -n -o JobID", "sacct -u root", "sacct -u nobody1", "sacct -a -X -n -o JobID",
    "sacct -A lab -X -n -o JobID", "sacct -A other", "sacct -r gpu -X -n -o JobID",
    "sacct -r nope -X -n", "sacct --name train,wide -X -o JobID%5,JobName",
    "sacct -N n1 -X -o JobID",
    "sacct -N zz", "sacct -E 2020-01-01", "sacct -S 2030-01-01",
    "sacct -S now-1days -X -n -o JobID",
    "sacct -S foo", "sacct -j 3 -p -o JobID,State", "sacct -j 3 -P --delimiter=, -o JobID,State",
    "sacct -o bad", "sacct -o JobID -j 3 -q normal", "sacct -q high", "sacct -g nogroup -X",
    "sacct -D -j 1 -o JobID", "sacct -j 3 -o jobid%-20,state%3", "sacct --helpformat", "sacct -V",
    "sacct --usage", "sacct foo", "sacct -Z", "sacct --bogus", "sacct -o", "sacct -M other",
    "sacct -M torture -j 3 -X", "sacct -c", "sacct -j 1,2,3 -n -P -o JobID,State,ExitCode,NodeList",
    "sacct -j 1 -o jobid,work -P", "sacct -j 2 -P -o ALL -X", "sacct -j 4 -P -o ALL -X",
    "sacct -j 1 -P -n -o JobID,NTasks,NCPUS,AllocTRES,NodeList,Layout",
    "sacct -j 1 --parsable2 --noheader --format=JobIdRaw,State", "sacct -L -j 3 -X -n -o JobID",
)  # fmt: skip
_SORTS_AND_TRIGGERS = (
    "squeue -S K", "squeue -h -S i,~", "sinfo -N -h -S -N", "sinfo -h -S +t,-N", "strigger",
    "strigger --get", "strigger --bogus", "strigger --set --fini -p x", "strigger --clear",
    "strigger --clear --id=1", "strigger --set --fini --jobid=3 -p /bin/true",
    "strigger --set --node --down -p /bin/true", "strigger --get --noheader",
    "sbatch -t 1- -H -G1 good.sh", "sbatch -t 90s -H -G1 good.sh", "sbatch --nonsense=1 good.sh",
    "sbatch --array=7 -H -G1 -J single good.sh", "squeue -h -n single -o '%i %K'",
    "squeue -r -h -n single -o %K", "sbatch --array=0-12:2 -H -G1 -J steps good.sh",
    "squeue -h -n steps -o %K", "sbatch --array=0-3,10,20,30 -H -G1 -J gaps good.sh",
    "squeue -h -n gaps -o %K",
)  # fmt: skip
_ACCOUNTS = (
    "sacctmgr show account", "sacctmgr list accounts -n -P", "sacctmgr show account lab -P",
    "sacctmgr show account zz", "sacctmgr -s show account -P", "sacctmgr show user USER",
    "sacctmgr show user USER withassoc", "sacctmgr -n -s list user USER format=account%256",
    "sacctmgr show user", "sacctmgr show assoc -n -P format=cluster,account,user",
    "sacctmgr -nP list associations user=USER format=account,qos", "sacctmgr show assoc",
    "sacctmgr show assoc where user=nobody1", "sacctmgr show assoc tree user=USER",
    "sacctmgr show assoc format=bad", "sacctmgr show assoc foo=bar", "sacctmgr show qos",
    "sacctmgr show qos format=name,priority -P", "sacctmgr show qos high",
    "sacctmgr -Q show qos -nP format=name", "sacctmgr show cluster",
    "sacctmgr -nP show cluster format=cluster,nodecount", "sacctmgr list tres",
    "sacctmgr show tres -nP", "sacctmgr show foo", "sacctmgr show", "sacctmgr foo",
    "sacctmgr --bogus", "sacctmgr ping", "sacctmgr -i add account x", "sacctmgr -i delete user zed",
    "sacctmgr -i modify user USER set maxjobs=1", "sacctmgr show event", "sacctmgr show wckey",
    "sacctmgr show assoc user=USER format=user%30,account%-20,defaultqos", "sacctmgr shutdown",
    "sacctmgr show coordinator",
    "sacctmgr --parsable2 --noheader show user USER format=defaultaccount",
    "sshare", "sshare -a", "sshare -l -n", "sshare -u USER -P", "sshare -n -P", "sshare -A lab -a",
    "sshare -A zz", "sshare -U", "sshare -U -n -o Account%30", "sshare -m", "sshare -e",
    "sshare -o Account,User%20,FairShare", "sshare -o bad", "sshare --bogus", "sshare -p -h",
    "sprio", "sprio -l", "sprio -j 4", "sprio --bogus", "sprio foo", "sdiag", "sdiag -r",
    "sdiag --bogus", "sdiag --json", "sreport foo", "sreport cluster foo", "sreport --bogus",
    "sreport user topusage", "sreport job foo",
)  # fmt: skip
_JSON = (
    "squeue --json", "sinfo --json", "sacct -j 1 --json", "sacct -j 3 --json", "sacct -j 9 --json",
    "sacct --json", "squeue -j 3 --json", "sacct -j 99 --json",
)  # fmt: skip
_SUBMIT = (
    "sbatch --test-only -G1 good.sh", "sbatch --bogus good.sh", "sbatch nothere.sh",
    "sbatch -G100 good.sh", "sbatch -p nope good.sh", "sbatch -t x good.sh", "sbatch -N x good.sh",
    "sbatch -d afterok:999 good.sh", "sbatch --array=5-1 good.sh", "sbatch --mem=x good.sh",
    "sbatch --gres=gpu:x:y:z good.sh", "sbatch --begin=foo good.sh", "sbatch -y good.sh",
    "sbatch --parsable -H -G1 good.sh", "sbatch -H -G1 --wrap 'echo hi'",
    "sbatch --array=1-3 -H -G1 good.sh", "srun --bogus true", "srun -t x true", "srun -p nope true",
    "salloc --bogus", "salloc -p nope true", "sbatch -V", "srun -V", "squeue -V",
)  # fmt: skip
# What they change is seen by the calls between them.
CHANGING = (
    "scontrol hold 6", "squeue -h -j 6 -o '%i %t %r'", "scontrol release 6",
    "squeue -h -j 6 -o '%i %t %r'", "scontrol update jobid=5 jobname=other",
    "squeue -h -j 5 -o %j", "scontrol update job 5 timelimit=20", "squeue -h -j 5 -o %l",
    "scontrol update jobid=5 nice=10", "scontrol hold jobname=wide", "squeue -h -j 4 -o '%t %r'",
    "scontrol release jobname=wide", "scancel", "scancel 99", "scancel x", "scancel 3x",
    "scancel -s FOO 3", "scancel --bogus 3", "scancel -t foo", "scancel -s URG 8",
    "scancel -v 5", "squeue -h -j 5 -o %t", "scancel 5", "scancel 1", "scancel -Q 99",
    "scancel -s CONT 8", "scancel --signal=18 -b 8", "scancel -f -s CONT 8", "scancel 10_1",
    "squeue -h -j 10 -o '%i %t'", "scancel 10_[2-3]", "squeue -h -j 10 -o '%i %t'",
    "scancel -n many", "squeue -h -j 10 -o '%i %t'", "scancel -t PD -n after",
    "squeue -h -j 6 -o %t", "scancel -p nope -n wide", "scancel -w n2 --me",
    "scancel -A lab -n later",
    "squeue -h -j 7 -o %t", "scancel -u nobody1", "scancel --hurry -n wide",
    "squeue -h -j 4 -o %t", "scancel 3.0", "scancel -v 1", "scancel -v 99", "scancel -s CONT 99",
    "scancel -u USER -t RUNNING", "scancel 8 99", "scontrol hold 1",
    "scontrol requeue 9", "scontrol suspend 1", "scontrol resume 1", "scontrol suspend 3",
    "scontrol update jobid=1 nice=1",
)  # fmt: skip

CALLS = (
    *(f"squeue -h -o '%i %{letter}'" for letter in _SQUEUE_LETTERS),
    *(f"squeue -O jobarrayid,{name}:60" for name in _SQUEUE_NAMES),
    *_SQUEUE,
    *(f"sinfo -o '%{letter}'" for letter in _SINFO_LETTERS),
    *_SINFO, *_SCONTROL, *_SACCT, *_ACCOUNTS, *_JSON, *_SUBMIT, *_SORTS_AND_TRIGGERS, *CHANGING,
)  # fmt: skip
