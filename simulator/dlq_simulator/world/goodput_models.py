"""Six models of Pollux' evaluation, as `goodput` describes them.

The step times are fitted to the measurements that the authors published with their simulator
(petuum/adaptdl, branch osdi21-artifact, simulator/traces: NOTICE). These are 648 to 2,119 steps of
each model on 1 to 64 GPUs, 4 in a node. The fit is that of the released program. It makes the root
mean square error of the logarithm small, of whole steps and of their computing. Half of the steps
are foretold within 4 to 7 %. The noise is that with which the training needs the recorded number of
steps at the largest batch. The figures at other batches then come out within 4 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlq_simulator.world.goodput import TrainedModel

# Name, T_grad, T_sync between nodes, T_sync in a node, overlap, noise, batches, local, steps.
_EVERY = (
    TrainedModel(
        "bert", 0.1719, 0.05861, 1.386, 0.009432, 0.2489, 0.04308, 1.902, 9367.0, 12, 384,
        (4, 12), 14774,
    ),
    TrainedModel(
        "cifar10", 0.01742, 0.0007008, 0.1221, 0.002643, 0.02832, 0.005159, 2.073, 6001.0, 128,
        4096, (32, 1024), 39062,
    ),
    TrainedModel(
        "deepspeech2", 0.3108, 0.02385, 0.4877, 0.009824, 3.44e-07, 0.09723, 1.414, 1021.0, 20,
        640, (10, 80), 28536,
    ),
    TrainedModel(
        "imagenet", 0.06411, 0.004481, 0.2996, 0.006639, 0.05812, 0.01774, 2.473, 20616.0, 200,
        12800, (20, 200), 576525,
    ),
    TrainedModel(
        "ncf", 0.006957, 6.347e-07, 0.0146, 0.000541, 0.003157, 0.001159, 1.0, 1589917.0, 256,
        32768, (32, 32768), 194174,
    ),
    TrainedModel(
        "yolov3", 0.1874, 0.02536, 0.7444, 0.01072, 0.06154, 0.08063, 1.1, 526.0, 8, 512,
        (4, 8), 103444,
    ),
)  # fmt: skip
MODELS: Mapping[str, TrainedModel] = MappingProxyType({model.name: model for model in _EVERY})
