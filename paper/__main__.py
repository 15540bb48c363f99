"""Entry point of `python paper`."""

import sys
from pathlib import Path

# The checkout instead of this folder: it has the packages `paper` and `realdata`.
sys.path[0] = str(Path(__file__).resolve().parents[1])

if __name__ == "__main__":
    try:
        from paper.cli import main
    except ImportError as error:
        raise SystemExit(f'paper: pip install ".[paper]" is needed ({error}).') from error
    raise SystemExit(main())
