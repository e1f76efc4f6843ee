"""Reports: one HTML template, its pictures, and what `infer` and `verify` tell."""

from ergodax.report.page import (
    are_figures,
    data_frame,
    key_values,
    picture,
    plain,
    results,
    sentences_list,
    text_table,
    write,
    write_facts,
)

__all__ = [
    "are_figures",
    "data_frame",
    "key_values",
    "picture",
    "plain",
    "results",
    "sentences_list",
    "text_table",
    "write",
    "write_facts",
]
