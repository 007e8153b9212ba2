import itertools
import types

import pytest

from demonstration.examples import ExampleSearch
from old.errors import UserError


def search_of(verdicts):
    """A search among examples of a number and whether they are right."""
    examples = [
        types.SimpleNamespace(number=number, is_right=is_right)
        for number, is_right in enumerate(verdicts)
    ]
    spec = types.SimpleNamespace(num_examples=len(examples))
    return ExampleSearch(
        types.SimpleNamespace(
            examples=lambda: iter(examples),
            pipeline=types.SimpleNamespace(spec=spec),
        )
    )


def found(search, is_right):
    example, _ = search.next(is_right)
    return example.number


def test_each_kind_in_order_and_around():
    search = search_of([True, False, True, True, False])
    wrong = [found(search, False) for _ in range(3)]
    assert wrong == [1, 4, 1]
    # Those that the search for wrong ones passed were not lost.
    right = [found(search, True) for _ in range(5)]
    assert right == [0, 2, 3, 0, 2]


def test_it_looks_at_a_batch_at_a_time():
    search = search_of([True] * 250 + [False])
    assert search.next(False) == (None, 100)
    assert search.next(False) == (None, 200)
    example, searched = search.next(False)
    assert (example.number, searched) == (250, 251)


def test_it_goes_on_after_images_that_cannot_be_read():
    search = search_of([True] * 150)
    good = search._subject.examples

    def bad():
        yield from itertools.islice(good(), 120)
        raise UserError("damaged")

    search._subject.examples = bad
    for _ in range(2):  # from the first again
        assert search.next(False) == (None, 100)
        with pytest.raises(UserError, match="damaged"):
            search.next(False)
    search._subject.examples = good
    assert [found(search, True) for _ in range(2)] == [0, 1]


def test_no_example_of_a_kind():
    search = search_of([True] * 150)
    assert search.next(False) == (None, 100)
    with pytest.raises(UserError, match="none of 150 test images is wrong"):
        search.next(False)
    assert search.next(False) == (None, 100)
    assert search.next(True)[0].is_right
