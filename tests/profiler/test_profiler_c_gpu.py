"""NCCL itself loads the plugin and reports to it: needs two GPUs, and PyTorch with CUDA in
.venv-torch.
"""

from __future__ import annotations

import hatch_build
import pytest

from dlq_profiler.records.layout import Op, RecordSource
from support.watched_programs import ROOT, Profiling, run

PYTHON = ROOT / ".venv-torch" / "bin" / "python"
JOB = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
data = torch.ones(1000, dtype=torch.float16, device="cuda")
for _ in range(5):
    dist.all_reduce(data)
torch.cuda.synchronize()
dist.destroy_process_group()
"""


@pytest.mark.gpu
def test_nccl_reports_its_collectives(profiling: Profiling) -> None:
    count = "import torch; print(torch.cuda.device_count())"
    if not PYTHON.exists() or int(run(PYTHON, "-c", count).stdout or 0) < 2:
        pytest.skip("needs two GPUs and PyTorch with CUDA")
    job = profiling.directory.with_name("job.py")
    job.write_text(JOB)
    plugin = ROOT / hatch_build.PROFILER_LIBRARIES / hatch_build.PLUGIN_NAME
    profiling.environment.update(LD_PRELOAD="", NCCL_PROFILER_PLUGIN=str(plugin))
    ran = profiling.run(PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", job)
    assert ran.returncode == 0, ran.stderr
    recordings = [r for r in profiling.recordings() if r.source == RecordSource.NCCL_PLUGIN]
    assert len(recordings) == 2
    for recording in recordings:
        reduced = recording.records[recording.records["op"] == Op.ALL_REDUCE]
        assert reduced["bytes"].tolist().count(2000) == 5
