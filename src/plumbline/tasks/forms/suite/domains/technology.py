"""Computers: two forms."""

from plumbline.tasks.forms.suite.declaration import Form, InOrder, Page
from plumbline.tasks.forms.suite.drawing import (
    address_of,
    clock,
    code,
    day_between,
    days_after,
    full_name,
    minutes_after,
    papers,
    phrase,
    prose,
    secret,
    whole,
)
from plumbline.tasks.forms.suite.fields import (
    area,
    box,
    boxes,
    consent,
    date,
    email,
    file,
    multiselect,
    number,
    password,
    radio,
    select,
    shown,
    text,
    time,
)

VPN = Form(
    name="vpn-access",
    domain="technology",
    title="Remote Access Request",
    button="Request Access",
    rules=(InOrder("valid_from", "valid_until"),),
    asides=("The old gateway is switched off in May.", "Tokens cannot be lent."),
    pages=(
        Page(
            (
                text("Employee", full_name(), required=True),
                text(
                    "Staff number",
                    code("E#####"),
                    required=True,
                    pattern="E[0-9]{5}",
                    hint="E and five digits",
                    maxlength=6,
                    alias="Personnel number",
                ),
                email("Work email", address_of(), required=True),
                text("Approving manager", full_name(1), required=True),
                multiselect(
                    "Systems",
                    "Build farm|Code archive|Data lake|Mail relay|Test cluster|Wiki",
                    required=True,
                    alias="Systems needed",
                ),
                radio("Device", "Company laptop|Own laptop|Thin client", required=True),
                text("Serial number", code("SN@@####"), shown_if=shown("device", "own_laptop"), required=True),
                date("Valid from", day_between("2026-01-02", "2026-07-31"), required=True),
                date("Valid until", days_after("valid_from", 14, 365), required=True),
                password("Initial passphrase", secret(), required=True, minlength=8),
                area(
                    "Reason",
                    prose(
                        "I am on {call|leave|site} for {#} days and have to {deploy|review|restart} services.",
                        "The {audit|migration|release} on {day} needs two people.",
                        "Ticket {#} asks for {logs|backups|keys} from outside.",
                    ),
                    required=True,
                ),
                consent("I will lock my screen"),
            )
        ),
    ),
)
CHANGE = Form(
    name="change-ticket",
    domain="technology",
    title="Change Ticket",
    button="Open Ticket",
    rules=(InOrder("window_start", "window_end"),),
    asides=("Cooling in row C is still noisy.", "Nobody deploys on the last Friday of a month."),
    pages=(
        Page(
            (
                text(
                    "Summary",
                    phrase(
                        "Upgrade|Replace|Restart|Move|Patch",
                        "the billing|the mail|the search|the login|the print",
                        "service|database|proxy|queue",
                    ),
                    required=True,
                    maxlength=70,
                    alias="Short title",
                ),
                text("Requester", full_name(), required=True),
                select("Environment", "Production|Staging|Test", required=True),
                radio("Risk", "Low|Medium|High", required=True, alias="Risk class"),
                date("Change date", day_between("2026-01-20", "2026-12-01"), required=True),
                time("Window start", clock(0, 20, 30), required=True),
                time("Window end", minutes_after("window_start", 30, 60, 120, 180), required=True),
                number("Hosts affected", whole(1, 400), "1", default="1"),
                boxes("Notify", "Help desk|Finance|Night shift|Customers"),
                box("Downtime expected", 0.5),
                number(
                    "Minutes of downtime",
                    whole(5, 120, 5),
                    "1",
                    "240",
                    shown_if=shown("downtime_expected"),
                    required=True,
                ),
                area(
                    "Steps",
                    prose(
                        "1. Drain node {#}.",
                        "2. Copy the {config|schema|index} and compare {#} rows.",
                        "3. Switch traffic on {day} and watch {latency|errors|memory}.",
                        count=3,
                        joint="\n",
                    ),
                    required=True,
                ),
                area(
                    "Rollback plan",
                    prose(
                        "Restore snapshot {#} and {restart|reroute|reload} within {#} minutes.",
                        "Call the {vendor|night shift|on-call lead} first.",
                    ),
                    named_by="heading",
                ),
                file("Diagrams", papers("diagram", ".png", ".svg", count=2), ".png", ".svg", multiple=True, filled=0.6),
            )
        ),
    ),
)
FORMS = (VPN, CHANGE)
