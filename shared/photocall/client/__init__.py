"""The Python client: `Client` and `AsyncClient`, for jobs, batches and their answers. Needs the extra `client` (httpx).

    with Client("http://127.0.0.1:8080") as photocall:
        job = photocall.ask("photo", {"damaged": {"type": "noul", "instructions": "Is it damaged?"}},
                            images={"photo": Path("parcel.jpg")})
        print(job.answers["damaged"]["noul"])

A picture is uploaded once, under the hash of its bytes, and again by itself when the server has forgotten it.
"""

from photocall.client.async_client import AsyncClient
from photocall.client.batch_flows import Batch, Row
from photocall.client.errors import ClientError, JobFailed, NotAnswered, RequestRefused
from photocall.client.flows import Image, Job, Picture
from photocall.client.sync_client import Client

__all__ = [
    "AsyncClient",
    "Batch",
    "Client",
    "ClientError",
    "Image",
    "Job",
    "JobFailed",
    "NotAnswered",
    "Picture",
    "RequestRefused",
    "Row",
]
