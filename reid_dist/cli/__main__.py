"""``python -m reid_dist.cli``."""

from reid_dist.cli import main

if __name__ == "__main__":
    main()
