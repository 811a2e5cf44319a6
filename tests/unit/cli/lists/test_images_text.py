"""Which image the last attempt ran, for people."""

from dlq.v1 import job_pb2
from dlq_cli.lists.story import images_text


def attempt(*digests: str) -> job_pb2.Attempt:
    ranks = [
        job_pb2.Rank(node_rank=number, node_id=f"gpu0{number}", image_digest=digest)
        for number, digest in enumerate(digests)
    ]
    return job_pb2.Attempt(ranks=ranks)


def test_one_image_is_one_line_and_processes_have_none() -> None:
    assert images_text([]) == ""
    assert images_text([attempt("", "")]) == ""
    assert images_text([attempt("sha256:old"), attempt("sha256:a", "sha256:a", "")]) == (
        "image: sha256:a\n"
    )


def test_a_tag_that_has_moved_is_told_by_node() -> None:
    assert images_text([attempt("sha256:a", "sha256:b", "sha256:a")]) == (
        "image: sha256:a on gpu[00,02]\nimage: sha256:b on gpu01\n"
    )
