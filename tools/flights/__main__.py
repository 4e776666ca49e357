"""``python -m flights``: what ``tools/demo`` runs."""

if __name__ == "__main__":
    import sys

    from .run import main

    sys.exit(main())
