from dlq_api.aio import AsyncArray as AsyncArray
from dlq_api.aio import AsyncCluster as AsyncCluster
from dlq_api.aio import AsyncGroup as AsyncGroup
from dlq_api.aio import AsyncJob as AsyncJob
from dlq_api.aio import connect as connect
