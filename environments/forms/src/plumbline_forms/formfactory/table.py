"""What is known about the 25 forms of the FormFactory benchmark and is written nowhere in its files.

Which gold file belongs to which form, which gold keys differ from the labels on the page, which have no field at all,
and which values mean an option that is written otherwise. Facts only: forms, records and texts stay in the checkout.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One form of the benchmark."""

    id: str
    """Also the name of its template."""
    url: str
    stem: str
    """Of its gold file (`data/data1`) and its documents (`data/data2`)."""
    fields: int
    """Controls that a user sees; a group counts once."""
    records: int = 50
    config: str = ""
    """Where the description is fetched of a form that a script builds; "" where the page itself holds the controls."""

    @property
    def domain(self) -> str:
        """The first part of its address."""
        return self.url.split("/")[1]

    @property
    def name(self) -> str:
        """The second part of its address: what the form is called here."""
        return self.url.split("/")[2]


ROWS = (
    Row("A11", "/academic-research/job-application", "job_applications", 4),
    Row("A12", "/academic-research/grant-application", "grant_applications", 6, config="/form-config"),
    Row("A13", "/academic-research/scholarship-application", "scholarship_applications", 16),
    Row("A14", "/academic-research/paper-submission", "paper_submissions", 7),
    Row("A15", "/academic-research/course-registration", "student_courses", 8),
    Row("B11", "/professional-business/startup-funding", "startup_funding_applications", 18),
    Row("B12", "/professional-business/rental-application", "real_estate_rental_applications", 22),
    Row("B13", "/professional-business/workshop-registration", "workshop_registrations", 17),
    Row("B14", "/professional-business/membership-application", "membership_application", 20),
    Row("C11", "/arts-creative/exhibition-submission", "Art_Exhibition_Submission_Form", 11),
    Row("C12", "/arts-creative/literary-submission", "Literary_Magazine_Submission", 11),
    Row("C13", "/arts-creative/speaker-application", "Conference_Speaker_Application", 14),
    Row("D11", "/tech-software/bug-report", "Bug_report", 10),
    Row("D12", "/tech-software/support-request", "IT_support", 11),
    Row("E11", "/finance-banking/personal-loan", "person_loan_applications", 7),
    Row("E12", "/finance-banking/account-opening", "bank_account_applications", 5),
    Row("E13", "/finance-banking/financial-planning", "financial_planning", 6),
    Row("F11", "/healthcare-medical/patient-consent", "Patient_Consent", 10),
    Row("F12", "/healthcare-medical/research-enrollment", "Medical_study_Form", 8),
    Row("F13", "/healthcare-medical/insurance-claim", "Health_Insurance", 10, records=40),
    Row("G11", "/legal-compliance/nda-submission", "NDA", 9),
    Row("G12", "/legal-compliance/background-check", "Background_check", 11),
    Row("G13", "/legal-compliance/contractor-onboarding", "Contrator_onboard", 14),
    Row("H11", "/construction-manufacturing/project-bid", "Project_Bid", 13),
    Row("H12", "/construction-manufacturing/order-request", "Manufacturing_Order", 13),
)
NAMES = tuple(row.name for row in ROWS)

KEYS: Mapping[str, Mapping[str, str]] = {
    "A13": {"Statement of Purpose": "essay"},
    "A15": {"Selected Courses": "courses[]"},
    "E12": {"Account Type": "accountType"},
    "G11": {"Party Name": "partyName"},
    # The last ten records of this form follow another schema.
    "B14": {
        "name": "full_name",
        "email": "email",
        "phone": "phone",
        "date_of_birth": "date_of_birth",
        "experience_years": "years_experience",
        "membership_type": "membership_level",
    },
}
"""Gold keys that no label of the page equals, by form, with the name of the field that they mean."""

UNPLACED: Mapping[str, Mapping[str, str]] = {
    "D12": {"Brief description of the issue": "a placeholder on the page, not a field"},
    "H11": {"Scope of Work": "a heading on the page, not a field"},
    "H12": {"Product Specifications": "a heading on the page, not a field"},
    "B14": {
        "degree": "the other schema of the last ten records: no one field holds it",
        "current_position": "the other schema of the last ten records: no one field holds it",
        "reference": "the other schema of the last ten records: a record inside the record",
    },
}
"""Gold keys that have no field, with the reason."""

ALIASES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "A13": {"financialAid": {"Other Scholarship": "Other Scholarships"}},
    "B13": {"education_level": {"PhD": "Doctorate", "Associate Degree": "Other"}},
    "B14": {"education_level": {"PhD": "Doctorate"}},
    "E12": {"accountType": {"Saving Account": "Savings Account"}},
}
"""Values that mean an option which reads otherwise: by form and field, the value to the option's text."""


def row_of(name: str) -> Row | None:
    """The row of a form by its name or its id; None where there is none."""
    return next((row for row in ROWS if name in {row.name, row.id}), None)
