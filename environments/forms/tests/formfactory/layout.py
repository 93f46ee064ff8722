"""A directory in the layout of the benchmark, with forms, records and texts of our own, written by
the tests.

Eight forms carry the ids and addresses that the importer knows, and the mismatches that it must
cope with: labels with stars, a group and a list that no label is tied to, keys without a field,
values that no option has, a second schema, required files, styles from elsewhere, an address in a
form's action, a form that a script builds.
"""

import json

APP = """
import json
import os
from functools import partial
from flask import Flask, jsonify, render_template, request

app = Flask(__name__)
open("imported.log", "w").close()  # an app may write where it stands


@app.route("/form-config")
def form_config():
    return jsonify({"title": "Garden Grant", "fields": [
        {"name": "who", "label": "Gardener", "type": "string"},
        {"name": "mail", "label": "Mail", "type": "email"},
        {"name": "since", "label": "Since", "type": "date"},
        {"name": "plot", "label": "Plot", "type": "radio", "options": ["North", "South"]},
        {"name": "water", "label": "Water needed", "type": "checkbox"},
    ]})


def serve(template):
    if request.method == "GET":
        return render_template(template)
    if request.form.get("organization") == "crash":
        raise RuntimeError("the app itself breaks")
    data = request.form.to_dict()
    save_submission_to_json(template, data)
    return jsonify({"message": "Submitted Successfully!", "data": data})


for place, form in {
    "/academic-research/grant-application": "A12",
    "/academic-research/scholarship-application": "A13",
    "/academic-research/course-registration": "A15",
    "/professional-business/workshop-registration": "B13",
    "/professional-business/membership-application": "B14",
    "/tech-software/support-request": "D12",
    "/finance-banking/account-opening": "E12",
    "/healthcare-medical/insurance-claim": "F13",
}.items():
    app.add_url_rule(place, form, partial(serve, form + ".html"), methods=["GET", "POST"])


def save_submission_to_json(template_name, data):
    os.makedirs("submission", exist_ok=True)
    with open("submission/" + template_name + ".json", "w") as file:
        json.dump(data, file)
"""

PAGES = {
    "A12": """<html><head><link rel="stylesheet" href="https://cdn.example.org/looks.min.css">
        <script src="https://cdn.example.org/npm/dates"></script></head><body><h1>Loading</h1>
        <form id="f" method="POST"></form><button type="submit" form="f">Apply now</button>
        <script>fetch("/form-config")</script></body></html>""",
    "A13": """<html><body><h1>Tuition Help</h1><form method="POST">
        <label for="n">Name *</label><input id="n" name="n">
        <label for="g">Grade</label><input id="g" name="g" type="number" min="0" max="5" step="0.1">
        <label for="financialAid">Help so far</label><select id="financialAid" name="financialAid">
          <option value="">Choose</option><option value="none">None</option>
          <option value="other">Other Scholarships</option></select>
        <label for="income">Income</label><select id="income" name="income"><option value="">Choose</option>
          <option value="low">$0 - $20,000</option><option value="mid">$20,001 - $50,000</option>
          <option value="high">$50,001+</option></select>
        <label for="essay">Statement of Purpose (short)</label><textarea id="essay" name="essay"></textarea>
        <button type="submit">Ask for help</button></form></body></html>""",
    "A15": """<html><head><link rel="stylesheet" href="https://cdn.example.org/looks.min.css"></head>
        <body><h1>Courses</h1><form method="POST">
        <label for="name">Full Name</label><input id="name" name="name">
        <h3>Choice</h3><div><label>Select Courses</label><div><div>
          <input type="checkbox" id="c1" name="courses[]" value="K1"><label for="c1">K1 - Knots</label></div><div>
          <input type="checkbox" id="c2" name="courses[]" value="K2"><label for="c2">K2 - Kites</label></div><div>
          <input type="checkbox" id="c3" name="courses[]" value="K3"><label for="c3">K3 - Kilns</label></div>
        </div></div>
        <label for="semester">Semester</label><select id="semester" name="semester"><option value="">Choose</option>
          <option>Fall 2030</option><option>Spring 2031</option></select>
        <button>Sign up</button></form>
        <script src="//cdn.example.org/looks.min.js"></script></body></html>""",
    "B13": """<html><body><h1>Workshop</h1><form method="POST" action="/professional-business/workshop-registration"
          enctype="multipart/form-data">
        <label for="organization">Organization</label><input id="organization" name="organization">
        <label for="t">Time</label><select id="t" name="session_time"><option value="">Choose</option>
          <option value="morning">Morning (8:00 AM - 11:00 AM)</option>
          <option value="afternoon">Afternoon (1:00 PM - 3:00 PM)</option></select>
        <label for="d">Day *</label><input id="d" name="day" type="date">
        <label for="a">Billing Address</label><input id="a" name="address">
        <label for="diet">Diet</label><select id="diet" name="diet"><option value="none">None</option>
          <option value="vegan">Vegan</option></select>
        <label for="p">Programme</label><input id="p" name="programme" type="file" accept=".pdf,.txt">
        <label for="ok">I agree *</label><input id="ok" name="ok" type="checkbox" value="yes">
        <button>Book</button></form></body></html>""",
    "B14": """<html><body><h1>Membership</h1><form method="POST">
        <label for="full_name">Full Name</label><input id="full_name" name="full_name">
        <label for="email">Email</label><input id="email" name="email" type="email">
        <button>Join</button></form></body></html>""",
    "D12": """<html><body><h1>Support</h1><form method="POST">
        <label for="s">Subject</label><input id="s" name="subject" placeholder="Brief description of the issue">
        <label for="u">Users</label><input id="u" name="users" type="number" min="1" value="1">
        <label for="f">Screenshots</label><input id="f" name="shots" type="file" multiple>
        <button>Send</button></form></body></html>""",
    "E12": """<html><body><h1>Account</h1><form method="POST"><h4>You</h4>
        <label for="n">Full Name</label><input id="n" name="fullName">
        <h4>Account Type</h4><div><select name="accountType"><option value="">Choose</option>
          <option value="savings">Savings Account</option>
          <option value="student">Student Account</option></select></div>
        <button>Open</button></form></body></html>""",
    "F13": """<html><body><h1>Claim</h1><form method="POST">
        <label for="n">Policy Number</label><input id="n" name="policy" required>
        <label for="b">Bills</label><input id="b" name="bills" type="file" required>
        <label for="x">Reports</label><input id="x" name="reports" type="file">
        <button>Claim</button></form></body></html>""",
}

