"""One evaluation of the log marginal likelihood and its gradient: two passes over the rows."""

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(8.4, 3.1))
ax.set(xlim=(0, 12), ylim=(0, 4.6))
ax.axis("off")


def box(x, y, width, text, colour):
    """Draw a labelled box and return its middle."""
    patch = plt.Rectangle((x, y), width, 1.0, facecolor=colour, edgecolor="0.3", linewidth=0.8)
    ax.add_patch(patch)
    ax.text(x + width / 2, y + 0.5, text, ha="center", va="center", fontsize=8.5)


def arrow(start, end):
    """Draw an arrow between two points."""
    style = {"arrowstyle": "->", "color": "0.25", "linewidth": 1.0}
    ax.annotate("", xy=end, xytext=start, arrowprops=style)


ROWS, SMALL = "#dcebf7", "#fdeed5"
for y in (3.2, 0.2):
    for shift in (0.24, 0.12, 0.0):
        box(0.1 + shift, y + shift, 1.7, "row blocks" if shift == 0 else "", ROWS)
box(2.7, 3.2, 2.3, "features\n$K = k(X, B)$", ROWS)
box(5.9, 3.2, 2.6, "sums over all blocks\n$A, b, c, N$", SMALL)
box(9.4, 3.2, 2.4, "log marginal likelihood\nand its adjoints", SMALL)
box(2.7, 0.2, 2.3, "pull back through\nthe kernel", ROWS)
box(5.9, 0.2, 2.6, "sums over all blocks\n$\\bar B, \\bar\\eta, \\bar a_0$", SMALL)
box(9.4, 0.2, 2.4, "gradient\n$\\to$ quasi-Newton step", SMALL)
for y in (3.7, 0.7):
    arrow((2.06, y), (2.66, y))
    arrow((5.04, y), (5.86, y))
    arrow((8.54, y), (9.36, y))
ax.annotate(
    "",
    xy=(3.85, 1.24),
    xytext=(10.6, 3.16),
    arrowprops={"arrowstyle": "->", "color": "0.25", "connectionstyle": "arc3,rad=0.0"},
)
ax.text(2.9, 2.15, r"$\bar K = 2K\bar A + y\,\bar b^\top$, block by block", fontsize=8.5)
ax.text(0.1, 2.75, "pass 1", fontsize=8.5, color="0.35")
ax.text(0.1, 1.62, "pass 2", fontsize=8.5, color="0.35")
