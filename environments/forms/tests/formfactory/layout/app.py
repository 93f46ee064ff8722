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
