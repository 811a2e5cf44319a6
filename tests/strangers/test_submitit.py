"""submitit: functions, arrays, and a checkpoint before the time is over."""

from strangers.site import Account

FUNCTIONS = """
import os, time, submitit
def square(x):
    return x * x
class Steps:
    def __init__(self): self.attempt = 0
    def __call__(self, path):
        open(path, "a").write(f"attempt {self.attempt}\\n")
        if self.attempt == 0:
            time.sleep(600)
        return f"done in attempt {self.attempt}"
    def checkpoint(self, path):
        later = Steps(); later.attempt = self.attempt + 1
        return submitit.helpers.DelayedSubmission(later, path)
def executor():
    made = submitit.AutoExecutor(folder="submitit-%j", cluster="slurm")
    made.update_parameters(timeout_min=5, slurm_setup=["export PYTHONPATH=" + os.getcwd()])
    return made
"""


def test_a_function_and_an_array(user: Account) -> None:
    user.write("functions.py", FUNCTIONS)
    said = user.python(
        "python",
        """
from functions import executor, square
made = executor()
print("ONE", made.submit(square, 7).result())
print("MANY", [job.result() for job in made.map_array(square, [1, 2, 3])])
""",
    )
    assert "ONE 49" in said
    assert "MANY [1, 4, 9]" in said


def test_a_checkpoint_and_a_requeue_when_the_time_is_over(user: Account) -> None:
    user.write("functions.py", FUNCTIONS)
    said = user.python(
        "python",
        """
import os, time
from functions import executor, Steps
path = os.path.abspath("steps.txt")
job = executor().submit(Steps(), path)
while not os.path.exists(path):
    time.sleep(0.2)
time.sleep(1)
job._interrupt(timeout=True)
print("RESULT", job.result())
""",
    )
    assert "RESULT done in attempt 1" in said
