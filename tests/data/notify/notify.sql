INSERT OR REPLACE INTO meta VALUES ('cursor', '41');
INSERT OR REPLACE INTO meta VALUES ('letters', '3');
INSERT INTO digests VALUES ('n17', '', 1795161700.0,
  '{"first_s": 1795161690.0, "counts": {"job_completed": 1}, "notices": [[40, "ended", "job_completed", 1795161690.0, "job 16 (train) has completed after 5s", "16", "train", "", 1, 0]]}');
INSERT INTO letters VALUES ('41-n17-3', 'n17', 'alice', 'waiting', 1795161600.0, 1795161610.0, 1, 'the server answered 503',
  '{"counts": {"job_failed": 1}, "notices": [[41, "failed", "job_failed", 1795161600.0, "job 17 (train) has failed", "17", "train", "", 1, 0]]}');
