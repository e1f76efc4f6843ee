"""`infer` beside NUTS by the number of rows: what `ergodax compare` measures, as a section."""

from benchmarks.report import Table
from benchmarks.sections.settings import QUICK, Settings
from ergodax.apps import compare, compare_pages
from ergodax.report import page as report

SIZES = (500, 50_000, 500_000)
QUICK_SIZES = (500, 5_000)


def nuts_table(settings: Settings) -> Table:
    """Effective draws a second of `infer` and of NUTS, while sampling and all in."""
    quick = settings is QUICK
    options = compare.Options(sizes=QUICK_SIZES if quick else SIZES, quick=quick)
    result = compare.run(options)
    texts = compare_pages.texts(result)
    texts.insert(0, "case", texts.pop("sampler") + ", N = " + texts.pop("N"))
    table = Table("infer and NUTS: logistic regression, D=10, 4 chains", list(texts.columns))
    table.rows += texts.to_numpy().tolist()
    table.notes += [*compare_pages.reading(result), *result.verdicts]
    table.data |= report.plain(result.facts)
    return table
