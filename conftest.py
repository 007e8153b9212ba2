"""Options of the tests."""


def pytest_addoption(parser):
    """Adds --kills."""
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        help="how often the test of killed trainings kills one",
    )
