"""`python -m ergodax` is `ergodax`."""

from ergodax.cli.main import main

if __name__ == "__main__":
    main()
