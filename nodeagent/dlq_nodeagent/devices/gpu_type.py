"""The short word for a GPU model: the driver's name in the form that users write."""

import re

from dlq_nodeagent.devices.port import GIB

# Models whose usable memory is well below the size they are sold under (ECC, reserved pages).
_SOLD_AS_GB = {
    "t4": 16,
    "a10": 24,
    "a10g": 24,
    "l4": 24,
    "a40": 48,
    "l40": 48,
    "l40s": 48,
    "h200": 141,
}
_VENDOR_WORDS = {"nvidia", "tesla", "quadro", "geforce", "graphics", "device"}
_FORM_WORDS = {"pcie", "nvl", "hbm2", "hbm2e", "hbm3", "hbm3e", "ada", "generation"}
_SXM = re.compile(r"^sxm\d?$")
_MEMORY = re.compile(r"^(\d+)gb$")
_WORD = re.compile(r"[a-z0-9]+")


def gpu_type_of(model_name: str, memory_bytes: int) -> str:
    """The short word of a model: "NVIDIA H100 80GB HBM3" -> "h100-80gb".

    The memory is the size in the name, else the size the model is sold under, else the reported
    size rounded to whole GiB. Equal cards on different drivers therefore get equal words.
    """
    words = [word for word in _WORD.findall(model_name.lower()) if word not in _VENDOR_WORDS]
    named = [match.group(1) for match in map(_MEMORY.match, words) if match]
    model = "".join(word for word in words if _is_model_word(word)) or "gpu"
    size_gb = int(named[0]) if named else _SOLD_AS_GB.get(model, round(memory_bytes / GIB))
    return f"{model}-{size_gb}gb"


def _is_model_word(word: str) -> bool:
    return not (word in _FORM_WORDS or _SXM.match(word) or _MEMORY.match(word))
