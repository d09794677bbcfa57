"""Stored routing keys against what an engine chose. Runs again under the interpreter, see test_interpreter.py.

Scores are expected in double precision from the values that the pages were made of.
"""

from __future__ import annotations

import pytest
import torch

from kvledger.page_formats import PageFormat
from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.indexer_check import IndexerPages, check_choice, check_counts, index_scores

SPLIT = PageFormat("split", "indexer-fp8", (128, 4), ((0,), (1,)), 64, 0, 8_512)
TOGETHER = PageFormat("rows", "indexer-fp8", (128, 4), ((0, 1),), 16, 132, 2_112)
WIDE = PageFormat("pitched rows", "indexer-fp8", (128, 4), ((0, 1),), 8, 144, 1_152)


def pages_of(form: PageFormat, ids: tuple[int, ...], rows: int) -> tuple[IndexerPages, torch.Tensor]:
    """Return stored pages of random keys with poison between them, and the keys in order, f64."""
    data = torch.full((5, form.page_bytes), 0xA5, dtype=torch.uint8)
    keys = torch.randn(5, form.rows, 128).to(torch.float8_e4m3fn)
    scales = torch.rand(5, form.rows, 1)
    key, scale = form.places()
    for row in range(form.rows):
        data[:, key.base + row * key.stride :][:, :128] = keys[:, row].view(torch.uint8)
        data[:, scale.base + row * scale.stride :][:, :4] = scales[:, row].contiguous().view(torch.uint8)
    exact = (keys.double() * scales.double())[list(ids)].reshape(-1, 128)[:rows]
    return IndexerPages.of(data.view(-1), form, ids, rows), exact


@pytest.mark.parametrize("form", [SPLIT, TOGETHER, WIDE], ids=lambda form: form.name)
def test_scores_are_those_of_the_formula(form):
    """Whatever the format, a query scores every row that it sees, in the order of the page table."""
    torch.manual_seed(4)
    rows = 3 * form.rows - 3
    pages, keys = pages_of(form, (4, 0, 2), rows)
    queries, weights = torch.randn(2, 5, 128), torch.randn(2, 5)
    limits = torch.tensor([rows, 6], dtype=torch.int32)
    want = (torch.einsum("nhd,td->nht", queries.double(), keys).relu() * weights.double()[..., None]).sum(dim=1)

    got = index_scores(pages, queries, weights, limits)

    assert got.shape == (2, rows)
    assert torch.allclose(got[0].double(), want[0], rtol=1e-5, atol=1e-4)
    assert torch.allclose(got[1, :6].double(), want[1, :6], rtol=1e-5, atol=1e-4)
    assert got[1, 6:].isneginf().all()


def test_key_that_is_no_number_gives_a_score_that_is_none():
    """Damage in a key is not lost behind a ReLU: its score is no number, and the check says so."""
    torch.manual_seed(4)
    pages, _ = pages_of(TOGETHER, (0, 1), 20)
    pages.data[132 * 3] = 0x7F
    scores = index_scores(pages, torch.randn(1, 2, 128), torch.ones(1, 2), torch.tensor([20], dtype=torch.int32))

    assert scores.isnan().nonzero().tolist() == [[0, 3]]
    assert check_choice(scores, torch.zeros(1, 1, dtype=torch.long), [20], 1) == [
        "query 0 meets a key that is no number at row 3"
    ]


SCORES = torch.tensor([[0.0, 5.0, 0.0, 3.0, 0.0, 3.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("chosen", "limit", "says"),
    [
        ([1, 3, 5], 8, ""),
        ([5, 1, 3], 8, ""),
        ([1, 3, 0], 4, ""),
        ([1, 2, 3], 4, ""),
        ([1, 0, -1], 2, ""),
        ([-1, -1, -1], 0, ""),
        ([1, 3, 6], 8, "chose row 6 with 1 where 3 rows reach 3"),
        ([1, 3, 3], 8, "chose 2 rows in 3 places instead of 3"),
        ([1, 3, -1], 8, "chose 2 rows in 2 places instead of 3"),
        ([1, 3, 5], 5, "chose row 5 of 5 that it sees"),
        ([1, 3, 99], 8, "chose row 99 of 8 that it sees"),
        ([1, 3, -7], 8, "chose row -7 of 8 that it sees"),
    ],
)
def test_choices_are_right_up_to_ties(chosen, limit, says):
    """Any rows whose scores reach the k-th largest are a right choice, in any order; others are told by number."""
    found = check_choice(SCORES, torch.tensor([chosen]), [limit], 3)

    assert found == ([f"query 0 {says}"] if says else [])


def test_tolerance_makes_near_scores_ties():
    """Scores that differ by less than the tolerance are interchangeable, those that differ by more are not."""
    scores = torch.tensor([[100.0, 50.0, 49.9995]])
    other = torch.tensor([[0, 2]])

    assert check_choice(scores, other, [3], 2) == []
    assert check_choice(scores, other, [3], 2, tolerance=1e-6) != []


def test_counts_and_commits_must_agree():
    """Rows follow from tokens, keys from rows, and both come from one commit; each fault has its sentence."""
    assert check_counts(1_023, 4, 255, 255, (7, 7)) == []
    assert check_counts(1_024, 4, 255, 254, (7, 8)) == [
        "1024 tokens make 256 rows, there are 255",
        "254 keys choose among 255 rows",
        "rows are of commit 7, keys of commit 8",
    ]


DATA = torch.zeros(5 * 2_112, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("data", "form", "ids", "rows", "field"),
    [
        (DATA, TOGETHER, (0, -1), 20, "page_ids[1]"),
        (DATA, TOGETHER, (0, 5), 20, "page_ids[1]"),
        (DATA, TOGETHER, (0, 1), 33, "rows"),
        (DATA, TOGETHER, (0, 1), 0, "rows"),
        (DATA[:-1], TOGETHER, (0, 1), 20, "data"),
        (torch.zeros(5 * 2_112 + 1, dtype=torch.uint8)[1:], TOGETHER, (0, 1), 20, "data"),
        (DATA, PageFormat("other", "mla-v4", (448, 128, 8), ((0, 1), (2,)), 1, 0, 2_112), (0,), 1, "form"),
        (DATA, TOGETHER._replace(pitch=133, page_bytes=2_112), (0,), 1, "form"),
    ],
    ids=["absent", "beyond", "too many", "none", "short", "odd address", "other rows", "odd pitch"],
)
def test_pages_that_no_kernel_could_read_are_refused(data, form, ids, rows, field):
    """Ids, rows, formats and addresses are checked on the host."""
    with pytest.raises(KernelArgumentError) as caught:
        IndexerPages.of(data, form, ids, rows)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("queries", "weights", "limits", "field"),
    [
        (torch.zeros(2, 5, 64), torch.zeros(2, 5), torch.zeros(2, dtype=torch.int32), "queries"),
        (torch.zeros(2, 5, 128), torch.zeros(2, 4), torch.zeros(2, dtype=torch.int32), "weights"),
        (torch.zeros(2, 5, 128), torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64), "limits"),
        (torch.zeros(2, 5, 256)[..., ::2], torch.zeros(2, 5), torch.zeros(2, dtype=torch.int32), "queries"),
    ],
    ids=["width", "heads", "dtype", "strided"],
)
def test_queries_of_the_wrong_form_are_refused(queries, weights, limits, field):
    """Sampled queries must be whole and contiguous."""
    with pytest.raises(KernelArgumentError) as caught:
        index_scores(IndexerPages.of(DATA, TOGETHER, (0, 1), 20), queries, weights, limits)

    assert caught.value.field == field
