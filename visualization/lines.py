"""Lines of diagrams that differ in print."""

# Eight colors that color-blind readers can tell apart (Okabe and Ito 2008, with
# gray for yellow), and sixteen markers, for print.
_COLORS = "#000000 #e69f00 #56b4e9 #009e73 #808080 #0072b2 #d55e00 #cc79a7"
_MARKERS = "os^DvPX*<>ph+x1|"


def distinguish_lines(axes):
    """Gives up to 16 lines different colors, markers and dashes."""
    axes.set_prop_cycle(
        color=2 * _COLORS.split(),
        marker=list(_MARKERS),
        linestyle=8 * ["-"] + 8 * ["--"],
    )
