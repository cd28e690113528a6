"""Know the options that servebench adds to Locust's command line and Start form."""

from argparse import ArgumentParser

from servebench.loadgen.desk.choices import add_choices

RATE_PER_USER = "rate_per_user"


def add_options(parser: ArgumentParser) -> None:
    """Add them; the Start form shows them under "Custom parameters". Called by Locust by keyword."""
    parser.add_argument(
        "--rate-per-user",
        type=float,
        default=1.0,
        env_var="SERVEBENCH_RATE_PER_USER",
        help="Offered requests per second for each Locust user, so users x this = offered rate; may be edited live",
    )
    add_choices(parser)
