"""Averages the weights of runs that began from one another: `average.py OUT NET=SHARE NET=SHARE`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch


def main() -> None:
    """Read the command line and average."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("nets", nargs="+", metavar="NET=SHARE")
    arguments = parser.parse_args()
    pairs = [each.rsplit("=", 1) for each in arguments.nets]
    shares = [float(share) for _, share in pairs]
    weights = [torch.load(net, weights_only=True) for net, _ in pairs]
    mean = {
        name: sum(share * each[name] for share, each in zip(shares, weights, strict=True)) / sum(shares)
        for name in weights[0]
    }
    torch.save(mean, arguments.out)


if __name__ == "__main__":
    main()
