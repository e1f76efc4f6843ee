"""Make every wrong call and print what comes of it, without the type checker of the tests."""

import json

from unit.wrong_calls import CASES
from unit.wrong_calls.case import outcome

if __name__ == "__main__":
    print(json.dumps({name: outcome(case) for name, case in CASES.items()}))