STEMS = {
    "A12": "grant_applications",
    "A13": "scholarship_applications",
    "A15": "student_courses",
    "B13": "workshop_registrations",
    "B14": "membership_application",
    "D12": "IT_support",
    "E12": "bank_account_applications",
    "F13": "Health_Insurance",
}


def _records(keys, *rows):
    return [dict(zip(keys.split(", "), row, strict=True)) for row in rows]


_BOOKING = "Organization, Time, Day, Billing Address, Diet, Programme, I agree"
GOLD = {
    "A12": _records(
        "Gardener, Mail, Since, Plot, Water needed",
        ("Ute Amsel", "ute@moss.example", "2031/04/05", "South", True),
        ("Jo Fink", "jo@moss.example", "2030/01/02", "North", False),
    ),
    "A13": _records(
        "Name, Grade, Help so far, Income, Statement of Purpose",
        ("Ada Moor", 3.5, "Other Scholarship", 20001, ["read", "write"]),
        ("Bo Lind", 4.0, "none", 99000, "learn"),
        ("Cy Tamm", 9.9, "None", 20000, "teach"),
    ),
    "A15": _records(
        "Full Name, Selected Courses, Semester",
        ("Ada Moor", ["K3 - Kilns", "K1 - Knots"], "Fall 2030"),
        ("Bo Lind", ["K2 - kites"], "Winter 2030"),
    ),
    "B13": _records(
        _BOOKING,
        ("Moss & Co", "9AM", "2030/02/03", "1 Fern Way\nMossby", "None", "None", "Yes"),
        ("Fern Ltd", "afternoon", "2030-02-04", "2 Fern Way", "vegan", "None", "No"),
        ("Reed Ltd", "12PM", "2030-02-05", "3 Fern Way", "Vegan", "plan.pdf", "Yes"),
    ),
    "B14": [
        {"Full Name": "Ada Moor", "Email": "ada@moss.example"},
        {
            "name": "Bo Lind",
            "email": "bo@moss.example",
            "degree": "none yet",
            "reference": {"name": "Ute Amsel"},
        },
    ],
    "D12": _records(
        "Brief description of the issue, Subject, Users, Screenshots",
        ("broken", 'The "blue" screen', 12, "None"),
        ("slow", "Slow", 1, "None"),
    ),
    "E12": _records(
        "Full Name, Account Type", ("Ada Moor", "Saving Account"), ("Bo Lind", "Student Account")
    ),
    "F13": _records("Policy Number", ("P-1",), ("P-2",)),
}
MARKS = {"A15": ")", "D12": ")"}


def write_layout(root):
    """The directory; gives its path."""
    for folder in ("templates", "data/data1", "data/data2"):
        (root / folder).mkdir(parents=True)
    (root / "app.py").write_text(APP, encoding="utf-8")
    for form, page in PAGES.items():
        (root / f"templates/{form}.html").write_text(page, encoding="utf-8")
        (root / f"data/data1/{STEMS[form]}.json").write_text(
            json.dumps(GOLD[form]), encoding="utf-8"
        )
        mark = MARKS.get(form, ".")
        texts = [f"{n}{mark} {text_of(form, n)}" for n in range(1, len(GOLD[form]) + 1)]
        (root / f"data/data2/{STEMS[form]}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return root


def text_of(form, number):
    """A text with a numbered list of its own; with another sign than the texts have, its numbers
    are theirs, too."""
    name = next(iter(GOLD[form][number - 1].values()))
    second = "2. another one\n" if form in MARKS else ""
    return f"Text {number} of {form} about {name}.\n1. a point\n{second}7. a last one"
