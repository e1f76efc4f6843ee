"""Pages of contiguous rows in a random order, cut into blocks.

In epoch e the pages of a chain are laid end to end in a random order, as a circle of N rows; from
a random place on the circle is cut into N // b blocks of b rows. Every row is in one block of an
epoch but for the last N mod b rows of the circle, and each row is as likely as any other to be
one of those: pages may have any lengths. Where all pages have p rows and p divides b, the circle
is cut between pages, so that a block is a simple random sample of pages.
"""

import functools

import numpy as np
from jaxtyping import Int64, UInt32

from ergodax.data.reader import Ranges

MOST_PAGES = 2**24
CACHED = 2**22  # pages of all orders that are kept


class Pages:
    """The division of N rows into pages.

    Args:
        lengths: rows of each page, in the order of the data.
        block_rows: b.

    Raises:
        ValueError: too many pages.
    """

    def __init__(self, lengths: Int64[np.ndarray, " pages"], block_rows: int) -> None:
        if len(lengths) > MOST_PAGES:
            raise ValueError(
                f"page_rows divides the data into {len(lengths)} pages, more than {MOST_PAGES}. "
                "Try larger pages."
            )
        self.lengths, self.block_rows = lengths, block_rows
        self.num_rows = int(lengths.sum())
        self.begins = np.cumsum(lengths) - lengths
        self.aligned = bool((lengths == lengths[0]).all()) and block_rows % int(lengths[0]) == 0
        keep = max(2, CACHED // len(lengths))
        self.circle = functools.lru_cache(maxsize=keep)(self._circle)

    def ranges(self, order: UInt32[np.ndarray, " 2"], number: int) -> Ranges:
        """The rows of a block, in the order of the data.

        Args:
            order: the chain's words.
            number: of the block, from 0.
        """
        epoch, k = divmod(number, self.num_rows // self.block_rows)
        low, high = (int(word) for word in order)
        pages, ends, start = self.circle(low | high << 32, epoch)
        begin = (start + k * self.block_rows) % self.num_rows
        end = begin + self.block_rows
        spans = [self._span(pages, ends, begin, min(end, self.num_rows))]
        if end > self.num_rows:
            spans.append(self._span(pages, ends, 0, end - self.num_rows))
        return _merged(np.concatenate(spans))

    def _circle(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The pages in their order, where each ends, and the place where the first block begins."""
        bits = np.random.Philox(key=np.array([seed, epoch], np.uint64))
        pages = np.argsort(bits.random_raw(len(self.lengths)), kind="stable").astype(np.uint32)
        start = 0 if self.aligned else int(bits.random_raw() % self.num_rows)
        return pages, np.cumsum(self.lengths[pages]), start

    def _span(self, pages: np.ndarray, ends: np.ndarray, begin: int, end: int) -> Ranges:
        """The rows at the places [begin, end) of the circle."""
        first, last = np.searchsorted(ends, [begin, end - 1], side="right")
        these = pages[first : last + 1]
        ranges = self.begins[these][:, None] + np.array([0, 1]) * self.lengths[these][:, None]
        ranges[-1, 1] -= ends[last] - end
        ranges[0, 0] += begin - (ends[first] - self.lengths[these[0]])
        return ranges


def _merged(ranges: Ranges) -> Ranges:
    """In increasing order, with ranges that meet made one."""
    ranges = ranges[np.argsort(ranges[:, 0])]
    starts = np.concatenate([[True], ranges[1:, 0] != ranges[:-1, 1]])
    return np.stack([ranges[starts, 0], ranges[np.append(starts[1:], True), 1]], axis=1)


def equal_pages(num_rows: int, page_rows: int) -> Int64[np.ndarray, " pages"]:
    """Pages of `page_rows` rows; the last may be shorter."""
    whole, rest = divmod(num_rows, page_rows)
    lengths = np.full(whole + (rest > 0), page_rows, np.int64)
    if rest:
        lengths[-1] = rest
    return lengths
