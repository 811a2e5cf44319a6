"""`sacct`, `sacctmgr`, `sshare`, `sprio`, `sdiag`, `sreport`: accounts of jobs and of users."""
